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
# # SwiftDiffusion's evaluation, simulated
#
# Figures 2, 7, 8, 11, 12, 15 and 16, from the experiments in `conf/experiment` and the synthetic services A and B.
# Stage by stage beside Katz's logs: `results/swiftdiffusion.md`. What the numbers rest on: `results/scorecard.md`.

# %%
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from conf.palette import COLOURS, EDGE, GREY, STYLE, plain_numbers
from sim.core.streams import stream
from sim.papers.addons.caches import curves
from sim.papers.addons.page import draw
from sim.papers.scorecard.measures.swiftdiffusion import SETTINGS, gustafson, latency_s, per_gpu_rpm
from sim.papers.scorecard.runs.finished import Runs
from sim.papers.scorecard.runs.points import sweep
from sim.papers.scorecard.runs.runner import finish
from sim.report.figures.display import show
from traces.synthetic.addons import service
from traces.synthetic.published import published

# %% tags=["parameters"]
work = "results/runs/scorecard"  # where finished runs are kept
jobs = 1  # worker processes

# %%
mpl.rcParams.update(dict(STYLE))
SYSTEMS = ("diffusers", "nirvana-10", "nirvana-20", "distrifusion-add-ons", "swiftdiffusion", "katz")
LOOK = dict(zip(SYSTEMS, COLOURS, strict=False))


def experiment(*names: str) -> Runs:
    """The runs of some experiments, made where they are not there yet."""
    return finish([point for name in names for point in sweep(name)], Path(work), jobs)


def bars(values: dict[str, list[float]], labels: list[str], what: str) -> None:
    """A group of bars for each label, a bar for each system."""
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    axes = figure.subplots()
    width = 0.85 / len(values)
    for n, (system, heights) in enumerate(values.items()):
        at = np.arange(len(labels)) + (n - (len(values) - 1) / 2) * width
        axes.bar(at, heights, width, color=LOOK.get(system, GREY), edgecolor=EDGE, linewidth=0.4, label=system)
    axes.set_xticks(range(len(labels)), labels)
    axes.set_ylabel(what)
    axes.legend(ncols=4, loc="upper left")
    show(figure)


# %% [markdown]
# ## Figure 7: what caches on a node still load
# ControlNets stop being loaded once some five of them stay; a larger cache hardly helps LoRAs. Measured points: Katz's
# artifact. The made curves predict them from what Figure 8 says of a node; nothing of Figure 7 was used.

# %%
share = 0.1  # of the nodes and requests that there were
found = curves(share=share)
show(draw(found))
for curve in found:
    pairs = ", ".join(f"{size}: {curve.at(size):.2f} ({load:.2f})" for size, load in curve.measured.items())
    print(f"Service {curve.service}, {curve.kind}, loads by size, made (measured): {pairs}")

# %% [markdown]
# ## Figure 8: different add-ons on a node
# The mean over the nodes, as requests come. ControlNets are few; different LoRAs grow with the requests.


# %%
def different(name: str) -> dict[str, list[float]]:
    """Different add-ons on a node after so many of its requests, the mean over nodes that saw as many."""
    law = dict(published("services")[name])
    law["nodes"] = max(1, round(law["nodes"] * share))
    drawn = service(law, name).draw(int(COUNTS[-1] * law["nodes"] * 2), stream(1, f"service {name}"))
    by_node = [np.flatnonzero(drawn.node == node) for node in np.unique(drawn.node)]
    grown: dict[str, list[float]] = {}
    for kind in ("controlnets", "loras"):
        sets = [[set(getattr(drawn, kind)[row]) for row in rows] for rows in by_node]
        grown[kind] = [
            float(np.mean([len(set[str]().union(*asked[:count])) for asked in sets if len(asked) >= count]))
            for count in COUNTS
        ]
    return grown


COUNTS = (10, 30, 100, 300, 1000)
figure = Figure(figsize=(9, 3.2), layout="constrained")
for axes, name in zip(figure.subplots(1, 2), ("A", "B"), strict=True):
    for (kind, counts), colour in zip(different(name).items(), COLOURS, strict=False):
        axes.plot(COUNTS, counts, "o-", color=colour, label=kind)
        said = ", ".join(f"{count:.0f} of {requests}" for count, requests in zip(counts, COUNTS, strict=True))
        print(f"Service {name}, different {kind} on a node: {said}")
    axes.set(xscale="log", yscale="log", title=f"Service {name}", xlabel="requests of the node")
    axes.set_ylabel("different add-ons")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(plain_numbers())
    axes.legend()
show(figure)

# %% [markdown]
# ## Figures 2 and 11: latency by add-ons, one request at a time
# ControlNets are loaded for every request but by services, as the artifact counts it.

# %%
alone = experiment("swiftdiffusion-figure11", "swiftdiffusion-figure11-baselines")
labels = [f"{nets}C/{loras}L" for nets, loras in SETTINGS]
bars({name: [latency_s(alone, name, *at) for at in SETTINGS] for name in SYSTEMS}, labels, "latency [s]")

# %% [markdown]
# ## Figure 12: throughput of a GPU, one request at a time
# Images for a minute of GPU time, all GPUs that a request holds counted.

# %%
bars({name: [per_gpu_rpm(alone, name, *at) for at in SETTINGS] for name in SYSTEMS}, labels, "images per GPU minute")

# %% [markdown]
# ## The same under load
# More requests than eight GPUs can serve; ControlNets that stay in memory are loaded once. Taking LoRAs out now costs
# throughput, and so do GPUs that no gang can use: Katz with two ControlNets leaves two of eight idle.

# %%
loaded = experiment("swiftdiffusion-load")
pairs = [(nets, loras) for nets in range(4) for loras in (0, 2)]
busy = {
    name: [loaded.where(system=name, controlnets=nets, loras=loras).mean("throughput_rpm") / 8 for nets, loras in pairs]
    for name in ("no-addon", *SYSTEMS)
}
bars(busy, [f"{nets}C/{loras}L" for nets, loras in pairs], "images per minute and GPU")

# %% [markdown]
# ## Figure 15: the base model without each kernel

# %%
kernels = list(experiment("swiftdiffusion-figure15"))
for run in kernels:
    print(f"{run.config['kernels']['names']}: {run.number('latency_s', 'mean'):.2f} s")

# %% [markdown]
# ## Figure 16, left, and Gustafson's law
# ControlNets as services alone. The law takes encoder and ControlNets for equally long and messages for free.

# %%
services = experiment("swiftdiffusion-figure16-controlnets")
s = 1 - 0.02518 / 0.05423  # of a step, the decoder: backends/profiles/h800_sdxl.yaml
took = {
    name: [services.where(system=name, controlnets=nets).mean("latency_s", "mean") for nets in range(4)]
    for name in ("diffusers", "swiftdiffusion")
}
figure = Figure(figsize=(7, 3.2), layout="constrained")
axes = figure.subplots()
axes.plot(range(4), [gustafson(s, 1 - s, nets + 1) for nets in range(4)], color=GREY, label="Gustafson's law")
axes.plot(
    range(4), np.divide(took["diffusers"], took["swiftdiffusion"]), "o", color=LOOK["swiftdiffusion"], label="simulated"
)
axes.plot([3], [2.2], "x", color=EDGE, label="paper")
axes.set_xticks(range(4))
axes.set_xlabel("ControlNets")
axes.set_ylabel("times faster")
axes.legend()
show(figure)

# %% [markdown]
# ## Figure 16, right: the LoRA design alone

# %%
adapters = experiment("swiftdiffusion-figure16-loras")
bars(
    {
        name: [adapters.where(system=name, loras=loras).mean("latency_s", "mean") for loras in range(3)]
        for name in ("diffusers", "swiftdiffusion")
    },
    [f"0C/{loras}L" for loras in range(3)],
    "latency [s]",
)

# %% [markdown]
# ## Slow storage: who waits at step 20
# Katz at 1C/2L, with the times of loads of a bad day read off its log: 41 % waited over 0.1 s, the 95th percentile was
# 2.5 s.

# %%
(slow,) = experiment("swiftdiffusion-slow-storage")
waits = np.sort(slow.requests("stall_s")["stall_s"].to_numpy()[slow.config["warmup"] :])
print({name: slow.summary["addons"][name] for name in ("stalled_share", "stall_s")})
figure = Figure(figsize=(7, 3.2), layout="constrained")
axes = figure.subplots()
axes.plot(waits, np.arange(1, len(waits) + 1) / len(waits), color=LOOK["katz"])
axes.set_xlabel("wait for LoRAs [s]")
axes.set_ylabel("share of requests")
show(figure)
