"""Run simulations and sweeps, load finished ones, and list the choices."""

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from reprlib import repr as shortened
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from omegaconf.errors import OmegaConfBaseException

from mezzotint.arguments import as_path, as_texts
from mezzotint.frames import path_of
from mezzotint.results import Run, Sweep
from mezzotint.settings.suggest import suggest
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.run_folder import SUMMARY
from mezzotint.sim.run.config import choices as config_choices
from mezzotint.sim.run.config.compose import Files, compose_config, resolve_config
from mezzotint.sim.run.config.options import prepare_overrides
from mezzotint.sim.run.config.plugins import allow_plugins
from mezzotint.sim.run.refusal import explain
from mezzotint.sim.run.simulate import simulate_into
from mezzotint.sim.verbs import sweep as run_sweep

if TYPE_CHECKING:
    import pandas as pd


def run(
    *overrides: str,
    folder: str | Path | None = None,
    config_dir: str | Path | None = None,
    plugins: str | Sequence[str] = (),
    progress: bool = False,
    **keys: Any,
) -> Run:
    """Run one simulation.

    Args:
        overrides: ``KEY=VALUE`` as on the command line, such as ``"system=nirvana"``.
        folder: the run folder to write; None writes a temporary one, which goes with the result.
        config_dir: a folder with configuration groups of your own.
        plugins: modules whose classes the configuration may name.
        progress: show a progress bar, on a terminal.
        keys: overrides without dots, such as ``seed=3``, or ``trace=`` a file or a pandas frame; others by
            ``**{"arrivals.rate_rpm": 20}``.

    Raises:
        ConfigError, TraceError, BackendError: the input cannot be used; the message says where and what to do.
        SimulationError: a policy did what cannot be; the message names it.
    """
    temporary, place = _place(folder)
    with allow_plugins(as_texts("plugins", plugins)), _as_config_errors():
        words = prepare_overrides([*_words(overrides), *_overrides(keys), f"run.dir={place}"])
        plain = resolve_config(compose_config(words, _files(config_dir)))
        _, path, _ = simulate_into(plain, place, progress=progress)
    return Run(path, _temporary=temporary)


def sweep(
    *overrides: str,
    folder: str | Path | None = None,
    jobs: int = 1,
    config_dir: str | Path | None = None,
    plugins: str | Sequence[str] = (),
    progress: bool = False,
    **keys: Any,
) -> Sweep:
    """Run every combination of comma-separated values, such as ``"system=vanilla,nirvana"``.

    Args:
        folder: the sweep's folder; the same call on it goes on where an interrupted one stopped. None: temporary.
        jobs: simulations at a time.
        progress: print the result of each run as it ends.

    The other arguments are those of ``run``. Raises what ``run`` raises, and ConfigError if a point failed.
    """
    temporary, place = _place(folder)
    words = [*_words(overrides), *_overrides(keys), f"run.dir={place}", f"hydra.launcher.n_jobs={jobs}"]
    shown = nullcontext() if progress else redirect_stdout(io.StringIO())
    with allow_plugins(as_texts("plugins", plugins)), _as_config_errors(), shown:
        if run_sweep(prepare_overrides(words), _files(config_dir)):
            raise ConfigError(f"{place}: a point of the sweep failed; its message is above")
    return Sweep.of(place, temporary)


def load(folder: str | Path) -> Run | Sweep:
    """Load a run folder, or a folder of runs as a Sweep. Raises ConfigError if it holds no run."""
    path = as_path("folder", folder)
    return Run(path) if (path / SUMMARY).is_file() else Sweep.of(path)


def choices(group: str | None = None, config_dir: str | Path | None = None) -> "pd.DataFrame":
    """Return the choices of a configuration group, or the groups: columns ``name`` and ``description``.

    Raises ConfigError for a group that does not exist.
    """
    import pandas as pd

    if group is None:
        rows = [(name, each.line) for name, each in config_choices.groups().items()]
    elif not isinstance(group, str):
        raise ConfigError(f"group: found {shortened(group)}, expected the name of a group; choices() returns all")
    elif group not in config_choices.groups():
        raise ConfigError(f"{group}: is no group; {suggest(group, config_choices.groups(), 'mezzotint list')}")
    else:
        own = None if config_dir is None else as_path("config_dir", config_dir)
        rows = [(each.name, each.line) for each in config_choices.choices(group, own)]
    return pd.DataFrame(rows, columns=["name", "description"])


def _files(config_dir: str | Path | None) -> Files:
    return Files(None if config_dir is None else as_path("config_dir", config_dir))


def _place(folder: str | Path | None) -> tuple["TemporaryDirectory[str] | None", Path]:
    if folder is not None:
        return None, as_path("folder", folder)
    temporary = TemporaryDirectory(prefix="mezzotint-", ignore_cleanup_errors=True)
    return temporary, Path(temporary.name) / "run"


@contextmanager
def _as_config_errors() -> Iterator[None]:
    """Raise ConfigError, in the words of the command line, for errors of the libraries that read configurations."""
    from hydra.errors import HydraException

    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(explain(error)) from error


def _words(overrides: Sequence[Any]) -> Sequence[str]:
    """Return the overrides. Raises ConfigError for one that is no text."""
    for word in overrides:
        if not isinstance(word, str):
            found = f'found {type(word).__name__} ({shortened(word)}), expected text such as "seed=3"'
            raise ConfigError(f"{found}; write a list as run(*words) and a mapping as run(**keys)")
    return overrides


def _overrides(keys: Mapping[str, Any]) -> list[str]:
    """Spell Python values as the command line does; a file or a frame as ``trace`` is the trace of a file."""
    if "trace" in keys and not _is_choice(keys["trace"]):
        file = json.dumps(str(path_of(keys["trace"])), ensure_ascii=False)
        return ["trace=file", f"trace.path={file}", *_overrides({k: v for k, v in keys.items() if k != "trace"})]
    return [f"{key}={value if isinstance(value, str) else _spelled(key, value)}" for key, value in keys.items()]


def _is_choice(trace: Any) -> bool:
    """Return True for a name in the group ``trace``, which has no suffix, and False for a file or a frame."""
    return isinstance(trace, str) and not (Path(trace).suffix or Path(trace).is_file())


def _spelled(key: str, value: Any) -> str:
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{name}:{_spelled(key, each)}" for name, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(_spelled(key, each) for each in value) + "]"
    if isinstance(value, Path):
        return str(value)
    try:
        return json.dumps(value)
    except TypeError:
        found = f"found {type(value).__name__} ({shortened(value)})"
        raise ConfigError(f"{key}: {found}, expected text, a number, a list or a mapping; convert it") from None
