"""What inputs mutate: a trace of a few requests, composed configurations, a finished run and its cache."""

import contextlib
import io
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml
from omegaconf import OmegaConf

from mezzotint.sim.cli import main
from mezzotint.sim.core.errors import REFUSED
from mezzotint.sim.run.config.choices import choices, groups
from mezzotint.sim.run.config.compose import compose_config as compose
from mezzotint.sim.run.simulate import saved_config, simulate
from tests.fuzz.inputs import lay

Tree = dict[str, Any]

TRACE = "base.parquet"

SMALL = ("trace=file", f"trace.path={TRACE}", "cluster.count=2")
"""A run of a few milliseconds, independent of the composed configuration."""

NEEDS_MORE = {
    ("encoder", "minilm"), ("encoder", "clip"), ("encoder", "precomputed"), ("backend", "live"),
    ("system", "gpt-cache"), ("system", "nirvana-clip-image"), ("space", "clip-images"), ("space", "given-images"),
    ("scale", "clip"), ("scale", "minilm"), ("scale", "precomputed"), ("trace", "nirvana-evaluation"),
    ("trace", "nirvana-evaluation-short"), ("models", "tiny"), ("cluster", "local"),
}  # fmt: skip
"""Choices that need weights, images or another trace, or that make one of 100,000 requests."""


@contextlib.contextmanager
def working(folder: Path) -> Iterator[None]:
    """Work in ``folder``, with a cache of its own there."""
    with contextlib.chdir(folder), patch.dict(os.environ, MEZZOTINT_CACHE=str(folder / "cache")):
        yield


def made(commands: Sequence[Sequence[str]], files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files that ``commands`` leave in ``folder``, by path."""
    with tempfile.TemporaryDirectory() as name, working(Path(name)), contextlib.redirect_stdout(io.StringIO()):
        folder = Path(name)
        lay(files.items(), folder)
        for words in commands:
            assert main(list(words)) == 0, words
        return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@cache
def trace() -> bytes:
    """Write a trace of 20 requests, several of them similar to earlier ones."""
    words = ("trace", "synth", "-o", TRACE, "--requests", "20", "--set", "repeat_share=0.4", "--rate-rpm", "10")
    return made([words], {})[TRACE]


@cache
def composed(words: tuple[str, ...]) -> Tree:
    """Return the resolved configuration that ``words`` compose, as ``--cfg job`` prints it."""
    found: Tree = OmegaConf.to_container(compose([*words, "run.dir=out"]), resolve=True)
    return found


def config_file(config: Tree) -> Tree:
    """Return the content of a run directory's config.yaml."""
    relative = {key: value for key, value in config.items() if key != "run"}
    return saved_config(config) | relative


@cache
def finished() -> dict[str, bytes]:
    """Return every file of a folder after one run there: ``out``, the trace, the disk cache."""
    return made([("run", "system=nirvana", *SMALL, "run.dir=out")], {TRACE: trace()})


@cache
def runs(words: tuple[str, ...]) -> bool:
    """Return whether the composition of ``words`` runs unchanged: some clusters have no profile yet."""
    with tempfile.TemporaryDirectory() as name, working(Path(name)):
        Path(TRACE).write_bytes(trace())
        try:
            simulate(composed(words))
        except REFUSED:
            return False
    return True


@cache
def systems() -> dict[str, dict[str, str]]:
    """Return the choices that each system makes or inherits, by group."""
    files = {
        f.name.removesuffix(".yaml"): f.read_text() for f in (resources.files("mezzotint.conf") / "system").iterdir()
    }

    def of(name: str) -> dict[str, str]:
        own: dict[str, str] = {}
        for entry in yaml.safe_load(files[name]).get("defaults", []):
            if isinstance(entry, dict):
                own |= {k.removeprefix("override /"): v for k, v in entry.items() if k.startswith("override /")}
            elif entry != "_self_":
                own |= of(entry)
        return own

    return {name: of(name) for name in files}


def needed(group: str) -> list[str]:
    """Return what has to be chosen beside a group in a system that has a cache."""
    needs = {other: allowed for other, allowed in groups()[group].needs.items() if other != "frontend"}
    return [word for other, allowed in needs.items() for word in (*needed(other), f"{other}={allowed[0]}")]


@cache
def recipes() -> tuple[tuple[str, ...], ...]:
    """Return overrides that together compose every choice of every group, each in a system that takes it."""
    hosts = {name: chosen for name, chosen in systems().items() if ("system", name) not in NEEDS_MORE}
    found = []
    for group in groups():
        for choice in choices(group):
            if (group, choice.name) in NEEDS_MORE or group == "experiment":
                continue
            if group == "system":
                found.append((f"system={choice.name}", *SMALL))
                continue
            brings = [name for name, chosen in hosts.items() if chosen.get(group) == choice.name]
            host = (brings or ["vanilla" if group == "frontend" else "nirvana"])[0]
            base = ["trace=synthetic", "trace.requests=20"] if group == "trace" else SMALL[:2]
            beside = [] if brings else needed(group)
            count = [] if (group, choice.name) == ("cluster", "pools") else ["cluster.count=2"]  # pools have their own
            words = (f"system={host}", *base, *beside, f"{group}={choice.name}", *count)
            found.append(words if (group, choice.name) != ("trace", "file") else (f"system={host}", *SMALL))
    return tuple(dict.fromkeys(found))
