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
# # NIRVANA's evaluation, simulated
#
# Tables 2, 3 and 5 and Figures 12, 13, 15, 16 and 17 of the paper, from the experiments in `conf/experiment`. Runs that
# `mezzotint reproduce` has finished are read, not made again. What the numbers rest on is in `results/scorecard.md`.
#
# `nirvana.ipynb` is this page with its outputs. The `notebooks` extra has what running it needs.

# %%
from functools import partial
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd

from conf.palette import COLOURS, EDGE, STYLE, panels
from sim.papers.scorecard.measures.formulas import hits, saving
from sim.papers.scorecard.measures.nirvana import CAPACITIES, POLICIES
from sim.papers.scorecard.runs.finished import Finished, Runs
from sim.papers.scorecard.scorecard import load_study, runs_of
from sim.report.figures.display import show

# %% tags=["parameters"]
quick = True  # small traces; False is the full form, of 200,000 requests
work = "results/runs/scorecard"  # where finished runs are kept
jobs = 1  # worker processes

# %%
mpl.rcParams.update(dict(STYLE))
card = load_study("nirvana", quick=quick)
paper = {target.id: target.paper for target in card.targets["nirvana"]}
experiment = partial(runs_of, card, work=Path(work), jobs=jobs)


def only(runs: Runs, system: str) -> Finished:
    """The run of one system."""
    return next(iter(runs.where(system=system)))


# %% [markdown]
# ## Table 2: latency
# Seconds from arrival to the image, one request outstanding; and percentiles over the median.

# %%
table2 = [*experiment("nirvana-table2").finished(), *experiment("nirvana-table2-gpt-cache").finished()]
pd.DataFrame(
    {
        run.summary["system"]: {
            "mean [s]": run.number("latency_s", "mean"),
            **{
                f"{p} / median": run.number("latency_s", p) / run.number("latency_s", "p50")
                for p in ("p90", "p95", "p99")
            },
        }
        for run in table2
    }
).T.round(3)

# %% [markdown]
# ## Table 3: eviction policies
# Hit rate and compute saving against the size of a cold cache; dashed lines are the paper's.

# %%
table3 = experiment("nirvana-table3")
figure, axes = panels(2, width=10, height=3.6, share_y=False)
for panel, of, name, row in ((axes[0][0], hits, "Hit rate", "N07"), (axes[0][1], saving, "Compute saving", "N08")):
    for policy, colour in zip(POLICIES, COLOURS, strict=False):
        ours = [of(run) for size in CAPACITIES for run in table3.where(eviction=policy, capacity=size)]
        panel.plot(CAPACITIES, ours, color=colour, marker="o", label=policy)
        published = paper[f"{row}-{policy}"]  # its largest caches contradict the others for all but fifo
        panel.plot(CAPACITIES[: len(published)], published, color=colour, linestyle="--", alpha=0.6)
    panel.set_xscale("log")
    panel.set_xlabel("Cache size (items)")
    panel.set_title(name)
axes[0][0].legend()
show(figure)

# %% [markdown]
# ## Table 5: embeddings
# Text on both sides of the comparison, and images on the side of the cache.

# %%
table5 = experiment("nirvana-table5")
pd.DataFrame(
    {run.summary["system"]: {"hit rate": hits(run), "compute saving": saving(run)} for run in table5.finished()}
).T.round(3)

# %% [markdown]
# ## Figure 12: throughput relative to vanilla along the stream


# %%
def finished_rpm(run: Finished, parts: int = 20) -> np.ndarray:
    """Images per minute in each of ``parts`` equal parts of the stream of requests."""
    ends_s = np.sort(run.requests("finish_s")["finish_s"].to_numpy())
    marks = np.linspace(0, len(ends_s), parts + 1).astype(int)
    at_s = np.concatenate(([0.0], ends_s))[marks]
    return 60 * np.diff(marks) / np.diff(at_s)


figure12 = experiment("nirvana-figure12")
figure, axes = panels(1, width=6, height=3.2)
vanilla = finished_rpm(only(figure12, "vanilla"))
settings = {"nirvana": "LCBFU, 1.5M items", "nirvana-unbounded": "no eviction"}
for (name, label), colour, dash in zip(settings.items(), COLOURS, ("-", ":"), strict=False):
    relative = finished_rpm(only(figure12, name)) / vanilla
    axes[0][0].plot(np.linspace(0.025, 0.975, len(relative)), relative, color=colour, linestyle=dash, label=label)
axes[0][0].axhline(paper["N05"], color=EDGE, linestyle="--", label="paper's mean")
axes[0][0].set_xlabel("Share of the stream")
axes[0][0].set_ylabel("Throughput over vanilla's")
axes[0][0].legend()
show(figure)

# %% [markdown]
# ## Figure 13: cost of an image

# %%
figure13 = experiment("nirvana-figure13")
cost = {run.summary["system"]: run.number("cost_usd", "per_image") for run in figure13.finished()}
print({name: round(usd, 5) for name, usd in cost.items()}, "USD per image")
print(f"saved: {1 - cost['nirvana'] / cost['vanilla']:.3f}, the paper {paper['N03c']}")

# %% [markdown]
# ## Figure 15: hits and savings across K
# The bars are the saving realised at each K, the line is h(K): the share of requests that may skip K steps or more.

# %%
run = next(iter(experiment("nirvana-figure15")))
ks = sorted(int(k) for k in run.summary["cache"]["hit_share_by_k"])
share = np.array([hits(run) * run.summary["cache"]["hit_share_by_k"][str(k)] for k in ks])
figure, axes = panels(1, width=6, height=3.2)
axes[0][0].bar(ks, share * np.array(ks) / 50, width=3, color=COLOURS[0], label="compute saved at K")
axes[0][0].plot(ks, share[::-1].cumsum()[::-1], color=COLOURS[1], marker="s", label="h(K)")
axes[0][0].axhline(paper["N04a"], color=EDGE, linestyle="--", linewidth=1, label="paper: hit rate, saving")
axes[0][0].axhline(paper["N03a"], color=EDGE, linestyle="--", linewidth=1)
axes[0][0].set_xlabel("K")
axes[0][0].set_xticks(ks)
axes[0][0].legend()
show(figure)

# %% [markdown]
# ## Figure 16: latency with and without the match predictor

# %%
figure16 = experiment("nirvana-figure16")
figure, axes = panels(1, width=6, height=3.2)
for run, colour, dash in zip(figure16.finished(), COLOURS, ("-", ":"), strict=False):
    table = run.requests("arrival_s", "finish_s")
    latency_s = np.sort(table["finish_s"].to_numpy() - table["arrival_s"].to_numpy())
    axes[0][0].plot(
        latency_s, np.linspace(0, 1, len(latency_s)), color=colour, linestyle=dash, label=run.summary["system"]
    )
axes[0][0].set_xlabel("Latency (s)")
axes[0][0].set_ylabel("Share of requests")
axes[0][0].legend()
show(figure)

# %% [markdown]
# ## Figure 17: what the latency is made of
# Means over all requests, in seconds.

# %%
parts = ("search_s", "fetch_s", "denoise_s", "decode_s")
pd.DataFrame(
    {
        run.summary["system"]: {part: float(np.mean(run.requests(part)[part].to_numpy())) for part in parts}
        for run in experiment("nirvana-figure17").finished()
    }
).T.round(3)
