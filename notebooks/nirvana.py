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
# Tables 2, 3 and 5 and Figures 12, 13, 15, 16 and 17 of the paper. Each is an experiment of `conf/experiment`, and
# `mezzotint.sweep` runs it. Finished runs are kept and read the next time. `results/scorecard.md` says what the numbers
# rest on.
#
# The site has this page with its outputs (`make docs`). The `notebooks` extra has what running it needs; the full form
# also needs `ann` and `text`.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import mezzotint
from mezzotint.figures.palette import COLOURS, EDGE, STYLE, plain_numbers
from mezzotint.sim.papers.scorecard.study import load_study

# %% tags=["parameters"]
quick = True  # 2,000 requests, 15,000 for Table 3; False: the full form
work = "results/runs/notebooks"  # where finished runs are kept
jobs = 1  # worker processes

# %%
# %matplotlib inline
plt.rcParams.update({**STYLE, "axes.prop_cycle": plt.cycler(color=COLOURS)})
plt.rcParams.update({"figure.dpi": 80, "figure.constrained_layout.use": True})
study = load_study("nirvana", quick=quick)
SHORT = ("trace.requests=2000", "trace.history=1000", "preload=400")
QUICK = {
    "nirvana-table3": ("trace.requests=15000", "cache.capacity=1500,15000"),
    "nirvana-table5": SHORT,
    "nirvana-figure13": SHORT,
    "nirvana-figure15": SHORT,
}
paper = {target.id: target.paper for target in study.targets["nirvana"]}


def experiment(name: str) -> mezzotint.Sweep:
    """Return the runs of an experiment."""
    folder = f"{work}/{name}{'-quick' if quick else ''}"
    overrides = QUICK.get(name, study.overrides.get(name, ())) if quick else ()
    return mezzotint.sweep(f"experiment={name}", *overrides, folder=folder, jobs=jobs)


# %% [markdown]
# ## Table 2: latency
# Mean seconds from arrival to the image, one request outstanding, and percentiles over the median. A `summary` is what
# `summary.json` of the run holds.

# %%
table2 = [*experiment("nirvana-table2"), *experiment("nirvana-table2-gpt-cache")]
latency_s = pd.DataFrame({run.summary["system"]: run.summary["latency_s"] for run in table2}).T
tail = latency_s[["p90", "p95", "p99"]].div(latency_s["p50"], axis="index").add_suffix(" / median")
latency_s[["mean"]].add_suffix(" [s]").join(tail).astype(float).round(3)

# %% [markdown]
# ## Table 3: eviction policies
# Hit rate and compute saving by the size of a cold cache. The paper's are dashed. `table` of a sweep has a row for each
# run, with what the sweep chose.

# %%
table3 = experiment("nirvana-table3")
figure, axes = plt.subplots(1, 2, figsize=(10, 3.6))
for panel, metric, title, row in zip(
    axes, ("hit_rate", "compute_saving"), ("Hit rate", "Compute saving"), ("N07", "N08"), strict=True
):
    ours = table3.metrics.pivot_table(index="cache.capacity", columns="eviction", values=metric)
    ours.plot(ax=panel, marker="o", logx=True, title=title, xlabel="Cache size (items)")
    panel.xaxis.set_major_formatter(plain_numbers())
    for policy, line in zip(ours, panel.get_lines(), strict=True):
        published = paper[f"{row}-{policy}"]  # the largest caches contradict other numbers for all but fifo
        shown = min(len(ours), len(published))
        panel.plot(ours.index[:shown], published[:shown], "--", color=line.get_color(), alpha=0.6)

# %% [markdown]
# ## Table 5: embeddings
# NIRVANA compares the texts of prompts. `nirvana-clip-image` compares a prompt with the cached images.

# %%
experiment("nirvana-table5").metrics.set_index("system")[["hit_rate", "compute_saving"]].round(3)

# %% [markdown]
# ## Figure 12: throughput relative to vanilla along the stream
# `requests` of a run has a row for each request.


# %%
def finished_rpm(run: mezzotint.Run, parts: int = 20) -> np.ndarray:
    """Return images per minute in each of ``parts`` equal parts of the stream of requests."""
    ends_s = np.sort(run.requests["finish_s"])
    marks = np.linspace(0, len(ends_s), parts + 1).astype(int)
    return 60 * np.diff(marks) / np.diff(np.concatenate(([0.0], ends_s))[marks])


figure12 = {run.summary["system"]: finished_rpm(run) for run in experiment("nirvana-figure12")}
figure, panel = plt.subplots(figsize=(6, 3.2))
for system, label, dash in (("nirvana", "LCBFU, 1.5M items", "-"), ("nirvana-unbounded", "no eviction", ":")):
    panel.plot(np.linspace(0.025, 0.975, 20), figure12[system] / figure12["vanilla"], dash, label=label)
panel.axhline(paper["N05"], color=EDGE, linestyle="--", label="paper's mean")
panel.set(xlabel="Share of the stream", ylabel="Throughput over vanilla's")
panel.legend()
plt.show()

# %% [markdown]
# ## Figure 13: cost of an image

# %%
cost_usd = experiment("nirvana-figure13").metrics.set_index("system")["cost_usd_per_image"]
print(cost_usd.round(5).to_dict(), "USD per image")
print(f"saved: {1 - cost_usd['nirvana'] / cost_usd['vanilla']:.3f}, the paper {paper['N03c']}")

# %% [markdown]
# ## Figure 15: hits and savings by skipped steps K
# Bars are the compute saved at each K. The line is h(K), the share of requests that skip at least K steps.

# %%
(run,) = experiment("nirvana-figure15")
hits = run.summary["cache"]["hits"] / run.summary["requests"]["arrived"]
by_k = pd.Series(run.summary["cache"]["hit_share_by_k"]).rename(int).sort_index() * hits
figure, panel = plt.subplots(figsize=(6, 3.2))
panel.bar(by_k.index, by_k * by_k.index / 50, width=3, label="compute saved at K")
panel.plot(by_k[::-1].cumsum(), "s-", color=COLOURS[1], label="h(K)")
panel.axhline(paper["N04a"], color=EDGE, linestyle="--", linewidth=1, label="paper: hit rate, saving")
panel.axhline(paper["N03a"], color=EDGE, linestyle="--", linewidth=1)
panel.set(xlabel="K", xticks=by_k.index)
panel.legend()
plt.show()

# %% [markdown]
# ## Figure 16: latency with and without the match predictor
# `plot` draws the figures of `mezzotint report`.

# %%
experiment("nirvana-figure16").plot.latency()

# %% [markdown]
# ## Figure 17: what the latency is made of
# Means over all requests, in seconds.

# %%
parts = ["search_s", "fetch_s", "denoise_s", "decode_s"]
figure17 = experiment("nirvana-figure17")
pd.DataFrame({run.summary["system"]: run.requests[parts].mean() for run in figure17}).T.round(3)
