"""Running what is not there yet: every point once, its directory named after what its results follow from."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from hydra.errors import HydraException
from joblib import Parallel, delayed
from omegaconf.errors import OmegaConfBaseException
from tqdm import tqdm

from sim.core.errors import REFUSED
from sim.core.run_folder import check_place
from sim.papers.scorecard.finished import Finished, Runs, read_finished
from sim.papers.scorecard.key import digest
from sim.papers.scorecard.points import Config, Point, composed
from sim.run.simulate import simulate, write
from sim.run.termination import workers_end_with_us


def finish(points: Sequence[Point], work: Path, jobs: int = 1) -> Runs:
    """Run those of ``points`` that are not finished, and hand all of them back.

    A point lies in ``work/DIGEST``, so points of equal configuration are one run, and what an interrupted call
    finished is not run again. A point that cannot be run takes nothing but its own rows from a scorecard: its error
    stands in its place. ``jobs`` is the number of worker processes.

    Raises ConfigError: ``work`` cannot be written.
    """
    check_place(work)
    planned: list[tuple[Point, Path, Config | str]] = []
    for point in points:
        try:
            config = composed(point)
            planned.append((point, work / digest(config), config))
        except (HydraException, OmegaConfBaseException) as error:
            planned.append((point, work, _line(error)))

    def outcome(point: Point, folder: Path, config: Config | str) -> Finished | str | None:
        return config if isinstance(config, str) else read_finished(point, config, folder)

    waiting = {each[1]: each[2] for each in planned if not isinstance(each[2], str) and outcome(*each) is None}
    errors = _run_all(waiting, jobs)
    return Runs(tuple((each[0], outcome(*each) or errors[each[1]]) for each in planned))


def _run_all(waiting: Mapping[Path, Config], jobs: int) -> dict[Path, str]:
    errors = {}
    workers_end_with_us()
    with tqdm(total=len(waiting), unit="run", desc="scorecard", disable=None if waiting else True) as bar:
        for batch in _batches(waiting):
            calls = (delayed(_run)(folder, waiting[folder]) for folder in batch)
            for folder, error in Parallel(n_jobs=jobs, return_as="generator_unordered")(calls):
                bar.update()
                if error is not None:
                    errors[folder] = error
    return errors


def _run(folder: Path, config: Config) -> tuple[Path, str | None]:
    """One run, here or in a worker process: its folder, and the error it ended with."""
    try:
        write(simulate(config), folder)
    except REFUSED as error:
        return folder, _line(error)
    return folder, None


def _batches(waiting: Mapping[Path, Config]) -> list[list[Path]]:
    """First one run of each trace, encoder and space, which remembers the similarities, then all that read them."""
    first: dict[str, Path] = {}
    for folder, config in waiting.items():
        told = [config["trace"], config["seed"], config["encoder"], config["search"], config.get("space")]
        first.setdefault(json.dumps(told, sort_keys=True), folder)
    leading = list(first.values())
    return [leading, [folder for folder in waiting if folder not in leading]]


def _line(error: Exception) -> str:
    return " ".join(str(error).split("Available options")[0].split())
