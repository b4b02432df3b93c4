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
# # PatchedServe's evaluation, simulated
#
# Figures 5 and 11 to 15 of the paper. Each is an experiment of `conf/experiment`, and `mezzotint.sweep` runs it.
# Finished runs are kept and read the next time.
#
# The paper prints few numbers of its H100. The profiles of SDXL and SD3 are assumed from those (`mezzotint list
# profiles`), and so is what reuse saves. The paper's rates are in its figures alone. Ours go from a light load to more
# than any system sustains.

# %%
import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes

import mezzotint
from mezzotint.figures.palette import COLOURS, STYLE

# %% tags=["parameters"]
quick = True  # one seed in Figures 11 to 13; False: two or three
work = "results/runs/notebooks"  # where finished runs are kept
jobs = 1  # worker processes

# %%
# %matplotlib inline
plt.rcParams.update({**STYLE, "axes.prop_cycle": plt.cycler(color=COLOURS)})
plt.rcParams.update({"figure.dpi": 80, "figure.constrained_layout.use": True})
MODELS = {"sdxl": "SDXL", "sd3-medium": "SD3"}
SEEDS = ("seed=1",) if quick else ()
SYSTEMS = ("patchedserve", "patched-cache", "nirvana-orca", "orca", "distrifusion", "vanilla")


def experiment(name: str, *overrides: str, folder: str = "") -> mezzotint.Sweep:
    """Return the runs of an experiment."""
    place = f"{work}/patchedserve-{folder or name}{'-quick' if quick else ''}"
    return mezzotint.sweep(f"experiment=patchedserve-{name}", *overrides, folder=place, jobs=jobs)


def in_time(panel: Axes, runs: mezzotint.Sweep, title: str) -> None:
    """Draw the share in time by requests per second: the mean over the seeds, their range as a band."""
    table = runs.metrics.assign(rate=runs.metrics["arrivals.rate_rpm"] / 60, share=100 * (1 - runs.metrics["over_5x"]))
    seeds = table.pivot_table(index="rate", columns="system", values="share", aggfunc=["mean", "min", "max"])
    for system, colour in zip(SYSTEMS, COLOURS, strict=False):
        if system in seeds["mean"]:
            panel.plot(seeds["mean"][system], "o-", color=colour, label=system)
            panel.fill_between(seeds.index, seeds["min"][system], seeds["max"][system], color=colour, alpha=0.2, lw=0)
    panel.set(title=title, xlabel="Requests per second", ylabel="In time [%]", ylim=(-3, 103))


def batches(runs: mezzotint.Sweep) -> pd.DataFrame:
    """Return the seconds that the steps of each run's only batch took, beside what the sweep chose."""
    return pd.DataFrame([{**run.choices, "batch_s": run.requests["denoise_s"].max()} for run in runs])


# %% [markdown]
# ## Figure 5: batches of three
# In patches, without reuse. S, M and L are 512, 768 and 1024 pixels. The paper's only number is that three large take
# 68 % longer than three small. Its order is that a third size can cost more than pixels (SML over MML).

# %%
figure5 = experiment("figure5")
LETTERS = {512: "S", 768: "M", 1024: "L"}
sizes = ["".join(LETTERS[shape[0]] for shape in run.config["trace"]["shapes"]) for run in figure5]
steps = batches(figure5).assign(sizes=sizes).pivot_table(index="sizes", columns="models", values="batch_s", sort=False)
(20 * steps).rename(columns=MODELS).plot.bar(
    subplots=True, layout=(1, 2), figsize=(9, 2.8), legend=False, rot=0, color=COLOURS[0], ylabel="Step [ms]", xlabel=""
)
plt.show()

# %% [markdown]
# ## Figure 11: requests that are in time, on one GPU
# In the full form, bands are the range over three seeds.

# %%
_, axes = plt.subplots(1, 2, figsize=(9, 3.2))
in_time(axes[0], experiment("figure11", *SEEDS), "SDXL, 1 GPU")
in_time(axes[1], experiment("figure11-sd3", *SEEDS), "SD3, 1 GPU")
axes[1].legend(loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()

# %% [markdown]
# ## Figures 12 and 13: on several GPUs
# A request goes to the GPU with the fewest pixels outstanding. With Distrifusion all GPUs serve each request. How much
# faster that is comes from the Katz artifact's logs and Hetu-DiT's table: less than twice, on eight GPUs too.

# %%
for figure, model in ((12, "SDXL"), (13, "SD3")):
    _, axes = plt.subplots(1, 3, figsize=(11, 3.0))
    for panel, suffix, gpus in zip(axes, ("", "-4gpus", "-8gpus"), (2, 4, 8), strict=True):
        in_time(panel, experiment(f"figure{figure}{suffix}", *SEEDS), f"{model}, {gpus} GPUs")
    axes[2].legend(loc="center left", bbox_to_anchor=(1, 0.5))
    plt.show()

# %% [markdown]
# ## Figure 14: mixed batches, size by size and in patches
# The same number of each size. What a further size repeats of a step is fitted so that patches without reuse cut 13 %
# on average. That the cut shrinks, and is SDXL's the larger, is not fitted.

# %%
figure14 = batches(experiment("figure14"))
ways = {("same-size", "none"): "by size", ("patched", "none"): "patches", ("patched", "patch-level"): "patches, reuse"}
_, axes = plt.subplots(1, 2, figsize=(9, 2.8))
for panel, (model, title) in zip(axes, MODELS.items(), strict=True):
    batch_s = figure14[figure14["models"] == model].pivot_table(
        index="trace.requests", columns=["batching", "feature_cache"], values="batch_s"
    )
    batch_s[[*ways]].set_axis(ways.values(), axis="columns").plot.bar(
        ax=panel, rot=0, title=title, xlabel="Batch", ylabel="Latency [s]", legend=False
    )
    cuts = 1 - batch_s["patched", "none"] / batch_s["same-size", "none"]
    print(f"{title}: patches cut", ", ".join(f"{cut:.1%} for {size}" for size, cut in cuts.items()))
axes[1].legend(loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()

# %% [markdown]
# ## Figure 15: what is reused
# Full batches of one size. The shares are what `conf/feature_cache/patch-level.yaml` assumes, since the paper prints
# none. Whole-image reuse needs every patch of a batch nearly unchanged, and finds no such block here.

# %%
reused = pd.DataFrame(
    {
        "model": MODELS[run.choices["models"]],
        "cache": run.choices["feature_cache"],
        "side": run.config["trace"]["shapes"][0][0],
        "share": 100 * run.requests["reused_share"].mean(),
    }
    for run in experiment("figure15")
)
_, axes = plt.subplots(1, 2, figsize=(9, 2.6), sharey=True)
for panel, (model, rows) in zip(axes, reused.groupby("model", sort=False), strict=True):
    rows.pivot_table(index="side", columns="cache", values="share").plot.bar(
        ax=panel, rot=0, title=model, xlabel="Pixels of a side", ylabel="Blocks reused [%]", legend=False
    )
axes[1].legend(loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()

# %% [markdown]
# ## What the scheduler gains
# Figure 11's SDXL traffic on the same GPU, in patches and without reuse. Only the queue discipline differs: the order
# of arrival, earliest deadline first, and PatchedServe's slack with known step times. The first two serve every
# request, so late ones delay the rest. Slack discards a request that can no longer be in time.
# `mezzotint.choices("discipline")` has more.

# %%
same = ("feature_cache=none", "seed=1")
in_order = experiment("figure11", "system=patched-cache", "discipline=fifo,edf", *same, folder="disciplines")
slack = experiment("figure11", "system=patchedserve", "latency_predictor=known", *same, folder="slack")
mezzotint.Sweep((*in_order, *slack)).plot.slo()

# %%
mezzotint.choices("discipline")
