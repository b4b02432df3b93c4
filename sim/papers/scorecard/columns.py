"""Columns of the scorecard: the trace that the experiments replay."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mezzotint.sim.papers.runs import compose_part
from mezzotint.traces.table.trace import about

WITHOUT_PROMPTS = ("mezzotint.traces.sources.mix.Mix", "mezzotint.traces.sources.add_ons.AddOns")
"""Sources without prompts: only sizes and steps, or add-ons, as the paper's experiment states them."""

SYNTHETIC = "synthetic"
"""Name of the built-in trace's column."""

MECHANISM = "mechanism"
"""Name of the column that declares the papers' hits, on the built-in trace."""

DEFAULTS = "nirvana-evaluation"
"""An experiment with the default encoder."""

Layer = Literal["mechanism", "ground"]
"""A column of the mechanism declares the papers' hits; one of the ground finds them by the similarity of prompts."""


@dataclass(frozen=True, slots=True)
class ColumnTrace:
    """The trace of one column: a file, or the built-in trace if ``path`` is None.

    Attributes:
        layer: the layer whose targets the column compares.
        encoder: choice of encoder= in place of the default, on the whole trace, for the systems of
            `study.COMPARE_TEXTS` alone; None leaves each experiment its own encoder and number of requests.
    """

    name: str = SYNTHETIC
    path: Path | None = None
    layer: Layer = "ground"
    encoder: str | None = None

    def overrides(self, experiment: str, own: Sequence[str]) -> tuple[str, ...]:
        """Return the overrides that make ``experiment`` replay this trace, with as many rows as it has or whole.

        An experiment without prompts keeps its own requests, whose sizes or add-ons its paper states.
        """
        if self.path is None:
            return tuple(own)
        trace = compose_part("trace", experiment, own)
        if trace.get("_target_") in WITHOUT_PROMPTS or trace.get("service") is not None:
            return tuple(own)  # a synthetic service has add-ons
        words = [word for word in own if not word.startswith("trace.")]  # trace.* sets the built-in source
        words += ["trace=file", f"trace.path={json.dumps(str(self.path), ensure_ascii=False)}"]
        if self.encoder is None:
            requests = trace.get("requests")
            return (*words, f"++trace.requests={requests}") if isinstance(requests, int) else tuple(words)
        encoder, default = (compose_part("encoder", name).get("_target_") for name in (experiment, DEFAULTS))
        is_chosen = any(word.startswith("encoder=") for word in own) or encoder != default
        return tuple(words) if is_chosen else (*words, f"encoder={self.encoder}")

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
