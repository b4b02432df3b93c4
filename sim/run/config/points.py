"""The points of a sweep: every combination of the values that the command line names, run by a launcher of Hydra's."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.core.utils import JobRuntime, env_override, setup_globals
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from sim.core.errors import ConfigError
from sim.run.config.choices import choices
from sim.run.config.compose import Files, composed
from sim.run.config.override import of_hydra


def points(words: Sequence[str], config: DictConfig, files: Files) -> list[list[str]]:
    """Return the overrides of each point of a sweep, in the order of the values.

    Args:
        words: overrides, of which some name several values.
        config: the sweep as a whole (``whole``); an experiment in it may bring a sweep of its own.

    Raises:
        HydraException: an override cannot be read.
        ConfigError: an interval has no values.
    """
    tasks = [word for word in words if not of_hydra(word)]
    params = OmegaConf.to_container(config.hydra.sweeper).get("params") or {}  # type: ignore[union-attr]
    chosen = {word.lstrip("+~").partition("=")[0] for word in tasks}  # of which the sweep of an experiment is replaced
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


def whole(words: Sequence[str], files: Files) -> DictConfig:
    """Compose a sweep as a whole, without what varies, and with Hydra's settings."""
    read = OverridesParser.create().parse_overrides(list(words))
    fixed = [word for word, override in zip(words, read, strict=True) if not override.is_sweep_override()]
    return composed(fixed, files, hydra_too=True, check=False)


def launch(task: TaskFunction, config: DictConfig, overrides: Sequence[Sequence[str]], files: Files) -> None:
    """Run ``task`` on the point of each ``overrides``, with the launcher that ``config`` chooses (see ``whole``).

    Raises what a point raises.
    """
    setup_globals()
    JobRuntime.instance().set("name", "mezzotint")
    # Worker processes take our path over, and would look in the working directory before it.
    with env_override({"PYTHONSAFEPATH": "1"}):
        launcher = Plugins.instance().instantiate_launcher(
            hydra_context=HydraContext(Composer(files), _NoCallbacks()), task_function=task, config=config
        )
        for outcome in launcher.launch(overrides, initial_job_idx=0):
            outcome.return_value  # noqa: B018  (raises what the point raised)


@dataclass(frozen=True, slots=True)
class Composer(ConfigLoader):  # type: ignore[misc]
    """What a launcher composes a point with (Hydra's interface), here or in a worker process."""

    files: Files

    def load_sweep_config(self, master_config: DictConfig, sweep_overrides: list[str]) -> DictConfig:
        """Compose a point; what the sweep resolved once, such as its date, stays."""
        hydras: Any = OmegaConf.to_container(master_config.hydra.overrides.hydra)
        config = composed([*hydras, *sweep_overrides], self.files, hydra_too=True)
        OmegaConf.copy_cache(from_config=master_config, to_config=config)
        return config

    def get_group_options(self, group_name: str, *_: Any, **__: Any) -> list[str]:
        """Return the choices of a group, for a glob among the overrides."""
        return [choice.name for choice in choices(group_name, self.files.groups)]

    def _unused(self, *_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError("no launcher asks for it")

    load_configuration = get_search_path = get_sources = list_groups = compute_defaults_list = _unused


class _NoCallbacks:
    def on_job_start(self, **_: Any) -> None:
        pass

    def on_job_end(self, **_: Any) -> None:
        pass
