"""Keys of finished runs: digests of configuration, files and results of probes, which survive a refactoring."""

import hashlib
import json
import os
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import pyarrow as pa

from mezzotint.backends.profile import find, shipped
from mezzotint.files.document import parse
from mezzotint.sim.engine import RESULTS_VERSION
from mezzotint.sim.metrics.cost import list_prices
from mezzotint.sim.run.config.compose import compose_config, resolve_config
from mezzotint.sim.run.simulate import simulate
from mezzotint.traces.error import TraceError
from mezzotint.traces.table.trace import about

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
"""Small runs, 1.5 CPU-s together: caches, a controller, continuous batching and add-ons."""


def digest(config: Mapping[str, Any]) -> str:
    """Return the key of a run, 16 hex digits: of its configuration, the content of its files, and the arithmetic."""
    backend = config.get("backend", {})
    parts = {key: by_content(value) for key, value in config.items() if key not in ("run", "backend")}
    parts["backend"] = {key: value for key, value in backend.items() if key != "folder"}
    profiles = tuple(_profiles(kind, backend.get("folder")) for kind in _kinds(config))
    return _digest(f"[{_shared(arithmetic(), profiles)}, {_text(parts)}]")


@cache
def _shared(version: str, profiles: tuple[str, ...]) -> str:
    """Return, as JSON, what runs of a version of the arithmetic with these profiles share: most of a key's text."""
    return _text([version, [repr(list_prices()), settings("trace"), *profiles]])[1:-1]


def _kinds(config: Mapping[str, Any]) -> list[str]:
    """Return the kinds of GPUs whose profiles a run reads."""
    pools = config.get("cluster", {}).get("pools")
    if not pools:
        return [str(config.get("backend", {}).get("gpu"))]
    names = [pool["gpu"]["name"] if isinstance(pool["gpu"], Mapping) else pool["gpu"] for pool in pools]
    return list(dict.fromkeys(names))


@cache
def arithmetic() -> str:
    """Return the digest of ``RESULTS_VERSION``, and of the results of `PROBES` in case nobody raised it."""
    results = []
    for words in PROBES:
        outcome = simulate(resolve_config(compose_config([*words, "run.dir=unnamed"])))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, outcome.requests.schema) as stream:
            stream.write_table(outcome.requests)
        numbers = {key: value for key, value in outcome.summary.items() if key not in ("wall", "assumptions")}
        results.append([hashlib.sha256(sink.getvalue()).hexdigest(), numbers])
    return combine(RESULTS_VERSION, results)


@cache
def settings(*groups: str) -> dict[str, Any]:
    """Return the parsed YAML files of conf, by path: of these groups, or of all; comments do not count."""
    conf, nodes = Path(str(resources.files("mezzotint.conf"))), {}
    for file in sorted(conf.rglob("*.yaml")):
        name = file.relative_to(conf)
        if name.parts[0] in groups or not (groups or name.parts[0] == "data"):  # conf/data is read at every comparison
            text = file.read_text(encoding="utf-8")
            package = [line for line in text.splitlines() if line.startswith("# @package")]
            nodes[str(name)] = [package, parse(text)]
    return nodes


@cache
def _profiles(gpu: str, folder: str | None) -> str:
    profiles = find(gpu, [shipped(), *([] if folder is None else [Path(folder)])])
    return combine({model: profile.model_dump_json() for model, profile in profiles.items()})


def by_content(value: Any) -> Any:
    """Return ``value`` with each file name replaced by the digest of the file's content."""
    if isinstance(value, str):
        return _content(value)
    if isinstance(value, Mapping):
        mixed = len({type(key) for key in value}) > 1  # such as {10: 0.75, "5": 0.65}, which JSON cannot sort
        return {str(key) if mixed else key: by_content(item) for key, item in value.items()}
    return [by_content(item) for item in value] if isinstance(value, list) else value


def _content(text: str) -> str:
    file = os.path.expanduser(text)
    if not os.path.isfile(file):
        return text
    try:
        return about(Path(file))[1]
    except (TraceError, OSError):  # not a trace: the run itself refuses or reads it
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()


def combine(*parts: Any) -> str:
    """Return the digest of ``parts``, 16 hex digits."""
    return _digest(_text(parts))


def _text(parts: Any) -> str:
    return json.dumps(parts, sort_keys=True, default=str)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
