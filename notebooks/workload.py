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
# # Workloads: real rows beside synthetic ones
#
# The traffic decides how well a cache or a scheduler does: which users come back, with which prompt, how soon. Each
# section takes a real trace, makes a synthetic one of the same length, and compares them, statistic by statistic and
# panel by panel. A tick marks a value within 10 % of the real one. A dash marks what a trace does not tell.
#
# The real files are not part of Mezzotint. Name the folder that has them in `MEZZOTINT_DATA`. If one is missing, its
# section shows the synthetic trace alone. The site has this page with its outputs (`make docs`), without those files.
#
# The page describes traces and simulates nothing. `mezzotint.run` replays the same ones, by the names that `choices`
# lists: `mezzotint.run("trace=synthetic")`, or `mezzotint.run("trace=file", **{"trace.path": "rows.parquet"})`.

# %%
import os
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from IPython.display import Markdown, display
from matplotlib.figure import Figure

import mezzotint
from mezzotint.traces.describe import TraceStatistics, describe_trace, render, side_by_side
from mezzotint.traces.describe.figures import SUBJECTS, draw, overview
from mezzotint.traces.encoders.minilm import MiniLM
from mezzotint.traces.encoders.ngram import HashedNgrams
from mezzotint.traces.sources import Source
from mezzotint.traces.sources.published import LOGS
from mezzotint.traces.sources.synthetic import Synthetic
from mezzotint.traces.sources.table import Table
from mezzotint.traces.table.trace import Trace

# %% tags=["parameters"]
seeds = 4  # synthetic traces per section; the tables show their mean, the figures the first
encoder_name = "ngram"  # or "minilm", with the `text` extra

# %%
mezzotint.choices("trace")

# %%
# %matplotlib inline
DATA = Path(os.environ.get("MEZZOTINT_DATA", "data"))
encoder = {"ngram": HashedNgrams, "minilm": MiniLM}[encoder_name]()


def show(figure: Figure | None) -> None:
    """Show a figure on the page, if there is one."""
    if figure is not None:
        figure.set_dpi(85)
        display(figure)


def real(path: str, source: Callable[[str], Source]) -> Trace | None:
    """Load the trace of a file under `DATA`; None, and a message on the page, if there is no such file."""
    if not (DATA / path).is_file():
        display(Markdown(f"*No {path} under the folder that MEZZOTINT_DATA names: only the synthetic trace follows.*"))
        return None
    return source(str(DATA / path)).load(np.random.default_rng(0))


def fitted(name: str) -> dict[str, Any]:
    """Return the parameters of `conf/trace/NAME.yaml`; empty if there is no such file."""
    file = files("mezzotint.conf") / "trace" / f"{name}.yaml"
    found = yaml.safe_load(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return {key: value for key, value in found.items() if key not in ("_target_", "defaults")}


def section(found: Trace | None, synthetic: dict[str, Any], subjects: tuple[str, ...]) -> None:
    """Show the table, the overview and the figures of ``subjects``, of a real trace beside synthetic ones."""
    made = [
        describe_trace(Synthetic(**synthetic).load(np.random.default_rng(seed)), encoder, progress=False)
        for seed in range(seeds)
    ]
    drawn: list[TraceStatistics] = made[:1]
    if found is None:
        display(Markdown(f"```\n{render(made[0].to_dict())}\n```"))
    else:
        drawn = [describe_trace(found, encoder, progress=False), *drawn]
        display(Markdown(side_by_side(drawn[0].to_dict(), [one.to_dict() for one in made])))
    show(overview(drawn))
    for subject in SUBJECTS:
        if subject.name in subjects:
            show(draw(subject, drawn))


def like(found: Trace | None, timed: bool = True) -> dict[str, Any]:
    """Return the length and, if ``timed``, the rate of the real trace; without one, 1,000 requests."""
    if found is None:
        return {"requests": 1000}
    rate = {"rate_rpm": (len(found) - 1) / found.span_s * 60.0} if timed else {}
    return {"requests": len(found), **rate}


def channel(sample: dict[str, Any]) -> dict[str, Any]:
    """Return the same for a single channel: ``rate_rpm`` of the source is the rate of all channels."""
    service = {"rate_rpm": sample["rate_rpm"] * fitted("synthetic")["channels"]} if "rate_rpm" in sample else {}
    return sample | service | {"one_channel": True}


# %% [markdown]
# ## DiffusionDB, 1,000 requests
#
# 6.7 hours of one of the service's fifty channels, with users and times. The synthetic trace is one channel too.

# %%
rows = real("diffusiondb/metadata_1k.csv", lambda path: LOGS["diffusiondb"](path=path, name="DiffusionDB 1k"))
parameters = fitted("synthetic") | channel(like(rows))
section(rows, parameters, ("arrivals", "sessions", "nearest", "likeness", "mix"))

# %% [markdown]
# ## DiffusionDB, 3,000 requests
#
# Prompts in about the order of their arrival, with inferred users and no times. Sessions, ages and the rate need times,
# and have a dash.

# %%
rows = real(
    "diffusiondb/arrival_order_3k.csv",
    lambda path: Table(path=path, columns={"user_id": "pseudo_user"}, name="DiffusionDB 3k"),
)
parameters = fitted("synthetic") | channel(like(rows, timed=False))
section(rows, parameters, ("repeats", "nearest"))

# %% [markdown]
# ## GenTD26
#
# Seventeen days of Alibaba's production service: times, users, base models, images per request; no prompts, no sizes.
# The publisher scaled the metrics, so ratios mean more than seconds.

# %%
rows = real("gentd26/lora_request_trace.csv", lambda path: LOGS["gentd26"](path=path, name="GenTD26"))
parameters = fitted("synthetic") | fitted("synthetic-gentd26") | like(rows)
section(rows, parameters, ("arrivals", "users", "sessions", "mix", "add_ons"))
