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
# Figures 5, 11 to 15 of the paper, from the experiments in `conf/experiment`, and how near its scheduler comes to the
# best that any could do. Runs that `mezzotint reproduce` has finished are read, not made again.
#
# The paper prints few numbers of its H100: the profiles of SDXL and SD3 are assumed from those (`mezzotint list
# profiles`), and what reuse saves is assumed too. Its rates are in its figures alone; ours go from a light load to more
# than anybody carries.

# %%
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes

from backends.base import Work
from backends.profiled import Profiled
from conf.palette import COLOURS, EDGE, GREY, STYLE, panels
from sim.cluster.cluster import Cluster
from sim.core.gpu import Gpu
from sim.core.model import Model
from sim.core.request import COMPLETED
from sim.core.workload import SimilarityInputs, Workload, standalone
from sim.engine import Engine
from sim.execution.continuous_batching import ContinuousBatching
from sim.execution.patched import PatchedSteps
from sim.frontend.direct import Direct
from sim.papers.scorecard.measures.modm import by_rate
from sim.papers.scorecard.measures.patchedserve import batch_s, patching_savings
from sim.papers.scorecard.runs.finished import Finished, Runs
from sim.papers.scorecard.scorecard import load_study, runs_of
from sim.protocols import Discipline
from sim.report.figures.display import show
from sim.scheduling.disciplines.edf import Edf
from sim.scheduling.disciplines.fifo import FifoQueue
from sim.scheduling.disciplines.slack import Slack
from sim.scheduling.latency_predictor import Known
from sim.scheduling.routing.per_worker import PerWorkerQueues
from sim.scheduling.routing.routers import LeastOutstanding
from tests.oracles.optimum import RequestInputs, most_in_time
from traces.arrivals.base import Schedule
from traces.similarity.exact import Exact

# %% tags=["parameters"]
quick = False  # True: only what takes seconds
work = "results/runs/scorecard"  # where finished runs are kept
jobs = 1  # worker processes

# %%
mpl.rcParams.update(dict(STYLE))
card = load_study("patchedserve", quick=quick)
NAMES = {"sdxl": "SDXL", "sd3-medium": "SD3"}
SYSTEMS = ("patchedserve", "patched-cache", "nirvana-orca", "orca", "distrifusion", "vanilla")
LOOK = dict(zip(SYSTEMS, COLOURS, strict=False))
experiment = partial(runs_of, card, work=Path(work), jobs=jobs, leave_out=quick)


def satisfied(run: Finished) -> float:
    """Share of the requests that are in time, in percent."""
    return 100 * (1 - run.number("slo", "5x", "violation_rate"))


def curves(axes: Axes, runs: Runs, gpus: int) -> None:
    """Satisfaction by requests per second: the mean over the seeds, and from the lowest to the highest of them."""
    found = runs.finished()
    for system in SYSTEMS:
        its = Runs(tuple((run.point, run) for run in found if run.point.choices["system"] == system))
        if its.outcomes:
            at = {rate / 60: [satisfied(run) for run in seeds] for rate, seeds in by_rate(its).items()}
            axes.plot(list(at), [float(np.mean(of)) for of in at.values()], "o-", color=LOOK[system], label=system)
            low, high = [min(of) for of in at.values()], [max(of) for of in at.values()]
            axes.fill_between(list(at), low, high, color=LOOK[system], alpha=0.2, linewidth=0)
    axes.set_title(f"{gpus} GPU" + ("s" if gpus > 1 else ""))
    axes.set_xlabel("Requests per second")
    axes.set_ylabel("In time [%]")
    axes.set_ylim(-3, 103)


# %% [markdown]
# ## Figure 5: batches of three
# In patches, nothing reused; S, M and L are 512, 768 and 1024 pixels. The paper's only number is that three large take
# 68 % longer than three small, and its order: a third size can cost more than pixels (SML over MML).

# %%
LETTERS = {512: "S", 768: "M", 1024: "L"}
figure, axes = panels(2, width=9, height=2.8)
for panel, (model, name) in zip(axes[0], NAMES.items(), strict=True):
    runs = [run for run in experiment("patchedserve-figure5").finished() if f"models={model}" in run.point.overrides]
    bars = {"".join(LETTERS[shape[0]] for shape in run.config["trace"]["shapes"]): batch_s(run) / 50 for run in runs}
    panel.bar(list(bars), [1e3 * seconds for seconds in bars.values()], color=COLOURS[0])
    panel.set_title(name)
    panel.set_ylabel("Step [ms]")
show(figure)

# %% [markdown]
# ## Figure 11: requests that are in time, on one GPU
# Bands: from the lowest to the highest of three seeds.

# %%
figure, axes = panels(2, width=9, height=3.2)
for panel, (name, title) in zip(axes[0], (("figure11", "SDXL"), ("figure11-sd3", "SD3")), strict=True):
    curves(panel, experiment(f"patchedserve-{name}"), 1)
    panel.set_title(f"{title}, 1 GPU")
axes[0][0].legend()
show(figure)

# %% [markdown]
# ## Figures 12 and 13: on several GPUs
# Dispatched to the GPU with the fewest pixels outstanding; Distrifusion has all GPUs serve each request. How much
# faster that is, is what the Katz artifact's logs and Hetu-DiT's table show: less than twice, on eight GPUs too.

# %%
for number, title in ((12, "SDXL"), (13, "SD3")):
    figure, axes = panels(3, width=11, height=3.0)
    for panel, (suffix, gpus) in zip(axes[0], (("", 2), ("-4gpus", 4), ("-8gpus", 8)), strict=True):
        curves(panel, experiment(f"patchedserve-figure{number}{suffix}"), gpus)
        panel.set_title(f"{title}, {gpus} GPUs")
    axes[0][0].legend()
    show(figure)

# %% [markdown]
# ## Figure 14: mixed batches, in turn and in patches
# The same number of each size. What a further size repeats of a step is fitted so that patches without reuse cut 13 %
# on average; that the cut shrinks, and is SDXL's the larger, is not.

# %%
runs14 = experiment("patchedserve-figure14")
figure, axes = panels(2, width=9, height=2.8)
for panel, (model, name) in zip(axes[0], NAMES.items(), strict=True):
    for shift, (label, steps, cache) in enumerate(
        (("in turn", "batched", "none"), ("patches", "patched", "none"), ("patches, reuse", "patched", "patch-level"))
    ):
        its = runs14.where(models=model, steps=steps, feature_cache=cache).finished()
        bars = {int(run.point.choices["trace.requests"]): batch_s(run) for run in its}
        at = [size + 0.8 * (shift - 1) for size in bars]
        panel.bar(at, list(bars.values()), width=0.75, color=COLOURS[shift], label=label)
    panel.set_title(name)
    panel.set_xlabel("Batch")
    panel.set_ylabel("Latency [s]")
axes[0][0].legend()
show(figure)
if not quick:
    for model, name in NAMES.items():
        cuts = ", ".join(f"{cut:.1%}" for cut in patching_savings(runs14, model))
        print(f"{name}: patches cut", cuts, "for 3, 6, 9 and 12")

# %% [markdown]
# ## Figure 15: what is reused
# Full batches of one size. The shares are what `conf/feature_cache/patch-level.yaml` assumes: the paper prints none.

# %%
runs15 = experiment("patchedserve-figure15")
figure, axes = panels(2, width=9, height=2.6)
for panel, (model, name) in zip(axes[0], NAMES.items(), strict=True):
    for shift, cache in enumerate(("patch-level", "whole-image")):
        its = runs15.where(models=model, feature_cache=cache).finished()
        reused = {
            run.config["trace"]["shapes"][0][0]: float(np.mean(run.requests("reused_share")["reused_share"].to_numpy()))
            for run in its
        }
        at = np.arange(len(reused)) + 0.4 * shift
        panel.bar(at, [100 * share for share in reused.values()], width=0.35, color=COLOURS[shift], label=cache)
        panel.set_xticks(np.arange(len(reused)) + 0.2, [str(side) for side in reused])
    panel.set_title(name)
    panel.set_ylabel("Blocks reused [%]")
axes[0][0].legend()
show(figure)

# %% [markdown]
# ## How much a scheduler could still gain
# Six requests of four steps each (SDXL, patches, nothing reused) on one GPU, in time within twice their latency alone:
# few enough to try every schedule. The optimum knows what comes; the others do not. Means over the same instances, with
# their standard error.

# %%
SIDES = (512, 768, 1024)
STEPS, SLO, COUNT = 4, 2.0, 6
INSTANCES = 2 if quick else 10
H100 = Profiled("h100")
MODEL = {"large": Model("sdxl", STEPS, 1024, 1024)}


def step_s(kinds: Sequence[int]) -> float:
    """A step of a batch in patches of 256 pixels."""
    return H100.patched([Work("sdxl", SIDES[kind], SIDES[kind], STEPS) for kind in kinds], 256).seconds


def before_s(kind: int) -> float:
    """Text encoding."""
    return H100.seconds("text_encode", "sdxl", 1, 1)


def after_s(kind: int) -> float:
    """Decoding."""
    return H100.seconds("vae_decode", "sdxl", SIDES[kind], SIDES[kind])


def served(discipline: Discipline, executor: ContinuousBatching, times: Sequence[float], kinds: Sequence[int]) -> float:
    """The share that is in time."""
    side = np.array([SIDES[kind] for kind in kinds], np.int32)
    shapes = (side, side, np.full(len(side), STEPS, np.int32))
    full = standalone(H100, MODEL["large"], shapes, use_model_shape=False)
    engine = Engine(
        workload=Workload(Schedule(np.asarray(times)), shapes, full, use_model_shape=False, deadline=SLO),
        similarity=SimilarityInputs(lambda: np.zeros((len(side), 1), np.float32), Exact()),
        models=MODEL,
        cluster=Cluster(Gpu("h100", None, None, "not looked at"), ["large"], MODEL, H100),
        backend=H100,
        frontend=Direct(),
        scheduler=PerWorkerQueues(LeastOutstanding("pixels"), discipline),
        executor=executor,
        seed=0,
    )
    engine.run()
    facts = engine.record.request_columns
    late = facts["finish_s"] > np.asarray(times) + SLO * full.total_s + 1e-9
    return float(((facts["outcome"] == COMPLETED) & ~late).mean())


shares: dict[str, dict[float, list[float]]] = {}
for rate in (100, 200, 400, 800):
    for seed in range(INSTANCES):
        rng = np.random.default_rng([rate, seed])
        times, kinds = np.cumsum(rng.exponential(60 / rate, COUNT)), rng.integers(0, 3, COUNT)
        limit_s = [SLO * (before_s(kind) + STEPS * step_s([kind]) + after_s(kind)) for kind in kinds]
        asked = [
            RequestInputs(float(t), int(k), STEPS, float(t) + s) for t, k, s in zip(times, kinds, limit_s, strict=True)
        ]
        found = {"optimum": most_in_time(asked, step_s, before_s, after_s, 16) / COUNT}
        for name in ("slack", "edf", "fifo"):
            executor = ContinuousBatching(16, PatchedSteps())
            discipline = Slack(executor, Known()) if name == "slack" else Edf() if name == "edf" else FifoQueue()
            found[name] = served(discipline, executor, times, kinds.tolist())
        for name, share in found.items():
            shares.setdefault(name, {}).setdefault(rate / 60, []).append(100 * share)
figure, axes = panels(1, width=6, height=3.2)
for name, colour in zip(shares, (EDGE, *COLOURS), strict=False):
    means = [float(np.mean(of)) for of in shares[name].values()]
    error = [float(np.std(of) / np.sqrt(len(of))) for of in shares[name].values()]
    axes[0][0].errorbar(list(shares[name]), means, error, fmt="o-", color=colour, label=name, capsize=2)
axes[0][0].axhline(100, color=GREY, linewidth=0.5)
axes[0][0].set_xlabel("Requests per second")
axes[0][0].set_ylabel("In time [%]")
axes[0][0].legend()
show(figure)
for name, of in shares.items():
    print(f"{name}: " + ", ".join(f"{np.mean(each):.0f} % at {rate:.1f}/s" for rate, each in of.items()))
