"""The whole scorecard: from what is to be compared to the files that say how it went."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from pydantic import BaseModel, TypeAdapter, ValidationError

from conf.atomic import atomic_files
from sim.errors import ConfigError
from sim.study.scorecard import nirvana, page
from sim.study.scorecard.figure import draw
from sim.study.scorecard.measures import Measured
from sim.study.scorecard.points import sweep
from sim.study.scorecard.rows import Row, score
from sim.study.scorecard.runner import finish
from sim.study.scorecard.targets import Targets, load_reasons, load_targets, read_yaml
from sim.study.scorecard.verdict import Verdict

MEASURES: Mapping[str, Measured] = {**nirvana.MEASURES}
"""Of all systems."""

Overrides = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Study:
    """What is to be compared.

    Attributes:
        targets: by system.
        measures: target id -> how it is measured.
        reasons: target id -> why it is missed.
        overrides: experiment -> what is set beside its own settings.
        form: what this form of the scorecard is, in words.
    """

    targets: Targets
    measures: Mapping[str, Measured]
    reasons: Mapping[str, str]
    overrides: Overrides
    form: str

    @property
    def experiments(self) -> list[str]:
        """The experiments behind the targets, each once."""
        ids = [target.id for listed in self.targets.values() for target in listed]
        named = [name for each in ids if each in self.measures for name in self.measures[each].experiments]
        return list(dict.fromkeys(named))


@dataclass(frozen=True, slots=True)
class Card:
    """A finished scorecard: its rows, and the commands that could not be run by the error that they met."""

    study: Study
    rows: list[Row]
    failed: dict[str, list[str]]


def study(system: str | None, *, quick: bool) -> Study:
    """The project's own targets: of one system, or of all.

    Raises:
        ConfigError: no such system, or a file in conf/data that is malformed.
    """
    data = Path(str(resources.files("conf"))) / "data"
    targets = load_targets(data / "targets.yaml")
    reasons = load_reasons(data / "scorecard-reasons.yaml", targets)
    if system is not None:
        if system not in targets:
            raise ConfigError(f"scorecard: found the system {system!r}, expected one of {', '.join(targets)}")
        targets = {system: targets[system]}
    if not quick:
        return Study(targets, MEASURES, reasons, {}, "in full")
    overrides = _overrides(data / "scorecard-quick.yaml")
    said = Study(targets, MEASURES, reasons, overrides, "quick form: small traces, for watching changes only")
    for name in said.experiments:
        if name not in overrides:
            raise ConfigError(f"{data / 'scorecard-quick.yaml'}: {name} is missing; say what makes it quick")
    return said


def make(study: Study, work: Path, jobs: int = 1) -> Card:
    """Run what is not finished yet under ``work``, in ``jobs`` processes, and compare.

    Raises:
        ConfigError: ``work`` cannot be used.
    """
    points = [point for name in study.experiments for point in sweep(name, study.overrides.get(name, ()))]
    runs = finish(points, work, jobs)
    rows = score(study.targets, study.measures, runs, study.reasons, study.overrides)
    failed: dict[str, list[str]] = {}
    for point, error in runs.failed():
        failed.setdefault(error, []).append(point.command)
    return Card(study, rows, failed)


def write(card: Card, folder: Path, name: str) -> list[Path]:
    """Write ``name``.md, .json and .png in ``folder``, all or none of them; returns their paths.

    Where nothing was simulated there is no figure, and that of an earlier call is removed.

    Raises:
        ConfigError: the folder cannot be made, or a file not written; the message names it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be used ({error.strerror}); name another folder with -o") from None
    markdown, data, image = (folder / f"{name}.{kind}" for kind in ("md", "json", "png"))
    figure = draw(card.rows)
    drawn, gone = ([], [image]) if figure is None else ([image], [])
    with atomic_files([*drawn, data, markdown], ConfigError, gone) as (*images, rows, text):
        if figure is not None:
            figure.savefig(images[0], format="png")
        plain = {"rows": [row.plain() for row in card.rows]}
        rows.write_text(json.dumps(plain, indent=1, allow_nan=False, ensure_ascii=False) + "\n", encoding="utf-8")
        text.write_text(page.render(card.rows, card.study.form, None if figure is None else image.name), "utf-8")
    return [markdown, data, *([] if figure is None else [image])]


class _Verdicts(BaseModel):
    class Row(BaseModel):
        id: str
        system: str
        verdict: Verdict

    rows: list[Row]


def lost(before: Path, rows: Sequence[Row]) -> list[str]:
    """What held in the scorecard ``before`` (its JSON) and is not held in ``rows``, a line each.

    Only systems that ``rows`` are about are compared.

    Raises:
        ConfigError: there is no such scorecard, or it is not one.
    """
    try:
        known = _Verdicts.model_validate_json(before.read_bytes()).rows
    except OSError as error:
        raise ConfigError(f"{before}: cannot be read ({error.strerror}); make it once without --check") from None
    except ValidationError as error:
        raise ConfigError(f"{before}: is no scorecard ({error.errors()[0]['msg']}); make it again") from None
    now = {row.id: row for row in rows}
    systems = {row.system for row in rows}
    lines = []
    for was in known:
        if was.system not in systems or was.verdict != "held":
            continue
        row = now.get(was.id)
        if row is None:
            lines.append(f"{was.id} held and is no target any more")
        elif row.verdict != "held":
            lines.append(
                f"{was.id} held and is {row.verdict}: {row.what}: paper {page.number(row.paper)}, "
                f"ours {page.number(row.ours)} ({row.reason})"
            )
    return lines


def _overrides(path: Path) -> dict[str, list[str]]:
    try:
        return TypeAdapter(dict[str, list[str]]).validate_python(read_yaml(path))
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise ConfigError(f"{path}: {where}: expected a list of overrides for each experiment") from None
