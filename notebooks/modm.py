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
# Figures 6 to 18 of the paper, from the experiments in `conf/experiment`. Runs that `mezzotint reproduce` has finished
# are read, not made again. What the numbers rest on is in `results/scorecard.md`; Figure 19 needs the prompts of MJHQ.
#
# `modm.ipynb` is this page with its outputs. The `notebooks` extra has what running it needs.

# %%
from functools import partial
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from IPython.display import display
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from conf.palette import COLOURS, EDGE, GREY, STYLE, panels, plain_numbers
from sim.control.pid import Pid
from sim.control.split import demand, quality_split
from sim.papers.scorecard.measures.formulas import hits
from sim.papers.scorecard.measures.modm import FRESH_S, SIZES, SUSTAINED, by_rate, hits_by_tenth
from sim.papers.scorecard.runs.finished import Finished, Runs
from sim.papers.scorecard.runs.points import Point
from sim.papers.scorecard.runs.runner import finish
from sim.papers.scorecard.scorecard import load_study, runs_of
from sim.report.figures.display import show

# %% tags=["parameters"]
quick = False  # True: small traces, and only some of the figures
work = "results/runs/scorecard"  # where finished runs are kept
jobs = 1  # worker processes

# %%
mpl.rcParams.update(dict(STYLE))
card = load_study("modm", quick=quick)
paper = {target.id: target.paper for target in card.targets["modm"]}
SYSTEMS = ("vanilla", "nirvana", "modm-quality")
LOOK = dict(zip(SYSTEMS, COLOURS, strict=False))
experiment = partial(runs_of, card, work=Path(work), jobs=jobs, leave_out=quick)


def choice(run: Finished, key: str) -> str:
    """What the sweep chose for a run."""
    return run.point.choices.get(key, "")


# %% [markdown]
# ## Figures 7 and 8: throughput over vanilla's
# Under more requests than can be served; crosses are the paper's. NIRVANA and Pinecone have no small model.

# %%
PRINTED = {
    ("sd35l-sdxl", "nirvana"): "M08",
    ("sd35l-sdxl", "modm-throughput"): "M01",
    ("sd35l-sana", "modm-throughput"): "M02",
    ("flux-sdxl", "modm-throughput"): "M05",
    ("flux-sana", "modm-throughput"): "M06",
}
bars = []
for runs in (experiment("modm-figure7"), experiment("modm-figure8")):
    by_choice = {(choice(run, "models"), choice(run, "system")): run for run in runs.finished()}
    for (models, system), run in by_choice.items():
        one_of_two = system in ("vanilla", "nirvana", "pinecone") and models.endswith("sana")
        if system != "vanilla" and not one_of_two:
            vanilla = by_choice[models, "vanilla"].number("throughput_rpm")
            said = f"{system}\n{models}" if system == "modm-throughput" else f"{system}\n{models.partition('-')[0]}"
            bars.append((said, run.number("throughput_rpm") / vanilla, paper.get(PRINTED.get((models, system), ""))))
figure, axes = panels(1, width=9, height=3.2)
axes[0][0].bar([name for name, _, _ in bars], [ours for _, ours, _ in bars], color=COLOURS[0], label="ours")
marked = [(name, printed) for name, _, printed in bars if printed]
axes[0][0].plot(*zip(*marked, strict=True), "x", color=EDGE, markersize=9, label="paper")
axes[0][0].axhline(1, color=GREY, linewidth=1)
axes[0][0].set_ylabel("Throughput over vanilla's")
axes[0][0].legend()
show(figure)

# %% [markdown]
# ## Figure 18: energy of an image

# %%
rows = []
figure7 = experiment("modm-figure7")
for label, system, models, row in (
    ("nirvana", "nirvana", "sd35l-sdxl", "M22a"),
    ("modm, SDXL", "modm-throughput", "sd35l-sdxl", "M22b"),
    ("modm, SANA", "modm-throughput", "sd35l-sana", "M22c"),
):
    spent, full = (figure7.where(system=of, models=models).mean("energy_j", "per_image") for of in (system, "vanilla"))
    rows.append({"system": label, "saved, ours": 1 - spent / full, "paper": paper[row]})
pd.DataFrame(rows).set_index("system").round(3)

# %% [markdown]
# ## Figures 6 and 9: hits by size of the cache, by what is stored, and over the requests
# At the service's own rate on a cluster that never waits. Shades are the steps skipped; NIRVANA holds five latents for
# each image. The dashed line is the paper's rate for 100,000 images.

# %%
figure9, nirvana9 = experiment("modm-figure9"), experiment("modm-figure9-nirvana")
if figure9.outcomes and nirvana9.outcomes:
    kinds = [
        *(("everything stored", run) for n in SIZES for run in figure9.where(admission="cache-all", capacity=n)),
        *(("the large model's", run) for n in SIZES for run in figure9.where(admission="cache-large", capacity=n)),
        *(("nirvana", run) for n in SIZES for run in nirvana9.where(capacity=5 * n)),
    ]
    figure, axes = panels(2, width=11, height=3.8, share_y=False)
    left, right = axes[0]
    shades = mpl.colormaps["viridis"]
    bottom = np.zeros(len(kinds))
    for k in (5, 10, 15, 20, 25, 30):
        share = [hits(run) * (run.summary["cache"]["hit_share_by_k"] or {}).get(str(k), 0.0) for _, run in kinds]
        left.bar(range(len(kinds)), share, bottom=bottom, color=shades(1 - k / 32), label=f"K = {k}")
        bottom += np.array(share)
    left.set_xticks(range(len(kinds)), [f"{n // 1000}k" for _ in range(3) for n in SIZES])
    for place, (name, _) in enumerate(kinds):
        if place % 3 == 1:
            left.annotate(name, (place, 0), (0, -24), textcoords="offset points", ha="center", va="top")
    left.axhline(paper["M11"], color=EDGE, linestyle="--", linewidth=1)
    left.set_ylabel("Share of requests that hit")
    left.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.25))
    for n, colour in zip(SIZES[1:], COLOURS, strict=False):
        (run,) = figure9.where(admission="cache-all", capacity=n)
        right.plot(np.arange(5, 100, 10), hits_by_tenth(run), color=colour, marker="o", label=f"{n // 1000}k images")
    right.set_ylim(0, 1)
    right.set_xlabel("Share of the requests so far (%)")
    right.set_ylabel("Hit rate")
    right.legend()
    show(figure)

# %% [markdown]
# ## Figure 15: the age of the image that is found
# On the trace's own clock, which has the service's rate.

# %%
if figure9.outcomes:
    figure, axes = panels(1, width=6, height=3.2)
    for n, colour in zip(SIZES, COLOURS, strict=False):
        (run,) = figure9.where(admission="cache-all", capacity=n)
        age_h = np.sort(run.requests("source_age_trace_s")["source_age_trace_s"].drop_null().to_numpy()) / 3600
        axes[0][0].plot(age_h, np.linspace(0, 1, len(age_h)), color=colour, label=f"{n // 1000}k images")
    axes[0][0].plot(FRESH_S / 3600, paper["M23"], "x", color=EDGE, markersize=9, label="paper: at least")
    axes[0][0].set_xlabel("Age of the image (h)")
    axes[0][0].set_ylabel("Share of hits")
    axes[0][0].legend()
    show(figure)

# %% [markdown]
# ## Figures 10 and 17: a rate that rises, and one that goes up and down
# Requests that arrive and images that are finished, per minute, and beneath them the GPUs that serve each model.


# %%
def per_minute(run: Finished, name: str, width_s: float = 600.0) -> tuple[np.ndarray, np.ndarray]:
    """Events per minute in stretches of ``width_s``: hours of their middles, and how many."""
    at_s = run.requests(name)[name].drop_null().to_numpy()
    edges = np.arange(0, at_s.max() + width_s, width_s)
    return (edges[:-1] + width_s / 2) / 3600, np.histogram(at_s, edges)[0] * 60 / width_s


def over_time(runs: Runs) -> Figure:
    """Rates of all systems, and the model mix of MoDM's."""
    figure = Figure(figsize=(9, 5.2), layout="constrained")
    above, beneath = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    (modm,) = runs.where(system="modm-quality")
    above.plot(*per_minute(modm, "arrival_s"), color=GREY, linewidth=3, label="arriving")
    for name in SYSTEMS:
        (run,) = runs.where(system=name)
        above.plot(*per_minute(run, "finish_s"), color=LOOK[name], label=name)
    above.set_ylabel("Requests per minute")
    above.legend()
    names = {"gpus_large": "SD3.5 Large", "gpus_small": "SDXL", "gpus_smallest": "SANA"}
    table = modm.cluster("time_s", *names)
    hours, *counts = (table[name].to_numpy() for name in ("time_s", *names))
    hours = hours / 3600
    beneath.stackplot(hours, counts, labels=names.values(), colors=COLOURS[3:], step="post")
    beneath.set_ylabel("GPUs")
    beneath.set_xlabel("Time (h)")
    beneath.legend(loc="upper center", bbox_to_anchor=(0.5, -0.35), ncols=3)
    above.set_xlim(0, hours[-1])
    return figure


show(over_time(experiment("modm-figure10")))

# %%
show(over_time(experiment("modm-figure17")))

# %% [markdown]
# ## Figure 11: throughput of a GPU
# The same requests at the same times for 4 to 32 of them.

# %%
figure11 = experiment("modm-figure11")
if figure11.outcomes:
    counted = sorted(figure11, key=lambda run: run.number("gpu", "count"))
    gpus = [int(run.number("gpu", "count")) for run in counted]
    figure, axes = panels(2, width=9, height=3.2, share_y=False)
    axes[0][0].plot(gpus, [run.number("throughput_rpm") / n for run, n in zip(counted, gpus, strict=True)], marker="o")
    axes[0][1].plot(gpus, [hits(run) for run in counted], marker="o", color=COLOURS[1])
    for panel, title in ((axes[0][0], "Requests per minute and GPU"), (axes[0][1], "Hit rate")):
        panel.set_title(title)
        panel.set_xlabel("GPUs")
        panel.set_xscale("log", base=2)
        panel.set_xticks(gpus, [str(n) for n in gpus])
    show(figure)

# %% [markdown]
# ## Figures 12, 13 and 16: violations and the tail, by rate
# Means over the seeds, with the least and the most of them as a band. The dotted lines are what the paper says that
# MoDM sustains.


# %%
def band(panel: Axes, runs: Runs, name: str, *keys: str) -> None:
    """A number of one system against the rate."""
    at = by_rate(runs.where(system=name))
    rates, values = list(at), [[run.number(*keys) for run in seeds] for seeds in at.values()]
    panel.plot(rates, [np.mean(each) for each in values], color=LOOK[name], marker="o", markersize=3, label=name)
    panel.fill_between(rates, [min(v) for v in values], [max(v) for v in values], color=LOOK[name], alpha=0.2, lw=0)


def violations_by_rate(runs: Runs, sustained: dict[str, str]) -> Figure:
    """Violations of 2x and 4x, and the 99th percentile."""
    figure, axes = panels(3, width=11, height=3.4, share_y=False)
    for panel, slo in zip(axes[0], ("2x", "4x"), strict=False):
        for name in SYSTEMS:
            band(panel, runs, name, "slo", slo, "violation_rate")
        panel.axhline(SUSTAINED, color=GREY, linewidth=1)
        if slo in sustained:
            panel.axvline(paper[sustained[slo]], color=EDGE, linestyle=":", linewidth=1)
        panel.set_title(f"Share of requests over {slo}")
    for name in SYSTEMS:
        band(axes[0][2], runs, name, "latency_s", "p99")
    axes[0][2].set_yscale("log")
    axes[0][2].yaxis.set_major_formatter(plain_numbers())
    axes[0][2].yaxis.set_minor_formatter(NullFormatter())
    axes[0][2].set_title("99th percentile of latency (s)")
    for panel in axes[0]:
        panel.set_xlabel("Requests per minute")
    axes[0][0].legend()
    return figure


show(violations_by_rate(experiment("modm-figure12"), {"2x": "M16", "4x": "M17"}))

# %% [markdown]
# On four A40, whose times are fitted to where NIRVANA fails there:

# %%
a40 = experiment("modm-figure12-a40")
if a40.outcomes:
    show(violations_by_rate(a40, {"2x": "M15"}))

# %% [markdown]
# ## Figure 14: quality against throughput
# FID is what the paper measured for each system (its Table 2; lower is better), the time of an image is ours. The line
# joins what nothing else beats in both.

# %%
figure14 = experiment("modm-figure14")
if figure14.outcomes:
    points = [
        (f"{run.summary['system']}, {choice(run, 'models').rpartition('-')[2]}", run)
        if choice(run, "system") == "modm-throughput"
        else (run.summary["system"], run)
        for run in [*figure7, *figure14]
        if choice(run, "system") == "modm-throughput" or choice(run, "models") != "sd35l-sana"
    ]
    FID = {
        "vanilla": 6.29, "nirvana": 9.01, "pinecone": 14.18, "sdxl-alone": 16.29, "sana-alone": 19.96,
        "distilled": 14.63, "modm-throughput, sdxl": 11.85, "modm-throughput, sana": 16.96,
    }  # fmt: skip
    placed = sorted((60 / run.number("throughput_rpm"), FID[name], name) for name, run in points)
    best = [each for index, each in enumerate(placed) if all(each[1] < other[1] for other in placed[:index])]
    figure, axes = panels(1, width=7, height=4)
    axes[0][0].plot([s for s, _, _ in best], [fid for _, fid, _ in best], color=GREY, linewidth=1, label="Pareto front")
    for index, (seconds, fid, name) in enumerate(placed):
        axes[0][0].plot(seconds, fid, "o", color=COLOURS[index % len(COLOURS)])
        axes[0][0].annotate(name, (seconds, fid), (5, 4), textcoords="offset points")
    axes[0][0].set_xlabel("Seconds per image on 16 MI210 (1 / throughput)")
    axes[0][0].set_ylabel("FID, as published")
    axes[0][0].set_ylim(0)
    axes[0][0].margins(x=0.2)
    axes[0][0].legend()
    show(figure)

# %% [markdown]
# ## The monitor itself
# Left: large models that the PID allocates, window by window, after the target fell from 16 to 11 or rose back; the
# artifact's gains, a window of three minutes. Right: the large models of quality mode at each rate, at 75 % hits that
# run three quarters of the steps, with SDXL or SANA for hits.

# %%
figure, axes = panels(2, width=9, height=3.2, share_y=False)
for start, target, colour in ((16, 11, COLOURS[0]), (4, 11, COLOURS[1])):
    pid = Pid()
    pid.x = float(start)
    states = [float(start), *(pid.update(target, 3.0, 16.0) for _ in range(14))]
    allocated = [min(max(round(x), 1), 16) for x in states]
    axes[0][0].step(range(15), allocated, where="post", color=colour, label=f"from {start} to {target}: allocated")
    axes[0][0].plot(range(15), states, color=colour, linestyle=":", linewidth=1)
    beyond = max((x - target) * (1 if start < target else -1) for x in states)
    settled = max(n for n, x in enumerate(allocated) if x != target) + 1
    print(f"from {start} to {target}: {beyond:.2f} beyond it at most, settled after {settled} windows")
axes[0][0].set_xlabel("Windows of 180 s")
axes[0][0].set_ylabel("Large models")
axes[0][0].legend()
rates = np.arange(6, 34)
for name, seconds, colour in (("SDXL", 16.5, COLOURS[3]), ("SANA", 6.5, COLOURS[4])):
    split = [quality_split(16, demand(rate, 0.75, 0.75), 60 / 91.5, 60 / seconds, 0.9) for rate in rates]
    axes[0][1].step(rates, [np.nan if n is None else n for n in split], where="mid", color=colour, label=name)
axes[0][1].set_xlabel("Requests per minute")
axes[0][1].set_ylabel("Large models of 16")
axes[0][1].legend()
show(figure)

# %% [markdown]
# ## Beyond the paper: looking ahead, and hindsight
# The second day of a load that follows the hour; the first is for learning. Hindsight knows what came, and is a
# yardstick: the splits that a search found best for what the monitor's own run recorded.

# %%
controllers = experiment("modm-controllers")
if controllers.outcomes:
    (monitor,) = controllers.where(controller="modm-quality")
    words = [
        word if word != "controller=modm-quality" else f"controller=modm-hindsight controller.folder={monitor.folder}"
        for word in monitor.point.overrides
    ]
    best = Point("modm-controllers", {"controller": "modm-hindsight"}, tuple(" ".join(words).split()))
    rows = []
    for run in [*controllers, *finish([best], Path(work), jobs)]:
        table = run.cluster("seconds", "gpus_large")
        large_s = float(np.sum(table["seconds"].to_numpy() * table["gpus_large"].to_numpy()))
        rows.append(
            {
                "controller": choice(run, "controller"),
                "over 2x": run.number("slo", "2x", "violation_rate"),
                "over 4x": run.number("slo", "4x", "violation_rate"),
                "p99 [s]": run.number("latency_s", "p99"),
                "GPU-hours on the large model": large_s / 3600,
                "GPU-hours at work": run.number("gpu", "busy_fraction")
                * float(table["seconds"].to_numpy().sum())
                * run.number("gpu", "count")
                / 3600,
                "switches": run.number("gpu", "switches"),
            }
        )
    display(pd.DataFrame(rows).set_index("controller").round(3))
