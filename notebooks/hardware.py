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
# # Right on real machines?
#
# Two public sources hold all that is needed to replay real GPUs: MLPerf's SDXL server submissions, whose arrivals
# follow from a seed in their logs, and llm-d's routing benchmark on three H100. `mezzotint reproduce hardware` replays
# them. This page shows what it found, from `results/hardware.json`, and replays one of them with `mezzotint.sweep`.
#
# MLPerf is a trademark of MLCommons. Results are cited by round, division, submitter and system, and what stands beside
# them here is ours, not verified by MLCommons.

# %%
import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from IPython.display import display

import mezzotint
from mezzotint.figures.palette import COLOURS, INK, STYLE
from mezzotint.sim.papers.hardware.study import draw

# %% tags=["parameters"]
results = Path(mezzotint.__file__).parents[1] / "results" / "hardware.json"
system = "R760xa_H100NVL_PCIe_94GBx4_TRT"  # the submission that is replayed here, on four H100 NVL

# %%
# %matplotlib inline
plt.rcParams.update({**STYLE, "figure.dpi": 72, "figure.constrained_layout.use": True})
facts = json.loads(results.read_text())
runs = pd.json_normalize(facts["submissions"]).set_index("name")


# %% [markdown]
# ## One number is fitted, the rest is predicted
#
# The load generator's arrivals are drawn again from the logged seed. The server is NVIDIA's harness: one queue, and a
# batch leaves when it is full or some seconds after the last one was formed. How long a batch of that size takes is not
# published, so the seconds per image are fitted on the measured mean. All percentiles are predictions.

# %%
names = {
    "median": "median error",
    "p90": "90 % of the runs within",
    "unfitted_median": "median error, nothing fitted",
    "by_kind_median": "median error, the offline rate corrected by other runs of the kind",
}
errors = pd.DataFrame(facts["errors"]).T[[*names]].rename(columns=names)
errors.map("{:.2%}".format)

# %%
(figure,) = draw(facts).values()
figure.set_dpi(72)
display(figure)

# %% [markdown]
# ## What two per cent do
#
# In the middle of that figure nothing is fitted: the seconds per image are those of the same system's offline run. They
# are off by one to three per cent. On a full machine that is a third of its latency. The figure below shows how far p99
# moves if every image takes 3 % less or more, by load. No simulator's error can be smaller, however good its queues.

# %%
moved = pd.json_normalize([run["fitted"]["p99_with_service_moved_s"] for run in facts["submissions"]], sep="|")
p99 = np.array([run["fitted"]["latency_s"]["p99"] for run in facts["submissions"]])
load = np.array([run["load"] for run in facts["submissions"]])
_, axes = plt.subplots(figsize=(6.5, 3.6))
for share, colour in (("3%", COLOURS[1]), ("1%", COLOURS[0])):
    axes.vlines(
        load, moved[f"-{share}"] / p99 - 1, moved[f"+{share}"] / p99 - 1, color=colour, label=f"service ±{share}"
    )
axes.axvline(1.0, color=INK, linewidth=0.8, linestyle=":")
axes.set(xlabel="load: work that arrives over what the GPUs can do", ylabel="change of p99", title="A line is a run")
axes.yaxis.set_major_formatter("{x:+.0%}")
axes.legend()
plt.show()

# %% [markdown]
# ## A rate that was published is not a rate that can be sustained
#
# By the fit, these valid submissions are offered more than they can do. They pass because a run lasts ten minutes: the
# queue grows from start to end, and does not reach the limit of 20 s in that time. A steady-state formula gives
# infinity there, and a run of finite length gives seconds.

# %%
above = runs[runs["load"] > 1].sort_values("load", ascending=False)
above[["accelerator", "gpus", "load", "measured_s.mean", "measured_s.p99", "fitted.latency_s.p99"]].round(3)

# %% [markdown]
# ## One of them, here and now
#
# The same machine as a configuration: MLPerf's load generator, NVIDIA's server, and the profile of an H100 NVL in this
# project, whose step of eight images takes 0.27012 s. `backend.service_factor` scales it to the seconds per image that
# were fitted, and to 3 % less and more.

# %%
(name,) = (each for each in runs.index if each.endswith(system))
row = runs.loc[name]
fitted = row["fitted.image_s"] * 8 / (20 * 0.27012)
factors = {f"simulated, {share:+.0%}" if share else "simulated": fitted * (1 + share) for share in (-0.03, 0, 0.03)}
replays = mezzotint.sweep(
    "models=sdxl-mlperf", "cluster=h100-nvl", f"cluster.count={row['gpus']}", "scheduler=mlperf-batching",
    "executor=static-batch", "extrapolate=warn", "arrivals=loadgen", f"arrivals.rate_rpm={60 * row['target_qps']}",
    "trace=mix", "trace.shapes=[[1024,1024,20,1]]", "backend.service_factor=" + ",".join(map(str, factors.values())),
)  # fmt: skip
quantiles = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p97": 0.97, "p99": 0.99, "p999": 0.999}
table = pd.DataFrame({"measured": {each: row[f"measured_s.{each}"] for each in ("mean", *quantiles)}})
for label, run in zip(factors, replays, strict=True):
    latency_s = run.requests["finish_s"] - run.requests["arrival_s"]
    table[label] = {
        "mean": latency_s.mean(),
        **{each: latency_s.quantile(share, interpolation="higher") for each, share in quantiles.items()},
    }
rate = (len(latency_s) - 1) / replays[0].requests["arrival_s"].iloc[-1]
print(f"{name}: {row['gpus']} x {row['accelerator']}")
print(f"scheduled rate {rate:.2f} a second, logged {row['scheduled_qps.logged']:.2f}; load {row['load']:.3f}")
table.assign(error=table["simulated"] / table["measured"] - 1).round(4)

# %% [markdown]
# ## Behind a router, nothing fitted
#
# llm-d sent 80 requests of four sizes to three H100, each with its own queue, through two routers, at three rates. Mix,
# gaps and service times are known. Which GPU a random choice or a tie took is not, so the prediction is the band of a
# hundred draws. With the *least declared cost* the measured mean and p99 are at most 2.2 % outside the band. The random
# router was lucky at the highest rate: hardly any of a hundred draws is as good.

# %%
pd.DataFrame(
    {
        "router": each["routing"],
        "requests/s": each["rate_per_s"],
        **{
            f"{name} {what}": value
            for name in ("mean", "p99")
            for what, value in (
                ("measured", each["measured_s"][name]),
                ("simulated", round(each["predicted_s"][name], 2)),
                ("nine in ten draws", " to ".join(f"{end:.1f}" for end in each["nine_in_ten_draws_s"][name])),
            )
        },
    }
    for each in facts["routed"]
)
