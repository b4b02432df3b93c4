"""Points of a sweep, and the launcher that its command line chooses."""

from pathlib import Path

import pytest

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.run.config.compose import OURS, Files
from mezzotint.sim.run.config.points import points


@pytest.mark.parametrize(
    ("words", "launcher", "jobs"),
    [
        ([], "joblib", -1),
        (["++hydra.launcher.n_jobs=2"], "joblib", 2),
        (["hydra/launcher=joblib"], "joblib", -1),
        (["hydra/launcher=ray"], "ray", 6),
        (["hydra/launcher=ray", "++hydra.launcher.n_jobs=3"], "ray", 3),
        (["hydra/launcher=submitit_slurm"], "slurm", 256),
        (["hydra/launcher=submitit_local", "++hydra.launcher.array_parallelism=4"], "submitit_local", 4),
    ],
)
def test_points_are_all_combinations_and_run_where_the_launcher_says(
    words: list[str], launcher: str, jobs: int
) -> None:
    made = points(["seed=1,2", "eviction=fifo,lru,lfu", "system=nirvana", *words], OURS)
    assert len(made.overrides) == 6
    assert len({tuple(point) for point in made.overrides}) == 6
    assert (made.launcher, made.jobs) == (launcher, jobs)


@pytest.mark.parametrize(
    "words",
    [
        ["hydra/launcher=ray", "++hydra.launcher.n_jobs=-1"],
        ["hydra/launcher=submitit_local", "++hydra.launcher.array_parallelism=-3"],
        ["hydra/launcher=submitit_local", "++hydra.launcher.array_parallelism=many"],
        ["++hydra.launcher.n_jobs=-2"],
    ],
)
def test_number_of_jobs_that_the_launcher_cannot_take_is_refused(words: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"hydra.launcher: found .* runs at a time, expected a number from 1 on"):
        points(["seed=1,2", *words], OURS)


def test_launcher_of_an_experiment_is_refused(tmp_path: Path) -> None:
    """It would run elsewhere than the command line says, or be ignored."""
    (tmp_path / "experiment").mkdir()
    file = tmp_path / "experiment" / "mine.yaml"
    file.write_text("# @package _global_\ndefaults: [{override /hydra/launcher: submitit_slurm}]\n")
    with pytest.raises(ConfigError, match=r"hydra.launcher: found .* remove it from the file, and choose launchers on"):
        points(["experiment=mine", "seed=1,2"], Files(groups=tmp_path))
