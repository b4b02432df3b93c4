"""The options of a plan, and the command that repeats its answer."""

import shlex
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Le
from pydantic.dataclasses import dataclass

from mezzotint.settings.ranges import Share
from mezzotint.sim.run.pool import Launcher
from mezzotint.traces.arrivals.base import MAX_RPM

Caches = Literal["empty", "warm", "both"]

RUNS = Path("results/runs/plan")
"""Folder of the kept runs of all plans, unless --runs names another."""

OUT = Path("results/plan")

UNNAMED = ("trace", "overrides", "runs", "jobs", "launcher")
"""Options that the command of an answer gives without a name, or that do not change the answer."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a plan, in the order of the command that repeats its answer.

    Raises ValidationError for a value of another type or outside its range.

    Attributes:
        gpu: kinds of GPUs, or the beginning of their names up to a hyphen (``h100``); empty for all. ``h100-sxm+l40s``
            stands for clusters of both: a few of the first kind, and as many as needed of the second.
        design: choices of ``system=``, each with settings (``nirvana cache.capacity=1000,10000``); empty for the
            usual ones.
        model: name of the model that makes an image in full, or a choice of ``models=``.
        prices: file of prices by kind of GPU, before conf/data/gpu-prices.yaml.
        profiles: a folder of profiles, which replace shipped ones of the same model and GPU.
        assume: declared scalings to kinds without a profile, as ``a10g=l40s*1.9`` (mezzotint.backends.scaling).
        cache: state of a cache at the start: ``empty``, ``warm`` from the trace's earlier requests, or ``both``, which
            ranks the warm ones and says what they need from empty.
        config_dir: the user's folder of models, GPUs and other choices.
        overrides: settings of every run.
        runs: folder of the runs, which are kept.
    """

    target: Sequence[str]
    gpu: Sequence[str] = ()
    design: Sequence[str] = ()
    plugin: Sequence[str] = ()
    model: str = ""
    rate_rpm: Annotated[float, Ge(1e-6), Le(MAX_RPM)] | None = None
    prices: Path | None = None
    min_quality: Share | None = None
    replications: Annotated[int, Ge(1), Le(1000)] | None = None
    profiles: Path | None = None
    config_dir: Path | None = None
    assume: Sequence[str] = ()
    cache: Caches = "both"
    max_gpus: Annotated[int, Ge(1), Le(10_000)] = 256
    rank: Annotated[int, Ge(1), Le(50)] = 5
    trace: Path | None = None
    overrides: Sequence[str] = ()
    runs: Path = RUNS
    jobs: Annotated[int, Ge(1)] = 1
    launcher: Launcher = "joblib"


def command_line(options: Options, output: Path) -> str:
    """Return the command that makes the answer again."""
    words = ["mezzotint", "plan", *([] if options.trace is None else [str(options.trace)]), *options.overrides]
    shown = {
        option.name: (getattr(options, option.name), option.default)
        for option in fields(options)
        if option.name not in UNNAMED
    }
    for name, (given, usual) in (shown | {"output": (output, OUT)}).items():
        for value in given if isinstance(given, list | tuple) else [given]:
            if value != usual:
                words += [f"--{name.replace('_', '-')}", f"{value:g}" if isinstance(value, float) else str(value)]
    return shlex.join(words)
