"""The columns of the scorecard: a trace that everything is run on, and what came of it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from sim.core.errors import ConfigError
from sim.papers.scorecard import key
from sim.papers.scorecard.observations import Observation
from sim.papers.scorecard.points import trace_of
from sim.papers.scorecard.readings import Reading
from sim.papers.scorecard.rows import Row
from sim.papers.verdicts import absent
from traces.table.trace import about

WITHOUT_PROMPTS = ("traces.sources.mix.Mix", "traces.sources.add_ons.AddOns")
"""Sources of requests that are sizes and steps, or add-ons, alone, as the paper's experiment makes them up."""

SYNTHETIC = "synthetic"
"""The column of the built-in trace."""


@dataclass(frozen=True, slots=True)
class Feed:
    """A trace that everything is run on, with the name of its column: a file, or, if None, the built-in one."""

    name: str = SYNTHETIC
    path: Path | None = None

    def overrides(self, experiment: str, own: Sequence[str]) -> tuple[str, ...]:
        """What has ``experiment`` replay it: as many rows as it would have of the built-in one, where there are. One
        that asks nothing of prompts keeps its own requests: their sizes or add-ons are what its paper states."""
        trace = None if self.path is None else trace_of(experiment, own)
        if self.path is None or (trace and (trace["_target_"] in WITHOUT_PROMPTS or trace.get("service") is not None)):
            return tuple(own)  # a synthetic service has add-ons
        asked = trace and trace.get("requests")
        told = [word for word in own if not word.startswith("trace.")]  # of the built-in source
        rows = [] if not isinstance(asked, int) else [f"++trace.requests={asked}"]
        return (*told, "trace=file", f"trace.path={json.dumps(str(self.path), ensure_ascii=False)}", *rows)

    def public(self, text: str) -> str:
        """``text`` with the file's name in the place of its path: the page goes to others."""
        if self.path is None:
            return text
        quoted = json.dumps(str(self.path), ensure_ascii=False)
        return text.replace(quoted, self.path.name).replace(str(self.path), self.path.name)

    @property
    def said(self) -> str:
        """Which trace it is, in words. Raises TraceError: the file cannot be read, or is no trace."""
        if self.path is None:
            return "the built-in synthetic trace (conf/trace/synthetic.yaml), made up from statistics of real ones"
        rows, digest = about(self.path)
        return f"the requests of a trace file ({rows:,} in order, digest {digest[:12]}), from its head"


@dataclass(frozen=True, slots=True)
class Column:
    """What came of one trace: a row for each target; readings and observations in the full form alone.

    Attributes:
        trace: which trace it is, in words.
        follows_from: digest of code, settings and form; a column is kept beside another if theirs is the same.
    """

    name: str
    trace: str
    follows_from: str
    rows: list[Row]
    readings: list[Reading] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)


def read_columns(path: Path) -> list[Column]:
    """The columns of a scorecard's JSON. Raises ConfigError: there is no such file, or it is none."""
    try:
        return TypeAdapter(dict[Literal["columns"], list[Column]]).validate_json(path.read_bytes())["columns"]
    except OSError as error:
        raise absent(path, error) from None
    except (ValidationError, KeyError):
        raise ConfigError(f"{path}: is no scorecard of this version; make it again") from None


def follows_from(overrides: Mapping[str, Sequence[str]]) -> str:
    """What a column's numbers follow from beside its trace, as 16 hex digits: arithmetic, settings and form."""
    return key.joined(key.arithmetic(), key.settings(), {name: list(words) for name, words in overrides.items()})
