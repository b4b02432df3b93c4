"""Keys of finished runs: digests of what a run's results follow from, so that a cleanup of the code keeps them."""

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import pyarrow as pa

from backends.profile import find, shipped
from conf.document import parse
from sim.engine import ARITHMETIC
from sim.metrics.cost import list_prices
from sim.papers.scorecard.points import Config, Point, composed
from sim.run.simulate import simulate
from traces.error import TraceError
from traces.table.trace import about

PROBES = (
    ("system=nirvana-no-predictor", "trace.requests=150", "preload=100"),
    ("system=modm-quality", "trace.requests=150", "preload=100"),
    (
        "experiment=patchedserve-evaluation",
        "latency_predictor=known",
        "models=sdxl",
        "arrivals.rate_rpm=60",
        "trace.requests=60",
    ),
    ("experiment=swiftdiffusion-production", "system=swiftdiffusion", "trace.requests=60"),
)
"""Small runs, 1.5 CPU-s together, of caches, a controller, batches by step and add-ons."""


def digest(config: Config) -> str:
    """Return the key of a run, 16 hex digits: of its configuration, the content of its files, and the arithmetic."""
    backend = config.get("backend", {})
    said = {key: _by_content(value) for key, value in config.items() if key not in ("run", "backend")}
    said["backend"] = {key: value for key, value in backend.items() if key != "folder"}
    beside = [repr(list_prices()), settings("trace"), _profiles(str(backend.get("gpu")), backend.get("folder"))]
    return joined(arithmetic(), beside, said)


@cache
def arithmetic() -> str:
    """Return the digest of ``ARITHMETIC``, and of the results of `PROBES` in case nobody raised it."""
    found = []
    for words in PROBES:
        outcome = simulate(composed(Point("", {}, words)) | {"run": {"dir": "unnamed"}})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, outcome.requests.schema) as stream:
            stream.write_table(outcome.requests)
        numbers = {key: value for key, value in outcome.summary.items() if key not in ("wall", "assumptions")}
        found.append([hashlib.sha256(sink.getvalue()).hexdigest(), numbers])
    return joined(ARITHMETIC, found)


@cache
def settings(*groups: str) -> dict[str, Any]:
    """Return the parsed YAML files of conf, by path: of these groups, or of all; comments do not count."""
    conf, found = Path(str(resources.files("conf"))), {}
    for file in sorted(conf.rglob("*.yaml")):
        name = file.relative_to(conf)
        if name.parts[0] in groups or not (groups or name.parts[0] == "data"):  # targets are judged at every writing
            text = file.read_text(encoding="utf-8")
            package = [line for line in text.splitlines() if line.startswith("# @package")]
            found[str(name)] = [package, parse(text)]
    return found


@cache
def _profiles(gpu: str, folder: str | None) -> str:
    found = find(gpu, [shipped(), *([] if folder is None else [Path(folder)])])
    return joined({model: profile.model_dump_json() for model, profile in found.items()})


def _by_content(value: Any) -> Any:
    """Return ``value`` with the digest of its content in the place of every file that it names."""
    if isinstance(value, Mapping):
        return {key: _by_content(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_by_content(each) for each in value]
    return _content(value) if isinstance(value, str) else value


def _content(text: str) -> str:
    path = Path(text).expanduser()
    try:
        return about(path)[1] if path.is_file() else text
    except (TraceError, OSError):  # no trace: the run refuses it with its own error, or reads it as what it is
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else text


def joined(*what: Any) -> str:
    return hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()[:16]
