"""`mezzotint trace import SOURCE`: the known sources, and a command for each with its arguments as options."""

import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import typer
from typer.models import ParameterInfo

import mezzotint.traces.sources
from mezzotint.files.atomic import check_ours, check_target
from mezzotint.settings.suggest import suggest
from mezzotint.traces.error import TraceError
from mezzotint.traces.sources import Streamed, logged
from mezzotint.traces.sources.interpret import SAID
from mezzotint.traces.sources.published import LOGS
from mezzotint.traces.table.ingest import store
from mezzotint.traces.table.limits import Limits
from mezzotint.traces.table.trace import METADATA_KEY, Trace

Out = Annotated[Path, typer.Option("-o", "--out", metavar="OUT", help="The Parquet file to write.")]
Name = Annotated[str | None, typer.Option(help="Name of the trace in reports.")]
Seed = Annotated[int, typer.Option(min=0, metavar="N", help="Seed of all random values.")]


def sources() -> dict[str, type[Streamed]]:
    """Return the sources by name: published logs, forms of logs, the classes of this package by `NAME` or module."""
    modules = [
        import_module(f"mezzotint.traces.sources.{module.name}")
        for module in pkgutil.iter_modules(mezzotint.traces.sources.__path__)
    ]
    own = {
        getattr(kind, "NAME", module.__name__.rpartition(".")[2].replace("_", "-")): kind
        for module in modules
        for kind in vars(module).values()
        if isinstance(kind, type) and kind.__module__ == module.__name__ and Streamed in kind.__mro__
    }
    return dict(sorted({**own, **LOGS, **logged.SOURCES}.items()))


def import_from(word: str | None) -> Callable[..., None]:
    """Make a trace of a table or a log: return the command of the source ``word``, of all sources if it is None.

    ``word`` is a name of `sources` (csv is another word for table), or module.Class of a module on Python's path or in
    the working directory. Raises TraceError for another word.
    """
    known = sources()
    word = "table" if word == "csv" else word
    if word is None:
        return _overview(known)
    if word not in known and "." in word:
        return _command(_class(word))
    if word not in known:
        raise TraceError(f"trace import: found {word!r}; {suggest(word, known)}, or give module.Class of your own")
    return _command(known[word])


def _overview(known: Mapping[str, type[Streamed]]) -> Callable[[], None]:
    def overview() -> None:
        raise TraceError(f"trace import: expected the name of a source, one of {', '.join(known)}")

    lines = (f"{name}: {(inspect.getdoc(kind) or '').splitlines()[0]}" for name, kind in known.items())
    overview.__doc__ = "\n\n".join(
        ["Make a trace of a table or a log. Name its kind next; --help after it lists the options.",
         *lines, "module.Class: a source of your own."]
    )  # fmt: skip
    return overview


def _class(word: str) -> type[Streamed]:
    """Return the class that module.Class names, of a module on Python's path or in the working directory."""
    module, _, name = word.rpartition(".")
    sys.path.insert(0, str(Path.cwd()))
    try:
        kind = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError, TypeError) as error:  # the last two: a module without a name
        raise TraceError(f"trace import: found {word!r}, which cannot be imported ({error})") from error
    finally:
        del sys.path[0]
    if not isinstance(kind, type) or not hasattr(kind, "read"):
        raise TraceError(
            f"trace import: found {word!r}, expected a class with read (see mezzotint.traces.sources.Streamed)"
        )
    return kind


def _command(kind: Callable[..., Streamed]) -> Callable[..., None]:
    """Return a function whose parameters are the arguments of `kind` and of `Limits`, for Typer to call."""
    own, limits = _parameters(kind), _parameters(Limits)
    options = {name: get_args(parameter.annotation)[1] for name, parameter in own.items()}
    mappings = {name: info for name, info in options.items() if "=" in (info.metavar or "")}

    def run(out: Path, name: str | None, seed: int, **given: Any) -> None:
        check_out(out)
        arguments: dict[str, Any] = {
            key: _mapping(value, mappings[key]) if key in mappings else value
            for key, value in given.items()
            if value is not None and value is not False and value != []  # the class has the defaults
        }
        bounds = Limits(**{key: arguments.pop(key) for key in limits if key in arguments})
        reading = kind(**arguments, limits=bounds).read(np.random.default_rng(seed))
        reading.name = name or reading.name
        reading.notes["seed"] = seed
        trace = store(reading, out)
        for line in reading.notes.get(SAID, []):
            print(line)
        report(trace)
        for reason, rows in reading.notes.get("skipped", {}).items():
            if rows:
                print(f"skipped {rows:,} rows of the source: {reason}")
        if "arrival_s" in reading.notes:
            print(f"arrival times are not the source's own: {reading.notes['arrival_s']}")

    parameters = [
        *own.values(),
        Parameter("out", Parameter.KEYWORD_ONLY, annotation=Out),
        Parameter("name", Parameter.KEYWORD_ONLY, annotation=Name, default=None),
        Parameter("seed", Parameter.KEYWORD_ONLY, annotation=Seed, default=0),
        *limits.values(),
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__doc__ = inspect.getdoc(kind)
    return run


def _parameters(kind: Any) -> dict[str, Parameter]:
    """Return the arguments of a class as parameters of a command, without name and limits."""
    hints = get_type_hints(kind.__init__, include_extras=True)
    section = (inspect.getdoc(kind) or "").partition("\nArgs:\n")[2].partition("\n\n")[0]
    help_of = dict(re.findall(r"^    (\w+): (.*?)(?=\n    \w|\Z)", section, re.MULTILINE | re.DOTALL))
    return {
        name: _parameter(name, hints[name], given.default is given.empty, " ".join(help_of.get(name, "").split()))
        for name, given in inspect.signature(kind).parameters.items()
        if name not in ("name", "limits")
    }


def _parameter(name: str, hint: Any, is_required: bool, text: str) -> Parameter:
    """Return the argument PATH or an option with the help `text`; an absent one is None or False, for the class."""
    plain, *metadata = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    if name == "path":
        hint, info = Path, typer.Argument(metavar="PATH", help=text)
    else:
        own = next((data for data in metadata if isinstance(data, ParameterInfo)), None)
        word = None if plain is bool or get_origin(plain) is Literal else name.rpartition("_")[2].upper()
        info = own or typer.Option(f"--{name.replace('_', '-')}", metavar=word, help=text)
        info.help = info.help or text
    if get_origin(plain) is dict:
        hint = list[str]
    default = Parameter.empty if is_required else (False if plain is bool else None)
    annotation = hint if plain is bool else hint | None  # Typer keeps the range of Annotated inside a union
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[annotation, info])


def _mapping(pairs: list[str], option: ParameterInfo) -> dict[str, str]:
    """Return NAME=VALUE words of an option as a mapping."""
    mapping: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        word = f"{option.default} {pair}"
        if not name or not equals:
            example = "prompt=text" if option.default == "--map" else "latency=ms"
            raise TraceError(f"{word}: expected {option.metavar}, for example {example}")
        if name in mapping:
            raise TraceError(f"{word}: {name} is mapped to {mapping[name]!r} already; map it once")
        mapping[name] = value
    return mapping


def check_out(out: Path) -> None:
    """Raise TraceError for a path that no trace can be written to, before the work is done."""
    check_target(out, TraceError)
    check_ours(out, TraceError, "a trace", b"PAR1", METADATA_KEY)


def report(trace: Trace) -> None:
    """Print the file, size and digest of a written trace."""
    print(f"{trace.path}: {len(trace):,} requests over {trace.span_s / 60:,.1f} min, digest {trace.digest[:12]}")
