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
# # MoDM's evaluation, simulated
#
# Figures 6 to 18 of the paper. Each is an experiment of `conf/experiment`, and `mezzotint.sweep` runs it. Finished runs
# are kept and read the next time. `results/scorecard.md` says what the numbers rest on. Figure 19 needs the prompts of
# MJHQ.
#

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import mezzotint
from mezzotint.figures.palette import COLOURS, EDGE, GREY, STYLE, plain_numbers
from mezzotint.sim.papers.scorecard.study import load_study

# %% tags=["parameters"]
quick = True  # shorter traces for Figures 6 to 9, 14 and 15, one seed and fewer rates by rate, fewer GPUs at the end
work = "results/runs/notebooks"  # where finished runs are kept
jobs = 1  # worker processes

# %%
# %matplotlib inline
plt.rcParams.update({**STYLE, "axes.prop_cycle": plt.cycler(color=COLOURS)})
plt.rcParams.update({"figure.dpi": 80, "figure.constrained_layout.use": True})
paper = {target.id: target.paper for target in load_study("modm", quick=False).targets["modm"]}
SYSTEMS = ["vanilla", "nirvana", "modm-quality"]
SERVED = "trace.requests=14000"  # the first 10,000 fill the cache
CACHES = ("trace.requests=18000", "warmup=3000")
QUICK = {
    "modm-figure7": (SERVED,),
    "modm-figure8": (SERVED,),
    "modm-figure9": (*CACHES, "cache.capacity=1000,10000"),
    "modm-figure9-nirvana": (*CACHES, "cache.capacity=5000,50000"),
    "modm-figure12": ("seed=1", "arrivals.rate_rpm=6,12,18,22,26,32"),
    "modm-figure12-a40": ("seed=1", "arrivals.rate_rpm=2,5,8,11"),
    "modm-figure14": (SERVED,),
    "modm-controllers": (
        "cluster.count=4", "arrivals.rate_rpm=5", "trace.requests=15500", "preload=2500", "warmup=7200",
    ),
}  # fmt: skip


def experiment(name: str, *more: str) -> mezzotint.Sweep:
    """Return the runs of an experiment, with what ``more`` overrides."""
    overrides = QUICK.get(name, ()) if quick else ()
    folder = f"{work}/{name}{'-more' if more else ''}{'-quick' if overrides else ''}"
    return mezzotint.sweep(f"experiment={name}", *overrides, *more, folder=folder, jobs=jobs)


# %% [markdown]
# ## Figures 7 and 8: throughput over vanilla's
# More requests arrive than can be served. Crosses are the paper's. NIRVANA and Pinecone have no small model, so they
# stand beside SDXL alone.

# %%
figure7, figure8 = experiment("modm-figure7"), experiment("modm-figure8")
both = pd.concat([figure7.metrics, figure8.metrics])
rpm = both.pivot_table(index="models", columns="system", values="throughput_rpm", sort=False)
relative = rpm.div(rpm["vanilla"], axis="index").drop(columns="vanilla")
relative.loc["sd35l-sana", ["nirvana", "pinecone"]] = np.nan
printed = {
    "nirvana": {"sd35l-sdxl": "M08"},
    "modm-throughput": dict(zip(relative.index, ("M01", "M02", "M05", "M06"), strict=True)),
}
panel = relative.plot.bar(figsize=(8, 3.2), rot=0, width=0.8, xlabel="", ylabel="Throughput over vanilla's")
for system, bars in zip(relative, panel.containers, strict=True):
    for models, bar in zip(relative.index, bars, strict=True):
        if models in printed.get(system, {}):
            panel.plot(bar.get_x() + bar.get_width() / 2, paper[printed[system][models]], "x", color=EDGE, markersize=9)
panel.axhline(1, color=GREY, linewidth=1)
panel.legend(loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()

# %% [markdown]
# ## Figure 18: energy of an image

# %%
energy_j = figure7.metrics.pivot_table(index="models", columns="system", values="energy_j_per_image")
saved = 1 - energy_j.div(energy_j["vanilla"], axis="index")
rows = {
    "nirvana": (saved.loc["sd35l-sdxl", "nirvana"], paper["M22a"]),
    "modm, SDXL": (saved.loc["sd35l-sdxl", "modm-throughput"], paper["M22b"]),
    "modm, SANA": (saved.loc["sd35l-sana", "modm-throughput"], paper["M22c"]),
}
pd.DataFrame(rows, index=["saved, ours", "paper"]).T.round(3)

# %% [markdown]
# ## Figures 6 and 9: hits by size of the cache, and by what is stored
# The service's own rate, on a cluster that never waits. Shades are the skipped steps K. NIRVANA holds five latents for
# each image. The dashed line is the paper's rate for 100,000 images.

# %%
figure9, nirvana9 = experiment("modm-figure9"), experiment("modm-figure9-nirvana")
shares = {}
for run in (*figure9, *nirvana9):
    stored = {"cache-all": "everything", "cache-large": "large model's"}.get(run.choices.get("admission"), "nirvana")
    images = run.choices["cache.capacity"] // (5 if stored == "nirvana" else 1)
    by_k = pd.Series(run.summary["cache"]["hit_share_by_k"]).rename(int) * run.summary["cache"]["hit_rate"]
    shares[f"{stored}\n{images:,}"] = by_k
by_k = pd.DataFrame(shares).sort_index().T.add_prefix("K = ")
panel = by_k.plot.bar(stacked=True, colormap="viridis_r", rot=0, figsize=(9, 3.6), ylabel="Share of requests that hit")
panel.axhline(paper["M11"], color=EDGE, linestyle="--", linewidth=1)
panel.legend(loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()

# %% [markdown]
# ## Figures 9 and 15: hits over the requests, and the age of the image that is found
# `requests` of a run has a row for each request. Ages are on the trace's own clock, which has the service's rate.

# %%
_, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4))
for run in figure9.where(admission="cache-all"):
    label = f"{run.choices['cache.capacity']:,} images"
    tenths = np.array_split(run.requests["skipped"] > 0, 10)
    left.plot(np.arange(5, 100, 10), [part.mean() for part in tenths], "o-", label=label)
    age_h = np.sort(run.requests["source_age_trace_s"].dropna()) / 3600
    right.plot(age_h, np.linspace(0, 1, len(age_h)), label=label)
left.set(xlabel="Share of the requests so far (%)", ylabel="Hit rate", ylim=(0, 1))
left.legend()
right.plot(4, paper["M23"], "x", color=EDGE, markersize=9, label="paper, 100,000 images: at least")
right.set(xlabel="Age of the image (h)", ylabel="Share of hits", ylim=(0, 1.02))
right.legend()
plt.show()

# %% [markdown]
# ## Figures 10 and 17: a rate that rises, and one that goes up and down
# Requests that arrive and images that are finished. Below are the GPUs that hold each model under MoDM, and the GPUs
# at work and the requests that wait.


# %%
def per_minute(run: mezzotint.Run, column: str, width_s: float = 600.0) -> pd.Series:
    """Return events per minute in stretches of ``width_s``, by the hour of their middles."""
    at_s = run.requests[column].dropna()
    edges = np.arange(0, at_s.max() + width_s, width_s)
    return pd.Series(np.histogram(at_s, edges)[0] * 60 / width_s, (edges[:-1] + width_s / 2) / 3600)


def rates(runs: mezzotint.Sweep) -> None:
    """Draw the rates of all systems, and the models of MoDM's GPUs."""
    _, (above, below) = plt.subplots(2, 1, figsize=(9, 5.2), sharex=True, height_ratios=(2, 1))
    (modm,) = runs.where(system="modm-quality")
    per_minute(modm, "arrival_s").plot(ax=above, color=GREY, linewidth=3, label="arriving")
    for system in SYSTEMS:
        (run,) = runs.where(system=system)
        per_minute(run, "finish_s").plot(ax=above, label=system, ylabel="Requests per minute")
    above.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=4)
    gpus = modm.time_series.set_index(modm.time_series["time_s"] / 3600)
    models = {"gpus_large": "SD3.5 Large", "gpus_small": "SDXL", "gpus_smallest": "SANA"}
    below.stackplot(gpus.index, gpus[[*models]].T, labels=models.values(), colors=COLOURS[3:], step="post")
    below.set(xlabel="Time (h)", ylabel="GPUs", xlim=(0, gpus.index[-1]))
    below.legend(loc="upper center", bbox_to_anchor=(0.5, -0.35), ncols=3)
    plt.show()


figure10 = experiment("modm-figure10")
rates(figure10)

# %%
figure10.plot.over_time()

# %%
rates(experiment("modm-figure17"))

# %% [markdown]
# ## Figure 11: throughput of a GPU
# The same requests at the same times for 4 to 32 GPUs.

# %%
figure11 = experiment("modm-figure11").metrics.set_index("cluster.count")
by_gpus = pd.DataFrame(
    {"Requests per minute and GPU": figure11["throughput_rpm"] / figure11.index, "Hit rate": figure11["hit_rate"]}
)
by_gpus.plot(
    subplots=True, layout=(1, 2), figsize=(9, 2.8), style="o-", legend=False, title=[*by_gpus], xlabel="GPUs",
    xticks=by_gpus.index,
)  # fmt: skip
plt.show()

# %% [markdown]
# ## Figures 12, 13 and 16: violations and the tail, by rate
# Dotted lines are the rates that MoDM sustains by the paper.


# %%
def violations(runs: mezzotint.Sweep, sustained: dict[str, str]) -> None:
    """Draw violations of 2x and 4x, and the 99th percentile: the mean over seeds, their range as a band."""
    _, axes = plt.subplots(1, 3, figsize=(11, 3.2))
    titles = {
        "over_2x": "Share of requests over 2x",
        "over_4x": "Share of requests over 4x",
        "latency_p99_s": "99th percentile of latency (s)",
    }
    for panel, (metric, title) in zip(axes, titles.items(), strict=True):
        seeds = runs.metrics.pivot_table(
            index="arrivals.rate_rpm", columns="system", values=metric, aggfunc=["mean", "min", "max"]
        )
        seeds["mean"][SYSTEMS].plot(ax=panel, style="o-", markersize=3, title=title, legend=panel is axes[0])
        for system, line in zip(SYSTEMS, panel.get_lines(), strict=True):
            low, high = seeds["min"][system], seeds["max"][system]
            panel.fill_between(seeds.index, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
        panel.set_xlabel("Requests per minute")
        if metric in sustained:
            panel.axvline(paper[sustained[metric]], color=EDGE, linestyle=":", linewidth=1)
    axes[2].set_yscale("log")
    axes[2].yaxis.set_major_formatter(plain_numbers())
    plt.show()


violations(experiment("modm-figure12"), {"over_2x": "M16", "over_4x": "M17"})

# %% [markdown]
# On four A40, whose times are fitted to where NIRVANA fails there:

# %%
violations(experiment("modm-figure12-a40"), {"over_2x": "M15"})

# %% [markdown]
# ## Figure 14: quality against throughput
# FID is what the paper measured for each system (its Table 2; lower is better). The time of an image is ours.

# %%
FID = {
    ("vanilla", "sdxl"): 6.29, ("nirvana", "sdxl"): 9.01, ("pinecone", "sdxl"): 14.18,
    ("modm-throughput", "sdxl"): 11.85, ("modm-throughput", "sana"): 16.96,
    ("sdxl-alone", ""): 16.29, ("sana-alone", ""): 19.96, ("distilled", ""): 14.63,
}  # fmt: skip
figure14 = pd.concat([figure7.metrics, experiment("modm-figure14").metrics])
figure, panel = plt.subplots(figsize=(7, 4))
for run in figure14.fillna({"models": ""}).itertuples():
    small = run.models.partition("-")[2]
    if (run.system, small) in FID:
        seconds, fid = 60 / run.throughput_rpm, FID[run.system, small]
        panel.plot(seconds, fid, "o")
        name = f"{run.system}, {small}" if run.system == "modm-throughput" else run.system
        below = name in ("sdxl-alone", "distilled")
        panel.annotate(name, (seconds, fid), (5, -11 if below else 4), textcoords="offset points")
panel.set(xlabel="Seconds per image on 16 MI210 (1 / throughput)", ylabel="FID, as published", ylim=(0, None))
panel.margins(x=0.2)
plt.show()

# %% [markdown]
# ## Beyond the paper: looking ahead, and hindsight
# The second day of a load that follows the hour (quick: on a quarter of the GPUs). The first day trains the forecast.
# Hindsight is a yardstick: it uses the model mixes that a search found best for what the monitor's own run recorded.

# %%
controllers = experiment("modm-controllers")
(monitor,) = controllers.where(controller="modm-quality")
hindsight = experiment("modm-controllers", "controller=modm-hindsight", f"controller.folder={monitor.folder.resolve()}")
rows = {}
for run in (*controllers, *hindsight):
    cluster, gpu = run.time_series, run.summary["gpu"]
    rows[run.choices["controller"]] = {
        "over 2x": run.summary["slo"]["2x"]["violation_rate"],
        "over 4x": run.summary["slo"]["4x"]["violation_rate"],
        "p99 [s]": run.summary["latency_s"]["p99"],
        "GPU-hours on the large model": (cluster["seconds"] * cluster["gpus_large"]).sum() / 3600,
        "GPU-hours at work": gpu["busy_fraction"] * gpu["count"] * cluster["seconds"].sum() / 3600,
        "switches": gpu["switches"],
    }
pd.DataFrame(rows).T.round(3)
