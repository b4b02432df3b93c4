"""Run unfinished points, each once, in a folder named after the digest of its configuration."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException
from tqdm import tqdm

from mezzotint.sim.core.errors import REFUSED, ConfigError
from mezzotint.sim.core.run_folder import check_place
from mezzotint.sim.papers.scorecard.runs.finished import Finished, Runs, read_finished
from mezzotint.sim.papers.scorecard.runs.points import Config, Point, composed
from mezzotint.sim.run.pool import Launcher, run_calls
from mezzotint.sim.run.run_key import digest
from mezzotint.sim.run.simulate import simulate, write


def finish(points: Sequence[Point], work: Path, jobs: int = 1, launcher: Launcher = "joblib") -> Runs:
    """Run the unfinished points, and return the outcomes of all.

    A point's folder is ``work/DIGEST``, so points of equal configuration share one run, and an interrupted call does
    not repeat finished runs. The outcome of a point that fails is its error.
    ``jobs`` is the number of processes of ``launcher``.

    Raises ConfigError: ``work`` cannot be written.
    """
    check_place(work)
    planned: list[tuple[Point, Path, Config | str]] = []
    for point in points:
        try:
            config = composed(point)
            planned.append((point, work / digest(config), config))
        except (ConfigError, HydraException, OmegaConfBaseException) as error:
            planned.append((point, work, _line(error)))

    def outcome(point: Point, folder: Path, config: Config | str) -> Finished | str | None:
        return config if isinstance(config, str) else read_finished(point, config, folder)

    unfinished = {each[1]: each[2] for each in planned if not isinstance(each[2], str) and outcome(*each) is None}
    errors = _run_all(unfinished, jobs, launcher)
    return Runs(tuple((each[0], outcome(*each) or errors[each[1]]) for each in planned))


def _run_all(unfinished: Mapping[Path, Config], jobs: int, launcher: Launcher) -> dict[Path, str]:
    errors = {}
    with tqdm(total=len(unfinished), unit="run", desc="scorecard", disable=None if unfinished else True) as bar:
        for batch in _batches(unfinished):
            calls = [partial(_run, folder, unfinished[folder]) for folder in batch]
            for folder, error in run_calls(calls, jobs, launcher):
                bar.update()
                if error is not None:
                    errors[folder] = error
    return errors


def _run(folder: Path, config: Config) -> tuple[Path, str | None]:
    """Run one point, and return its folder and its error, if any."""
    try:
        write(simulate(config), folder)
    except REFUSED as error:
        return folder, _line(error)
    return folder, None


def _batches(unfinished: Mapping[Path, Config]) -> list[list[Path]]:
    """Put one run of each trace, encoder and similarity first: it computes the similarities that the others read."""
    first: dict[str, Path] = {}
    for folder, config in unfinished.items():
        parts = [config["trace"], config["seed"], config["encoder"], config["search"], config.get("similarity")]
        first.setdefault(json.dumps(parts, sort_keys=True), folder)
    leading = list(first.values())
    return [leading, [folder for folder in unfinished if folder not in leading]]


def _line(error: Exception) -> str:
    return " ".join(str(error).split("Available options")[0].split()) or type(error).__name__
