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
# A simulator that was only ever held against its own assumptions is a story. Two public sources hold all that is needed
# to replay real GPUs: MLPerf's SDXL server submissions, whose arrivals follow from a seed in their logs, and llm-d's
# routing benchmark on three H100. `mezzotint reproduce hardware` replays them; this page tells what it found, from
# `results/hardware.json`, and replays one of them before your eyes.
#
# MLPerf is a trademark of MLCommons. Results are cited by round, division, submitter and system, and what stands beside
# them here is ours, not verified by MLCommons.

# %%
import json
from importlib import resources
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from IPython.display import display

from conf.palette import COLOURS, INK, STYLE, panels
from sim.papers.hardware.page import draw
from sim.papers.hardware.replay import replay_submission
from sim.papers.hardware.rows import QUANTILES, packaged_file, submissions
from sim.report.figures.display import show

# %% tags=["parameters"]
results = Path(str(resources.files("conf"))).parent / "results" / "hardware.json"
system = "R760xa_H100NVL_PCIe_94GBx4_TRT"  # the submission that is replayed here

# %%
mpl.rcParams.update(dict(STYLE))
facts = json.loads(results.read_text())
runs = pd.json_normalize(facts["submissions"]).set_index("name")


# %% [markdown]
# ## One number is fitted, the rest is predicted
#
# The load generator's arrivals are drawn again from the logged seed; the server is NVIDIA's harness (one queue, a batch
# leaves when it is full or some seconds after the last one was formed). What nobody published is how long a batch of
# that size takes, so the seconds per image are fitted on the measured mean. All percentiles are predictions.

# %%
errors = pd.DataFrame(facts["errors"]).T
errors.columns = ["median error", "90 % of the runs within", "runs", "median error, nothing fitted"]
display(errors.drop(columns="runs").map("{:.2%}".format))
show(draw(facts))

# %% [markdown]
# ## What two per cent do
#
# In the middle of that figure nothing is fitted: the seconds per image are those of the same system's offline run. They
# are off by a per cent or three, and where a machine is full that is a third of its latency. Below, how far p99 moves
# if every image takes 3 % less or more, against the load: the honest error bar of any simulator, however good its
# queues.

# %%
moved = pd.json_normalize([run["fitted"]["p99_with_service_moved_s"] for run in facts["submissions"]], sep="|")
p99 = np.array([run["fitted"]["latency_s"]["p99"] for run in facts["submissions"]])
load = np.array([run["load"] for run in facts["submissions"]])
figure, ((axes,),) = panels(1, width=6.5, height=3.6)
for share, colour in (("3%", COLOURS[1]), ("1%", COLOURS[0])):
    axes.vlines(
        load, moved[f"-{share}"] / p99 - 1, moved[f"+{share}"] / p99 - 1, color=colour, label=f"service ±{share}"
    )
axes.axvline(1.0, color=INK, linewidth=0.8, linestyle=":")
axes.set(xlabel="load: work that comes, over what the GPUs can do", ylabel="change of p99", title="One run a line")
axes.yaxis.set_major_formatter("{x:+.0%}")
axes.legend()
show(figure)

# %% [markdown]
# ## A rate that was published is not a rate that can be sustained
#
# By the fit, these valid submissions are offered more than they can do. They pass because a run lasts ten minutes: the
# queue grows from the first to the last, and the limit of 20 s is not reached in time. A steady-state formula says
# infinity there, and a run of finite length says seconds.

# %%
above = runs[runs["load"] > 1].sort_values("load", ascending=False)
display(above[["accelerator", "gpus", "load", "measured_s.mean", "measured_s.p99", "fitted.latency_s.p99"]].round(3))

# %% [markdown]
# ## One of them, here and now

# %%
(row,) = (each for each in submissions(packaged_file("mlperf-sdxl-server.csv")) if each.name.endswith(system))
found, _ = replay_submission(row, with_sensitivity=False)
print(f"{row.name}: {row.gpus} x {row.accelerator}")
rate, said = found["scheduled_qps"], found["fitted"]["latency_s"]
print(f"scheduled rate {rate['ours']:.2f} a second, logged {rate['logged']:.2f}; load {found['load']:.3f}")
known = {name: row.measured[name] for name in ("mean", *QUANTILES)}
said = {name: (seconds, said[name], said[name] / seconds - 1) for name, seconds in known.items()}
table = pd.DataFrame(said, index=["measured [s]", "simulated [s]", "error"]).T
display(table.round(4))

# %% [markdown]
# ## Behind a router, nothing fitted
#
# llm-d sent 80 requests of four sizes to three H100, each with its own queue, through two routers, at three rates. Mix,
# gaps and service times are known. Which GPU a random choice or a tie took is not, so the prediction is the band of a
# hundred draws. With the *least declared cost* the measured mean and p99 are at most 2.2 % outside the band. The random
# arm at the highest rate was lucky: hardly any of a hundred draws is as good.

# %%
routed = pd.DataFrame(
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
display(routed)
