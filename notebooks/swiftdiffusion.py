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
# Figures 2, 7, 11, 12, 15 and 16. Each simulated one is an experiment of `conf/experiment`, and `mezzotint.sweep` runs
# it. Finished runs are kept and read the next time. `results/swiftdiffusion.md` lays the stages beside Katz's logs, and
# `results/scorecard.md` says what the numbers rest on.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from IPython.display import display

import mezzotint
from mezzotint.figures.palette import COLOURS, EDGE, GREY, STYLE
from mezzotint.sim.papers.addons import curves, draw_caches
from mezzotint.sim.papers.scorecard.measures.swiftdiffusion import gpus_held, gustafson

# %% tags=["parameters"]
work = "results/runs/notebooks"  # where finished runs are kept
jobs = 1  # worker processes

# %%
# %matplotlib inline
plt.rcParams.update({**STYLE, "figure.dpi": 80, "figure.constrained_layout.use": True})
SYSTEMS = ("diffusers", "nirvana-10", "nirvana-20", "distrifusion-add-ons", "swiftdiffusion", "katz")
LOOK = {"no-addon": GREY, **dict(zip(SYSTEMS, COLOURS, strict=False))}


def experiment(name: str) -> pd.DataFrame:
    """Return the table of an experiment's runs, with its settings as the papers write them (2C/1L)."""
    runs = mezzotint.sweep(f"experiment=swiftdiffusion-{name}", folder=f"{work}/swiftdiffusion-{name}", jobs=jobs)
    add_ons = pd.DataFrame([run.config["trace"] for run in runs])[["controlnets", "loras"]]
    setting = [f"{nets}C/{loras}L" for nets, loras in add_ons.to_numpy()]
    return runs.metrics.join(add_ons).assign(setting=setting)


def bars(table: pd.DataFrame, metric: str, title: str) -> None:
    """Draw a group of bars for each setting, a bar for each system."""
    values = table.pivot_table(index="setting", columns="system", values=metric)
    values = values[[system for system in LOOK if system in values]]
    values.plot.bar(figsize=(12, 3.6), rot=0, width=0.85, color=LOOK, edgecolor=EDGE, linewidth=0.4, xlabel="")
    plt.ylabel(title)
    plt.legend(ncols=7, loc="lower left", bbox_to_anchor=(0, 1))
    plt.show()


# %% [markdown]
# ## Figure 7: what caches on a node still load
# ControlNets stop being loaded once some five of them stay. A larger cache hardly helps LoRAs: ControlNets are few, and
# different LoRAs grow with the requests of a node (Figure 8). The measured points are Katz's artifact. The simulated
# curves use only what Figure 8 says of a node.

# %%
found = curves(share=0.1)  # of the nodes and requests that there were
figure = draw_caches(found)
figure.set_dpi(72)
display(figure)
for curve in found:
    pairs = ", ".join(f"{size}: {curve.at(size):.2f} ({load:.2f})" for size, load in curve.measured.items())
    print(f"Service {curve.service}, {curve.kind}, loads by size, simulated (measured): {pairs}")

# %% [markdown]
# ## Figures 2 and 11: latency by add-ons, one request at a time
# All systems but SwiftDiffusion and Katz load ControlNets for every request, as the artifact counts it.

# %%
one = pd.concat([experiment("figure11"), experiment("figure11-baselines")])
bars(one, "latency_mean_s", "latency [s]")

# %% [markdown]
# ## Figure 12: throughput of a GPU, one request at a time
# Images for a minute of GPU time. All GPUs that a request holds count.

# %%
held = [gpus_held(system, nets) for system, nets in zip(one["system"], one["controlnets"], strict=True)]
bars(one.assign(rpm=60 / (one["latency_mean_s"] * held)), "rpm", "images per GPU minute")

# %% [markdown]
# ## The same under load
# More requests than eight GPUs can serve. ControlNets that stay in memory are loaded once. Unmerging LoRAs now costs
# throughput, and so do GPUs that no worker group can use: Katz with two ControlNets leaves two of eight idle.

# %%
loaded = experiment("load")
bars(loaded.assign(rpm=loaded["throughput_rpm"] / 8), "rpm", "images per minute and GPU")

# %% [markdown]
# ## Figure 15: the base model without each kernel

# %%
experiment("figure15").set_index("kernels.names")[["latency_mean_s"]].round(2)

# %% [markdown]
# ## Figure 16, left, and Gustafson's law
# ControlNets as services alone. The law takes encoder and ControlNets for equally long and messages for free.

# %%
services = experiment("figure16-controlnets").pivot_table(
    index="controlnets", columns="system", values="latency_mean_s"
)
serial = 1 - 0.02518 / 0.05423  # of a step, the decoder: backends/profiles/h800_sdxl.yaml
_, axes = plt.subplots(figsize=(7, 3.2))
axes.plot(range(4), [gustafson(serial, 1 - serial, nets + 1) for nets in range(4)], color=GREY, label="Gustafson's law")
axes.plot(services["diffusers"] / services["swiftdiffusion"], "o", color=LOOK["swiftdiffusion"], label="simulated")
axes.plot([3], [2.2], "x", color=EDGE, label="paper")
axes.set(xticks=range(4), xlabel="ControlNets", ylabel="times faster")
axes.legend()
plt.show()

# %% [markdown]
# ## Figure 16, right: the LoRA design alone

# %%
bars(experiment("figure16-loras"), "latency_mean_s", "latency [s]")

# %% [markdown]
# ## Slow storage: who waits at step 20
# Katz at 1C/2L, with the load times of a bad day from its log: 41 % waited over 0.1 s, and the 95th percentile was
# 2.5 s.

# %%
slow = mezzotint.run("experiment=swiftdiffusion-slow-storage")
print({name: slow.summary["addons"][name] for name in ("stalled_share", "stall_s")})
waits_s = np.sort(slow.requests["stall_s"][slow.config["warmup"] :])
_, axes = plt.subplots(figsize=(7, 3.2))
axes.plot(waits_s, np.arange(1, len(waits_s) + 1) / len(waits_s), color=LOOK["katz"])
axes.set(xlabel="wait for LoRAs [s]", ylabel="share of requests")
plt.show()
