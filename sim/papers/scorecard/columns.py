"""Columns of the scorecard: the trace that the experiments replay, and the rows that result."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers.runs import encoder_of, trace_of
from mezzotint.sim.papers.scorecard.measures.interpretations import Interpretation
from mezzotint.sim.papers.scorecard.measures.observations import Observation
from mezzotint.sim.papers.scorecard.rows import Row
from mezzotint.sim.papers.scorecard.targets import Layer, Layers, Target, Targets
from mezzotint.sim.papers.study import unreadable
from mezzotint.sim.run import run_key as key
from mezzotint.traces.table.trace import about

WITHOUT_PROMPTS = ("mezzotint.traces.sources.mix.Mix", "mezzotint.traces.sources.add_ons.AddOns")
"""Sources without prompts: only sizes and steps, or add-ons, as the paper's experiment states them."""

SYNTHETIC = "synthetic"
"""Name of the built-in trace's column."""

MECHANISM = "mechanism"
"""Name of the column that declares the papers' hits, on the built-in trace."""

DEFAULTS = "nirvana-evaluation"
"""An experiment with the default encoder."""

COMPARE_TEXTS = ("nirvana",)
"""Systems of the columns with another encoder. MoDM compares texts with images, whose model is fitted to n-grams."""


@dataclass(frozen=True, slots=True)
class ColumnTrace:
    """The trace of one column: a file, or the built-in trace if ``path`` is None.

    Attributes:
        layer: the layer whose targets the column compares.
        encoder: choice of encoder= in place of the default, on the whole trace, for the systems of `COMPARE_TEXTS`
            alone; None leaves each experiment its own encoder and number of requests.
    """

    name: str = SYNTHETIC
    path: Path | None = None
    layer: Layer = "ground"
    encoder: str | None = None

    def targets(self, targets: Targets, layers: Layers) -> dict[str, list[Target]]:
        """Return the targets that the column compares, by system."""
        systems = targets if self.encoder is None else [name for name in targets if name in COMPARE_TEXTS]
        return {name: [each for each in targets[name] if layers.includes(self.layer, each.id)] for name in systems}

    def overrides(self, experiment: str, own: Sequence[str]) -> tuple[str, ...]:
        """Return the overrides that make ``experiment`` replay this trace, with as many rows as it has or whole.

        An experiment without prompts keeps its own requests, whose sizes or add-ons its paper states.
        """
        trace = None if self.path is None else trace_of(experiment, own)
        if self.path is None or (trace and (trace["_target_"] in WITHOUT_PROMPTS or trace.get("service") is not None)):
            return tuple(own)  # a synthetic service has add-ons
        requests = trace and trace.get("requests")
        kept = [word for word in own if not word.startswith("trace.")]  # trace.* sets the built-in source
        rows = [] if self.encoder or not isinstance(requests, int) else [f"++trace.requests={requests}"]
        chosen = any(word.startswith("encoder=") for word in own) or encoder_of(experiment) != encoder_of(DEFAULTS)
        encoder = [] if self.encoder is None or chosen else [f"encoder={self.encoder}"]
        return (*kept, "trace=file", f"trace.path={json.dumps(str(self.path), ensure_ascii=False)}", *rows, *encoder)

    def without_path(self, text: str) -> str:
        """Return ``text`` with the file's name in place of its path, since the page is published."""
        if self.path is None:
            return text
        quoted = json.dumps(str(self.path), ensure_ascii=False)
        return text.replace(quoted, self.path.name).replace(str(self.path), self.path.name)

    def describe(self) -> str:
        """Return which trace this is, in words. Raises TraceError: the file cannot be read, or is no trace."""
        if self.layer == "mechanism":
            return "the hits that the papers state, declared (conf/hits); nothing depends on the similarity of prompts"
        if self.path is None:
            return "the built-in synthetic trace (conf/trace/synthetic.yaml), made up from statistics of real ones"
        rows, digest = about(self.path)
        encoder = "" if self.encoder is None else f"; its prompts are compared by encoder={self.encoder}"
        part = ", from its head" if self.encoder is None else ", whole"
        return f"the requests of a trace file ({rows:,} in order, digest {digest[:12]}){part}{encoder}"


@dataclass(frozen=True, slots=True)
class Column:
    """Results on one trace: a row for each target of a layer; readings and observations in the full form only.

    Attributes:
        layer: the layer of its targets.
        trace: which trace it is, in words.
        follows_from: digest of code, settings and form; columns with different digests are not shown together.
    """

    name: str
    trace: str
    follows_from: str
    rows: list[Row]
    layer: Layer = "ground"
    readings: list[Interpretation] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)


def read_columns(path: Path) -> list[Column]:
    """Read the columns of a scorecard's JSON. Raises ConfigError: the file is missing, or is no scorecard."""
    try:
        return TypeAdapter(dict[Literal["columns"], list[Column]]).validate_json(path.read_bytes())["columns"]
    except OSError as error:
        raise unreadable(path, error) from None
    except (ValidationError, KeyError):
        raise ConfigError(f"{path}: found no scorecard of this version; make it again without --check") from None


def follows_from(overrides: Mapping[str, Sequence[str]]) -> str:
    """Return the digest, 16 hex digits, of arithmetic, settings and form: all that sets a column except its trace."""
    return key.combined(key.arithmetic(), key.settings(), {name: list(words) for name, words in overrides.items()})
