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
# Two questions about batching: what does it gain at a given rate, and what happens when requests have different sizes?
# The experiments `batching-*` of `conf/experiment` answer both. `mezzotint.sweep` runs them here, and
# `mezzotint run -m experiment=NAME run.dir=DIR` makes the same runs.
#
# The site has this page with its outputs (`make docs`). The `notebooks` extra has what running it needs.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

import mezzotint
from mezzotint.figures.palette import COLOURS, EDGE, STYLE

# %% tags=["parameters"]
quick = False  # True: one seed and short traces
work = "results/runs/notebooks"  # where finished runs are kept
jobs = 1  # worker processes

# %%
plt.rcParams.update({**STYLE, "axes.prop_cycle": plt.cycler(color=COLOURS)})
plt.rcParams.update({"figure.dpi": 72, "figure.constrained_layout.use": True})


def experiment(name: str, *overrides: str, folder: str = "") -> mezzotint.Sweep:
    """Return the runs of an experiment."""
    short = ("seed=1", "trace.requests=200") if quick else ()
    place = f"{work}/{folder or name}{'-quick' if quick else ''}"
    return mezzotint.sweep(f"experiment=batching-{name}", *overrides, *short, folder=place, jobs=jobs)


def lines(panel: Axes, table: pd.DataFrame, key: str, metric: str) -> None:
    """Draw a metric by rate, a line for each ``key``: the mean over seeds, their range as a band."""
    for name, rows in table.groupby(key, sort=False):
        rates = rows.groupby("arrivals.rate_rpm")[metric]
        (line,) = panel.plot(rates.mean(), "o-", label=name)
        panel.fill_between(
            rates.mean().index, rates.min(), rates.max(), color=line.get_color(), alpha=0.18, linewidth=0
        )


# %% [markdown]
# ## The gain of batching under different rates
#
# Qwen-Image-2512, 50 steps, on one H200. SGLang measured a step of 1 to 16 images of 512x512 (0.167 s for one, 0.186 s
# for three, 0.425 s for eight, 0.832 s for sixteen) and of 1 to 3 images of 1024x1024 (0.243, 0.474, 0.711 s). Requests
# join and leave between two steps.
#
# At 512x512, three images together take hardly longer than one. A GPU then sustains 19 images a minute instead of 7.
# Batches of eight sustain 23, and sixteen no more than eight. At half of the rate that single images sustain, the mean
# latency is a sixth shorter. Only near that rate does the shorter queue halve it, or more.
#
# At 1024x1024, a batch takes as long as its images one after another. Batching sustains no higher rate, and at low
# rates every request is 7 to 17 % later, since all images of a batch finish together. The gain depends on the size
# first and on the rate second.

# %%
sides = {"512x512": experiment("gain").metrics, "1024x1024": experiment("gain-1024").metrics}
_, axes = plt.subplots(1, 2, figsize=(11, 3.8))
for panel, (side, table), step_s in zip(axes, sides.items(), (0.167, 0.243), strict=True):
    lines(panel, table, "executor.max_batch", "latency_mean_s")
    panel.axhline(50 * step_s, color=EDGE, linestyle=":", linewidth=1)
    panel.set(title=side, xlabel="Requests per minute", ylabel="Mean latency (s)", ylim=(0, 600 * step_s))
    panel.legend(title="max_batch")
plt.show()

# %% [markdown]
# Mean latency without batching over that with `max_batch`:

# %%
gains = {}
for side, table in sides.items():
    mean_s = table.pivot_table(index="arrivals.rate_rpm", columns="executor.max_batch", values="latency_mean_s")
    gains[side] = mean_s.rdiv(mean_s[1], axis="index")
pd.concat(gains).round(2)

# %% [markdown]
# ## Which batching on which sizes
#
# One H100 with the profile that PatchedServe's text gives (SDXL; assumed where it prints nothing). The SLO is five
# times each request's standalone latency. Nothing reuses features. There are five kinds of traffic:
#
# - PatchedServe's three sizes, and the forty sizes that users of the Stable Diffusion beta asked for most;
# - the mixes of vLLM-Omni's benchmark: A is 512x512 with 20 steps, B is 1536x1536 with 35, C has four sizes.
#
# Sizes outside 512x512 to 1024x1024 are extrapolated. B and the large sizes of C therefore compare the systems under an
# assumption, and do not say how fast an H100 is.

# %%
KINDS = {
    "three equal sizes": "sizes",
    "forty sizes of the beta": "sd-beta",
    "vLLM-Omni A": "vllm-omni-a",
    "vLLM-Omni B": "vllm-omni-b",
    "vLLM-Omni C": "vllm-omni-c",
}
sweeps = {kind: experiment(name) for kind, name in KINDS.items()}
served = {kind: runs.metrics for kind, runs in sweeps.items()}
known = experiment("sd-beta", "system=patchedserve", "latency_predictor=known", folder="sd-beta-known").metrics
beta = "forty sizes of the beta"
served[beta] = pd.concat([served[beta], known.assign(system="patchedserve, steps known")])
_, axes = plt.subplots(2, 3, figsize=(11, 6.6), sharey=True)
for panel, (kind, table) in zip(axes.flat, served.items(), strict=False):
    lines(panel, table.assign(in_time=1 - table["over_5x"]), "system", "in_time")
    panel.set(title=kind, xlabel="Requests per minute", ylim=(0, 1.02))
    panel.yaxis.set_major_formatter("{x:.0%}")
axes[0, 0].set_ylabel("In time")
axes[1, 0].set_ylabel("In time")
axes[1, 2].axis("off")
axes[1, 2].legend(*axes[0, 1].get_legend_handles_labels(), loc="center", fontsize=11)
plt.show()

# %% [markdown]
# The highest rate at which 95 % are in time, between the rates that were run (blank: not even at the lowest; a plus:
# still at the highest).


# %%
def sustained(table: pd.DataFrame) -> str:
    """Return the rate at which the mean over seeds falls below 95 %, interpolated."""
    late = table.groupby("arrivals.rate_rpm")["over_5x"].mean()
    if late.iloc[0] > 0.05:
        return ""
    if late.max() <= 0.05:
        return f"{late.index[-1]:g}+"
    past = int(np.argmax(late > 0.05))
    return f"{np.interp(0.05, late.iloc[past - 1 : past + 1], late.index[past - 1 : past + 1]):.0f}"


pd.DataFrame({kind: table.groupby("system", sort=False).apply(sustained) for kind, table in served.items()}).fillna("")

# %% [markdown]
# What changes with the sizes that users ask for:
#
# - **Batches of one size (ORCA) lose most.** With three equal sizes they sustain three quarters of the rate of batches
#   of patches in the order of arrival (`patched-cache`), with the beta's forty two thirds, with mix C less than half. A
#   request of another size waits until a batch ends. With a single size (A) there is nothing to mix, and the systems
#   differ in the scheduler alone. B is a single size too, but outside the profile, where a batch and its patches are
#   not extrapolated alike.
# - **Patches of the common divisor get small.** The divisor is 256 pixels for three sizes and 64 for forty: sixteen
#   times as many patches with four times as much border, and the attention of each further size in a batch is separate.
# - **PatchedServe's predictor does not carry over.** Its features are a count for each size. With three sizes 300
#   random batches teach it step times to a few square milliseconds. With forty its error is over a thousand. It takes
#   requests for late that are not, and discards them: up to some 30 requests a minute it is then worse than serving in
#   order. With the step times known it is the best again, at every rate.

# %%
predicted = [
    {"": kind, "mean squared error of a predicted step (ms²)": assumption["value"]}
    for kind, runs in sweeps.items()
    for run in runs.where(system="patchedserve")
    for assumption in run.summary["assumptions"]
    if assumption["what"].startswith("mean squared error of the predicted step")
]
pd.DataFrame(predicted).groupby("", sort=False).mean().round(1)
