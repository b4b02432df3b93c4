"""The points of a sweep: every combination of the values that the command line names, run by a launcher of Hydra's."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.core.utils import JobRuntime, env_override, setup_globals
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.run.config.choices import choices
from mezzotint.sim.run.config.compose import Files, composed
from mezzotint.sim.run.config.override import of_hydra
from mezzotint.sim.run.pool import join_ray, lost_workers
from mezzotint.sim.run.termination import ending_without


def points(words: Sequence[str], config: DictConfig, files: Files) -> list[list[str]]:
    """Return the overrides of each point of a sweep, in the order of the values.

    Args:
        words: overrides, some with several values.
        config: the sweep's configuration (``sweep_config``); an experiment in it may add parameters.

    Raises:
        HydraException: an override cannot be read.
        ConfigError: an interval has no values.
    """
    tasks = [word for word in words if not of_hydra(word)]
    params = OmegaConf.to_container(config.hydra.sweeper).get("params") or {}  # type: ignore[union-attr]
    chosen = {word.lstrip("+~").partition("=")[0] for word in tasks}  # these replace parameters of an experiment
    given = [f"{key}={value}" for key, value in params.items() if str(key).lstrip("+~") not in chosen] + tasks
    lists: dict[str, list[str]] = {}
    for word, override in zip(given, OverridesParser.create(Composer(files)).parse_overrides(given), strict=True):
        key = override.get_key_element()
        if not override.is_sweep_override():
            lists[key] = [word]
        elif override.is_discrete_sweep():
            lists[key] = [f"{key}={value}" for value in override.sweep_string_iterator()]
        else:
            raise ConfigError(f"{key}: found {word.partition('=')[2]}, expected values with commas between them")
    return [list(point) for point in itertools.product(*lists.values())]


def sweep_config(words: Sequence[str], files: Files) -> DictConfig:
    """Compose the configuration of a sweep: its fixed overrides, with Hydra's settings."""
    overrides = OverridesParser.create().parse_overrides(list(words))
    fixed = [word for word, override in zip(words, overrides, strict=True) if not override.is_sweep_override()]
    return composed(fixed, files, hydra_too=True, check=False)


def launch(
    task: TaskFunction,
    config: DictConfig,
    overrides: Sequence[Sequence[str]],
    files: Files,
    alive: Path | None = None,
) -> None:
    """Run ``task`` on each point with the launcher of ``config`` (``sweep_config``).

    Args:
        alive: a file without which jobs of submitit end, since that launcher cancels none.

    Raises what a point raises.
    """
    launcher = str(config.hydra.runtime.choices["hydra/launcher"])
    if launcher.startswith("submitit"):
        task = _WhileAlive(task, alive)
    setup_globals()
    JobRuntime.instance().set("name", "mezzotint")
    # Worker processes inherit our path, and would search the working directory before it.
    with env_override({"PYTHONSAFEPATH": "1"}), lost_workers():
        if launcher == "ray":
            join_ray()  # Hydra's launcher then does not: it asks a cluster for memory, which recent versions refuse
        runner = Plugins.instance().instantiate_launcher(
            hydra_context=HydraContext(Composer(files), _NoCallbacks()), task_function=task, config=config
        )
        for outcome in runner.launch(overrides, initial_job_idx=0):
            outcome.return_value  # noqa: B018  (raises what the point raised)


@dataclass(frozen=True, slots=True)
class _WhileAlive:
    """A task whose process ends without the file ``alive``."""

    task: TaskFunction
    alive: Path | None

    def __call__(self, config: DictConfig) -> Any:
        with ending_without(self.alive):
            return self.task(config)


@dataclass(frozen=True, slots=True)
class Composer(ConfigLoader):  # type: ignore[misc]
    """Hydra's interface for launchers to compose a point, here or in a worker process."""

    files: Files

    def load_sweep_config(self, master_config: DictConfig, sweep_overrides: list[str]) -> DictConfig:
        """Compose a point, with values that the sweep resolved once, such as its date."""
        hydras: Any = OmegaConf.to_container(master_config.hydra.overrides.hydra)
        config = composed([*hydras, *sweep_overrides], self.files, hydra_too=True)
        OmegaConf.copy_cache(from_config=master_config, to_config=config)
        return config

    def get_group_options(self, group_name: str, *_: Any, **__: Any) -> list[str]:
        """Return the choices of a group, for a glob among the overrides."""
        return [choice.name for choice in choices(group_name, self.files.groups)]

    def _unused(self, *_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError("no launcher calls this")

    load_configuration = get_search_path = get_sources = list_groups = compute_defaults_list = _unused


class _NoCallbacks:
    def on_job_start(self, **_: Any) -> None:
        pass

    def on_job_end(self, **_: Any) -> None:
        pass
