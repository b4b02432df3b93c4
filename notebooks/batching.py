# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # What batching gains, and on which sizes
#
# Users of serving engines ask two things of batching: what it gains at the rate that they have, and what becomes of it
# when requests come in sizes of their own. Both are answered here by `experiment=batching-*`; every figure is a sweep
# that `mezzotint run -m experiment=NAME run.dir=DIR` makes as well.
#
# `batching.ipynb` is this page with its outputs. The `notebooks` extra has what running it needs.

# %%
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from conf.palette import COLOURS, EDGE, STYLE, panels
from sim.papers.scorecard.runs.finished import Finished, Runs
from sim.papers.scorecard.runs.points import sweep
from sim.papers.scorecard.runs.runner import finish
from sim.report.figures.display import show

# %% tags=["parameters"]
quick = False  # True: one seed and short traces
work = "results/runs/batching"  # where finished runs are kept
jobs = 1  # worker processes

# %%
mpl.rcParams.update(dict(STYLE))


def experiment(name: str, *overrides: str) -> Runs:
    """The runs of an experiment, made where they are not there yet."""
    short = ("seed=1", "trace.requests=200") if quick else ()
    return finish(sweep(name, [*overrides, *short]), Path(work), jobs)


def table(runs: Runs, key: str, value: str, read) -> pd.DataFrame:
    """A row for each finished run: what the sweep chose, and a number of it."""
    return pd.DataFrame(
        {
            key: run.point.choices.get(key, ""),
            "rate_rpm": float(run.point.choices["arrivals.rate_rpm"]),
            value: read(run),
        }
        for run in runs.finished()
    )


def lines(axes: Axes, found: pd.DataFrame, key: str, value: str) -> None:
    """A line over the rates for each choice of `key`: the mean of its seeds, and from the least to the most of them."""
    for colour, (name, of) in zip(COLOURS, found.groupby(key, sort=False), strict=False):
        rates = of.groupby("rate_rpm")[value]
        axes.plot(rates.mean(), "o-", color=colour, label=name)
        axes.fill_between(rates.mean().index, rates.min(), rates.max(), color=colour, alpha=0.18, linewidth=0)


# %% [markdown]
# ## The gain of batching under different rates
#
# Qwen-Image-2512, 50 steps, on one H200: SGLang measured a step of 1 to 16 images of 512x512 (0.167 s for one, 0.186 s
# for three, 0.425 s for eight, 0.832 s for sixteen) and of 1 to 3 images of 1024x1024 (0.243, 0.474, 0.711 s). Requests
# join and leave between two steps.
#
# Of 512x512 three together take hardly longer than one. A GPU then carries 19 images a minute in place of 7, eight at a
# time carry 23, and sixteen no more than eight; at half of what one at a time carries the mean is a sixth shorter, and
# only near that rate does the queue make it twice as short and more. Of 1024x1024 a batch takes as long as its images
# one after another: nothing is carried that was not before, and at low rates everybody is 7 to 17 % later, since nobody
# is finished before the others. What batching gains is a matter of the size first and of the rate second.

# %%
sides = {"512x512": experiment("batching-gain"), "1024x1024": experiment("batching-gain-1024")}
figure, axes = panels(2, width=11, height=3.8, share_y=False)
for place, (side, runs) in zip(axes[0], sides.items(), strict=True):
    found = table(runs, "executor.max_batch", "latency_s", lambda run: run.number("latency_s", "mean"))
    lines(place, found, "executor.max_batch", "latency_s")
    standalone_s = 50 * (0.167 if side == "512x512" else 0.243)
    place.axhline(standalone_s, color=EDGE, linestyle=":", linewidth=1)
    place.set(title=side, xlabel="Requests per minute", ylabel="Mean latency (s)", ylim=(0, 12 * standalone_s))
    place.legend(title="images at most")
show(figure)

# %%
gains = []
for side, runs in sides.items():
    found = table(runs, "executor.max_batch", "latency_s", lambda run: run.number("latency_s", "mean"))
    mean_s = found.pivot_table(index="rate_rpm", columns="executor.max_batch", values="latency_s", sort=False)
    gains.append((mean_s["1"].to_numpy()[:, None] / mean_s).round(2).assign(size=side).set_index("size", append=True))
pd.concat(gains).swaplevel().rename_axis(columns="mean latency alone over that with a limit of")

# %% [markdown]
# ## Which batching on which sizes
#
# One H100 with the profile that PatchedServe's text gives (SDXL; assumed where it prints nothing), an SLO of five times
# each request's own standalone latency, and five kinds of traffic: PatchedServe's three sizes, the forty sizes that the
# Stable Diffusion beta was asked for most, and the mixes of vLLM-Omni's benchmark: A is 512x512 with 20 steps, B is
# 1536x1536 with 35, C four sizes. Sizes outside 512x512 to 1024x1024 are extrapolated, so B and the large ones of C say
# how the systems compare under an assumption, not how fast an H100 is. Nobody reuses features here.

# %%
KINDS = {
    "three equal sizes": "batching-sizes",
    "forty sizes of the beta": "batching-sd-beta",
    "vLLM-Omni A": "batching-vllm-omni-a",
    "vLLM-Omni B": "batching-vllm-omni-b",
    "vLLM-Omni C": "batching-vllm-omni-c",
}


def in_time(run: Finished) -> float:
    """The share of all requests whose image came within five times its standalone latency."""
    return 1 - run.number("slo", "5x", "violation_rate")


KNOWN = "patchedserve, steps known"
swept = {kind: experiment(name) for kind, name in KINDS.items()}
served = {kind: table(of, "system", "in_time", in_time) for kind, of in swept.items()}
beta = "forty sizes of the beta"
known = table(experiment(KINDS[beta], "system=patchedserve", "latency_predictor=known"), "system", "in_time", in_time)
served[beta] = pd.concat([served[beta], known.assign(system=KNOWN)])
figure, axes = panels(3, 2, width=11, height=6.6)
places = list(axes.flat)
for place, (kind, found) in zip(places, served.items(), strict=False):
    lines(place, found, "system", "in_time")
    place.set(title=kind, xlabel="Requests per minute", ylim=(0, 1.02))
    place.yaxis.set_major_formatter("{x:.0%}")
for row in axes:
    row[0].set_ylabel("In time")
places[-1].axis("off")
places[-1].legend(*places[1].get_legend_handles_labels(), loc="center", fontsize=11)
show(figure)


# %% [markdown]
# The highest rate at which 95 % are in time, between the rates that were run (blank: not even at the lowest; a plus:
# still at the highest).


# %%
def carried(of: pd.DataFrame) -> str:
    """Where the mean over seeds falls below 95 %, interpolated."""
    mean = of.groupby("rate_rpm")["in_time"].mean()
    below = np.flatnonzero(mean.to_numpy() < 0.95)
    if not len(below):
        return f"{mean.index[-1]:g}+"
    if below[0] == 0:
        return ""
    (x0, x1), (y0, y1) = mean.index[below[0] - 1 : below[0] + 1], mean.iloc[below[0] - 1 : below[0] + 1]
    return f"{x0 + (y0 - 0.95) / (y0 - y1) * (x1 - x0):.0f}"


pd.DataFrame({kind: found.groupby("system", sort=False).apply(carried) for kind, found in served.items()})

# %% [markdown]
# What changes with the sizes that people ask for:
#
# - **Batches of one size (ORCA) lose most.** With three equal sizes they carry three quarters of what batches of
#   patches in the order of arrival (`patched-cache`) do, with the beta's forty two thirds, with mix C less than half:
#   whoever comes with another size waits for a batch to end. With a single size (A) there is nothing to mix, and all
#   are the same up to the scheduler; B is a single size too, but outside the profile, where a batch and its patches
#   are not extrapolated alike.
# - **Patches of the common divisor get small.** It is 256 pixels for three sizes and 64 for forty, which is sixteen
#   times as many patches with four times as much border, and each further size in a batch has its attention to
#   itself.
# - **PatchedServe's predictor does not carry over.** Its features are a count for each size. With three sizes 300
#   random batches teach it step times to a few square milliseconds; with forty its error is over a thousand, it takes
#   requests for lost that are not, and discards them for good: up to some 30 requests a minute it is then worse than
#   serving in order. With the step times known it is the best again, at every rate.

# %%
predicted = []
for kind, of in swept.items():
    for run in of.where(system="patchedserve").finished():
        for said in run.summary["assumptions"]:
            if said["what"].startswith("mean squared error of the predicted step"):
                predicted.append({"": kind, "mean squared error of a predicted step (ms²)": said["value"]})
pd.DataFrame(predicted).groupby("", sort=False).mean().round(1)
