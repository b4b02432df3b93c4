"""The papers' targets, each with its measure, layer, tolerance and reason of a miss."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from mezzotint.settings.suggest import suggest
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers.runs import Point, Runs, sweep, with_hits
from mezzotint.sim.papers.scorecard.columns import ColumnTrace, Layer
from mezzotint.sim.papers.scorecard.measures.formulas import Formula, Function, Ordering
from mezzotint.sim.papers.scorecard.measures.interpretations import EXPERIMENTS as INTERPRETED
from mezzotint.sim.papers.scorecard.targets import Role, Target, Targets, load_targets
from mezzotint.sim.papers.scorecard.verdict import Kind
from mezzotint.sim.papers.study import DATA, read_data
from mezzotint.sim.run.commands import COMMANDS

COMPARE_TEXTS = ("nirvana",)
"""Systems of the columns with another encoder. MoDM compares texts with images, whose model is fitted to n-grams."""


class Entry(BaseModel):
    """Measure and explanation of one target.

    Attributes:
        measure: None if nothing measures it yet; several formulas give a list.
        experiments: names in conf/experiment, whose runs the measure gets.
        fixed_by: the inputs that the number depends on, each with its source, or the input that a fit has fixed.
        basis: the exact quantity, if the target's own words leave it open.
        real_prompts: True if only prompts that people wrote count, so that the built-in trace has no such row.
        ground, both: why the row belongs to the layer of the ground, or to both; else it is of the mechanism.
        algebra: how the number follows from inputs without a simulation.
        unprinted: the input that nobody printed and the verdict hangs on, and what another value of it gives.
        uninformed: why the declared inputs make the row equal to another, so that it says nothing of its own.
        tolerance: where the tolerance comes from.
        reason: why the row is not within it, in every column or by the column's name.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    measure: Formula | Ordering | Function | list[Formula] | None = None
    experiments: tuple[str, ...] = ()
    fixed_by: str = ""
    basis: str = ""
    real_prompts: bool = False
    ground: str = ""
    both: str = ""
    algebra: str = ""
    unprinted: str = ""
    uninformed: str = ""
    tolerance: str | None = None
    reason: str | dict[str, str] | None = None

    def kind(self, role: Role) -> Kind:
        """Return what a row of ``role`` shows."""
        if role in ("input", "inconsistent"):
            return "input" if role == "input" else "inconsistent"
        if role == "fit":
            return "fitted"
        because: dict[Kind, str] = {"uninformed": self.uninformed, "algebra": self.algebra, "unprinted": self.unprinted}
        return next((kind for kind, reason in because.items() if reason), "predicted")

    @property
    def layer(self) -> str:
        """The layer with the reason, such as "ground: a hit rate"."""
        return f"ground: {self.ground}" if self.ground else f"both: {self.both}" if self.both else "mechanism"

    def includes(self, layer: Layer) -> bool:
        """Return True if the row belongs to ``layer``."""
        return bool(self.both) or bool(self.ground) == (layer == "ground")

    def reason_in(self, column: str) -> str | None:
        """Return the reason that holds in ``column``."""
        return self.reason.get(column) if isinstance(self.reason, dict) else self.reason

    def evaluate(self, runs: Runs) -> Any:
        """Measure the value. Raises Unmeasured: a run failed, or lacks what is measured."""
        assert self.measure is not None
        return [formula(runs) for formula in self.measure] if isinstance(self.measure, list) else self.measure(runs)


class Declared(BaseModel):
    """An input of all rows of a paper.

    Attributes:
        input: what it is.
        value: what it is for all rows.
        source: where that comes from.
        instead: other values that the paper allows, and the rows that they would change.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: str
    value: str
    source: str
    instead: str = ""


class Curve(BaseModel):
    """Printed points of a figure or table, in the order of their rows.

    Attributes:
        figure, what: where it is, and what it shows.
        x: the name of each point.
        rows: ids of the targets whose values are the points.
        part: first and last of the points, the last one left out; None is all.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    figure: str
    what: str
    x: list[str]
    rows: list[str]
    part: tuple[int, int] | None = None


class Content(BaseModel):
    """conf/data/scorecard.yaml.

    Attributes:
        words: texts that fixed_by and basis name in braces; later ones may name earlier ones.
        hits: by paper and system, the overrides that declare its hits in the column of the mechanism.
        seeds: seeds of each experiment in the column of the mechanism.
        own_seeds: experiments that keep the seeds of their own sweep there, with the reason.
        declared: by paper, the inputs of all its rows.
        curves: by paper, its curves; plotted, its figures without printed numbers.
        quick: overrides that make each experiment quick; null leaves it out.
        rows: by target id.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    words: dict[str, str] = {}
    hits: dict[str, dict[str, list[str]]] = {}
    seeds: list[int] = []
    own_seeds: dict[str, str] = {}
    declared: dict[str, list[Declared]] = {}
    curves: dict[str, list[Curve]] = {}
    plotted: dict[str, str] = {}
    quick: dict[str, list[str] | None] = {}
    rows: dict[str, Entry]


@dataclass(frozen=True, slots=True)
class Study:
    """Targets by system, with an entry for each by target id.

    Attributes:
        overrides: by experiment, the settings that are added to its own.
        form: the form of the scorecard in words, such as "in full".
        with_interpretations: True if NIRVANA's alternative interpretations and its observations are included.
        hits: see Content.
        declared, curves, plotted: see Content.
        seeds: by experiment, the seeds of the column of the mechanism; an experiment without has its own.
    """

    targets: Targets
    entries: Mapping[str, Entry]
    overrides: Mapping[str, Sequence[str]]
    form: str
    with_interpretations: bool = False
    hits: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    seeds: Mapping[str, Sequence[int]] = field(default_factory=dict)
    declared: Mapping[str, Sequence[Declared]] = field(default_factory=dict)
    curves: Mapping[str, Sequence[Curve]] = field(default_factory=dict)
    plotted: Mapping[str, str] = field(default_factory=dict)

    def entry(self, target: str) -> Entry:
        """Return the entry of a target by its id."""
        return self.entries.get(target) or Entry()

    def in_layer(self, layer: Layer) -> dict[str, list[Target]]:
        """Return the targets of a layer, by system."""
        return {
            system: [target for target in listed if self.entry(target.id).includes(layer)]
            for system, listed in self.targets.items()
        }

    def in_column(self, column: ColumnTrace) -> dict[str, list[Target]]:
        """Return the targets that a column compares, by system."""
        targets = self.in_layer(column.layer)
        return {name: targets[name] for name in targets if column.encoder is None or name in COMPARE_TEXTS}

    def experiments(self, column: ColumnTrace) -> dict[str, str]:
        """Return the experiments of a column's targets, each with the system of its targets.

        The built-in trace has none of those that need real prompts.
        """
        systems: dict[str, str] = {}
        for system, listed in self.in_column(column).items():
            for entry in (self.entry(target.id) for target in listed):
                if entry.measure is not None and not (column.path is None and entry.real_prompts):
                    systems |= dict.fromkeys(entry.experiments, system)
        return systems | dict.fromkeys(INTERPRETED if self.is_interpreted(column) else (), "nirvana")

    def is_interpreted(self, column: ColumnTrace) -> bool:
        """Return True if a column has NIRVANA's alternative interpretations and observations."""
        return self.with_interpretations and column.layer == "ground" and column.encoder is None

    def added(self, experiment: str, column: ColumnTrace) -> tuple[str, ...]:
        """Return the overrides that ``column`` adds to ``experiment``; in the mechanism's, its seeds."""
        own = [*self.overrides.get(experiment, ())]
        if column.layer == "mechanism" and experiment in self.seeds:
            own.append(f"seed={','.join(map(str, self.seeds[experiment]))}")
        return column.overrides(experiment, own)

    def points(self, column: ColumnTrace) -> list[Point]:
        """Return the runs of a column; a column of the mechanism declares the hits of those whose cache may be."""
        entries = [entry for entry in self.entries.values() if entry.both and entry.measure is not None]
        simulated = {name for entry in entries for name in entry.experiments}
        points: list[Point] = []
        for name, system in self.experiments(column).items():
            is_declared = column.layer == "mechanism" and name not in simulated
            hits = self.hits.get(system) if is_declared else None
            swept = sweep(name, self.added(name, column))
            points += [with_hits(point, hits) for point in swept] if hits else swept
        return points


def load_content(path: Path) -> Content:
    """Read how the targets are measured and explained. Raises ConfigError as ``read_data``."""
    content: Content = read_data(path, Content)
    words: dict[str, str] = {}
    for name, text in content.words.items():
        words[name] = text.format(**words)
    rows = {
        name: entry.model_copy(
            update={"fixed_by": entry.fixed_by.format(**words), "basis": entry.basis.format(**words)}
        )
        for name, entry in content.rows.items()
    }
    return content.model_copy(update={"rows": rows})


def load_study(system: str | None, *, quick: bool) -> Study:
    """Load the project's targets of one system or all. Raises ConfigError: no such system, or a malformed file."""
    targets = load_targets(DATA / "targets.yaml")
    content = load_content(DATA / "scorecard.yaml")
    if system is not None:
        if system not in targets:
            studies = [words.partition(" ")[2] for words in COMMANDS if words.startswith("reproduce ")]
            hint = suggest(system, [*targets, *studies], "mezzotint reproduce --help")
            raise ConfigError(f"reproduce: found the system {system!r}; {hint}")
        targets = {system: targets[system]}
    if not quick:
        named = {name for entry in content.rows.values() for name in entry.experiments}
        seeds = dict.fromkeys(sorted(named - content.own_seeds.keys()), content.seeds)
        return Study(
            targets,
            content.rows,
            {},
            "in full",
            "nirvana" in targets,
            content.hits,
            seeds,
            content.declared,
            content.curves,
            content.plotted,
        )
    added = {name: words for name, words in content.quick.items() if words is not None}
    excluded = content.quick.keys() - added.keys()
    unmeasured = {"measure": None, "experiments": (), "fixed_by": "", "basis": ""}
    entries = {
        name: entry if excluded.isdisjoint(entry.experiments) else entry.model_copy(update=unmeasured)
        for name, entry in content.rows.items()
    }
    form = "quick form: small traces, for watching changes only"
    return Study(targets, entries, added, form, hits=content.hits, declared=content.declared)
