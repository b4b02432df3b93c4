"""Plan a deployment, with the answer as pandas frames."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import ValidationError

from mezzotint.arguments import as_path, as_texts
from mezzotint.files.validation import first_error
from mezzotint.frames import path_of
from mezzotint.plots import Figure
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.plan.answer import Plan as Answer
from mezzotint.sim.plan.command import answer_plan, write
from mezzotint.sim.plan.options import OUT, RUNS, Caches, Options, command_line
from mezzotint.sim.plan.page import as_json, basis, design_name, figure, headers, sentence
from mezzotint.sim.run.pool import Launcher


@dataclass(frozen=True)
class Plan:
    """The answer of a plan.

    Attributes:
        command: the command line that gives the same answer.
    """

    command: str
    _answer: Answer

    @property
    def answer(self) -> str:
        """The answer in a sentence or two."""
        return sentence(self._answer)

    @cached_property
    def table(self) -> pd.DataFrame:
        """The clusters that meet the targets, the cheapest first: a row each, with the work and what it rests on.

        Latencies are in seconds, prices and savings in US$ per hour. ``carries`` is the factor on the load at which the
        cluster still meets the targets, ``gpus_if_service_error`` the GPUs that it takes if the service is longer by
        its known error. ``clusters`` and plan.json have all other numbers.
        """
        plan = self._answer
        key = plan.spec.targets[0].key
        name = f"{key.removeprefix('latency_s.')}_s" if key.startswith("latency_s.") else key
        rows = [
            {
                "design": design_name(plan, one.result.candidate),
                "cluster": one.result.cluster,
                "usd_per_h": one.result.usd_per_h,
                "saving_usd_per_h": None if one.saving is None else one.saving.usd_per_h,
                name: one.result.numbers[key],
                "carries": one.headroom[0],
                "gpus_if_service_error": one.gpus_if_slower,
                "work": about.work,
                "basis": basis(one),
                "load": about.load,
                "verdict": one.summary["load"]["verdict"],
            }
            for one, about in zip(plan.ranked, headers(plan), strict=True)
        ]
        return pd.DataFrame(rows)

    @cached_property
    def clusters(self) -> pd.DataFrame:
        """Every cluster that ran: a row each, with latencies in seconds and costs in US$."""
        return pd.DataFrame(as_json(self._answer, self.command)["clusters"])

    @cached_property
    def not_ranked(self) -> pd.DataFrame:
        """The candidates that are not ranked: columns ``design``, ``gpu``, ``kind``, ``reason`` and others."""
        rows = as_json(self._answer, self.command)["not_ranked"]
        return pd.DataFrame(rows).drop(columns="best", errors="ignore")

    def plot(self) -> Figure:
        """Cost against p95 of every stable cluster, and the headroom of the ranked ones.

        Raises ConfigError if no cluster ran.
        """
        spec = figure(self._answer)
        if spec is None:
            raise ConfigError("plan.plot: no cluster ran, so there is nothing to draw; not_ranked says why")
        return Figure(spec)

    def save(self, folder: str | Path) -> Path:
        """Write plan.html, plan.json and plan.png into ``folder``, and return the page's path.

        Raises ConfigError: they cannot be written.
        """
        path = as_path("folder", folder)
        write(self._answer, path, self.command)
        return path / "plan.html"

    def __repr__(self) -> str:
        return self.answer

    def _repr_html_(self) -> str:
        return f"<p>{escape(self.answer)}</p>{self.table.to_html()}"


def plan(
    *overrides: str,
    target: str | Sequence[str],
    model: str,
    gpus: str | Sequence[str] = (),
    designs: str | Sequence[str] = (),
    trace: "str | Path | pd.DataFrame | None" = None,
    rate_rpm: float | None = None,
    prices: str | Path | None = None,
    min_quality: float | None = None,
    max_gpus: int = 256,
    rank: int = 5,
    cache: Caches = "both",
    replications: int | None = None,
    jobs: int = 1,
    launcher: Launcher = "joblib",
    runs: str | Path = RUNS,
    profiles: str | Path | None = None,
    assume: str | Sequence[str] = (),
    config_dir: str | Path | None = None,
    plugins: str | Sequence[str] = (),
    progress: bool = False,
) -> Plan:
    """Find the cheapest clusters that meet latency targets, over designs and kinds of GPUs.

    The arguments are the options of ``mezzotint plan`` (``mezzotint plan --help``).

    Args:
        overrides: ``KEY=VALUE`` settings of every run.
        target: what to meet, such as ``"p95<10s"``; several must all be met.
        gpus: kinds of GPUs; empty for all that have a profile and a price.
        designs: choices of ``system=`` with their settings; empty for the usual ones.
        trace: a trace, or a table of requests: a file, or a pandas frame; None for the built-in trace.
        rate_rpm: steady Poisson arrivals, requests per minute; None for the trace's own times.
        assume: scalings to kinds of GPUs that nobody measured, such as ``"a10g=l40s*1.9"``.
        cache: state of a cache at the start: ``"empty"``, ``"warm"`` from the trace's earlier requests, or ``"both"``.
        runs: the folder that keeps the runs: the same question is answered from them.

    Raises ConfigError, TraceError, BackendError: the input cannot be used.
    """
    paths = {"runs": runs, "prices": prices, "profiles": profiles, "config_dir": config_dir}
    checked: dict[str, Any] = {name: None if path is None else as_path(name, path) for name, path in paths.items()}
    try:
        options = Options(
            target=as_texts("target", target),
            model=model,
            gpu=as_texts("gpus", gpus),
            design=as_texts("designs", designs),
            trace=None if trace is None else path_of(trace),
            rate_rpm=rate_rpm,
            min_quality=min_quality,
            max_gpus=max_gpus,
            rank=rank,
            cache=cache,
            replications=replications,
            jobs=jobs,
            launcher=launcher,
            overrides=overrides,
            assume=as_texts("assume", assume),
            plugin=as_texts("plugins", plugins),
            **checked,
        )
    except ValidationError as error:
        raise ConfigError(f"{first_error(error)}; correct the argument") from None
    return Plan(command_line(options, OUT), answer_plan(options, progress=progress))
