"""The judgement of an input: the program does it or refuses it clearly."""

import io
import json
import math
import os
import re
import shutil
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow.parquet as pq
from hydra.core.global_hydra import GlobalHydra

from mezzotint.files.document import DocumentError, parse
from mezzotint.sim.cli import main
from mezzotint.sim.core.run_folder import CLUSTER, CONFIG, REQUESTS, SUMMARY, claim_folder
from mezzotint.sim.run.refusal import is_refused, refuse
from mezzotint.sim.run.simulate import save, simulate
from tests.fuzz.inputs import Input, digest, lay
from tests.fuzz.values import MARK

LONGEST = 1500
"""Longest refusal in characters; users do not read a longer one."""

BARE = re.compile(
    r"object has no|object is not|NoneType|not supported between|unsupported operand|index out of range|KeyError|"
    r"Traceback|invalid literal|could not convert|cannot convert|NotImplemented|must be real number|"
    r"takes \d+ positional|missing \d+ required|unhashable type|AssertionError|array must not|broadcast|valid dtype|"
    r"math domain|"
    r"division by zero|__\w+__|too large to convert|LexerNoViableAlt|mismatched input|<class |<function |<object|"
    r" at 0x[0-9a-f]{6}|\[Errno"
)
"""Words of Python, numpy or a parser, which do not help a user."""


@dataclass(slots=True)
class Verdict:
    """The exit status of an input's last command, and what was wrong with it; empty if nothing."""

    status: int | None
    output: str = ""
    wrong: list[str] = field(default_factory=list)


def judged(given: Input, folder: Path) -> Verdict:
    """Run the commands of ``given`` in the empty ``folder`` and judge the outcome; ``folder`` is emptied."""
    verdict = _judged(given, folder)
    return _judged(replace(given, quick=False), folder) if given.quick and verdict.wrong else verdict


def _judged(given: Input, folder: Path) -> Verdict:
    lay(given.files, folder)
    before = _contents(folder)
    verdict = Verdict(0)
    try:
        for number, words in enumerate(given.commands):
            verdict.status, out, err = executed(without_hydra if given.quick else main, words, folder, verdict.wrong)
            verdict.output = err.strip() or out.strip()
            if verdict.status == 2:
                verdict.wrong += _refusal(err, given if number == 0 else None, words)
            elif verdict.status != 0:
                verdict.wrong.append(f"exit status {verdict.status}")
            if verdict.status != 0:
                break
            if "Warning" in err:
                verdict.wrong.append(f"a warning: {err.strip()[:300]}")
            if number == 0 and given.refused:
                verdict.wrong.append("what cannot be meant was taken")
        verdict.wrong += _left(folder, before, given, verdict.status)
    finally:
        for item in folder.iterdir():
            shutil.rmtree(item) if item.is_dir() and not item.is_symlink() else item.unlink()
    return verdict


def without_hydra(words: Sequence[str]) -> int:
    """Do what ``mezzotint run --config-path . --config-name config run.dir=out`` does after Hydra."""
    assert "--config-path" in words
    try:
        tree = parse(Path(CONFIG).read_bytes())
        plain = {str(key): value for key, value in tree.items() if key not in ("defaults", "hydra")}
        with claim_folder(Path("out")) as claim:
            save(simulate(plain | {"run": {"dir": "out"}}), claim)
    except Exception as error:
        if not is_refused(error) and not isinstance(error, DocumentError):
            raise
        return refuse(error)
    return 0


def executed(
    command: Callable[[Sequence[str]], int], words: Sequence[str], folder: Path, wrong: list[str]
) -> tuple[int | None, str, str]:
    """Run one command in ``folder``; return its exit status, standard output and standard error."""
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", "strict", write_through=True)
    err = io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace", write_through=True)
    path, argv = list(sys.path), list(sys.argv)
    status: int | None = None
    try:
        with (
            chdir(folder),
            patch.dict(os.environ, MEZZOTINT_CACHE=str(folder / "cache")),
            redirect_stdout(out),
            redirect_stderr(err),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("always", RuntimeWarning)
            status = command(list(words))
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)[-3:]
        at = " > ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames)
        wrong.append(f"{type(error).__name__}: {str(error)[:200]} ({at})")
        status = 2
        err = io.TextIOWrapper(io.BytesIO())
    finally:
        sys.path[:], sys.argv[:] = path, argv
        GlobalHydra.instance().clear()
    return status, *(each.buffer.getvalue().decode() for each in (out, err))  # type: ignore[attr-defined]


def _refusal(err: str, given: Input | None, words: Sequence[str]) -> list[str]:
    """Return what is wrong with a refusal: it must be one line that names the mistake in a user's words."""
    if not err:
        return []  # an exception, which is reported already
    lines = [line for line in err.splitlines() if line.strip()]
    if lines[0].startswith("usage:"):  # argparse's own message ends with the refusal, with the words as typed
        lines = [repr(lines[-1])[1:-1]]
    output = lines[-1]
    wrong = []
    if len(lines) != 1 or not re.match(r"mezzotint[\w .-]*: error: \S", output):
        wrong.append(f"not one line: {err.strip()[:300]}")
    if len(output) > LONGEST:
        wrong.append(f"a refusal of {len(output)} characters: {output[:200]}")
    if not output.isprintable():
        wrong.append(f"a refusal that is not printable: {output[:200]!r}")
    if found := BARE.search(output.split(": it lacks ")[0]):  # required members of a part keep their spelling
        wrong.append(f"no user's words ({found[0]}): {output[:300]}")
    if given is not None and given.key and not any(name in output for name in given.key):
        wrong.append(f"does not name {given.key[0]}: {output[:300]}")
    return wrong


def _contents(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): digest(p.read_bytes()) for p in folder.rglob("*") if p.is_file()}


def _left(folder: Path, before: dict[str, str], given: Input, status: int | None) -> list[str]:
    """Return what is wrong with the files of the folder."""
    after = _contents(folder)
    wrong = [
        f"{name}: was changed or removed" for name in before if after.get(name) != before[name] and not _kept(name)
    ]
    new = sorted(name for name in after if name not in before and not _kept(name))
    wrong += [f"{name}: left behind" for name in new if name.endswith(".part") or MARK in name]
    wrong += [f"{p.relative_to(folder)}: left behind" for p in folder.rglob("*.part")]
    wrong += [f"{p.name}: made" for p in folder.iterdir() if p.name == MARK]
    new = [name for name in new if not name.endswith(".part") and MARK not in name]
    made = [str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_dir() and not any(p.iterdir())]
    wrong += [f"{name}: an empty folder" for name in made if not _kept(name)]
    if status != 0 and len(given.commands) == 1 and new:
        wrong.append(f"refused, and yet made: {', '.join(new[:5])}")
    allowed = [name for name in new if any(out == "*" or Path(name).parts[0] == out for out in given.outputs)]
    wrong += [f"{name}: is none of the outputs" for name in new if name not in allowed]
    for name in allowed:
        wrong += _whole(folder / name, given)
    return wrong


def _kept(name: str) -> bool:
    """Return whether a file belongs to the disk cache, which may be made, repaired and deleted."""
    return Path(name).parts[0] == "cache"


def _whole(file: Path, given: Input) -> list[str]:
    """Return what is wrong with a finished file."""
    if file.suffix == ".parquet":
        try:
            table = pq.read_table(file)
        except Exception as error:
            return [f"{file.name}: cannot be read: {error}"]
        if file.name == REQUESTS and given.same is not None and digest(file.read_bytes()) != given.same:
            return [f"{file.name}: is not what an undamaged run writes ({table.num_rows} rows)"]
    if file.name == SUMMARY:
        lacking = [name for name in (REQUESTS, CLUSTER, CONFIG) if not (file.parent / name).is_file()]
        if lacking:
            return [f"{file.parent.name}: lacks {', '.join(lacking)}"]
        return _meaningless(json.loads(file.read_text()))
    if file.name in (REQUESTS, CLUSTER, CONFIG) and not (file.parent / SUMMARY).is_file():
        return [f"{file.parent.name}: lacks {SUMMARY}"]
    return [] if file.stat().st_size else [f"{file.name}: is empty"]


def _meaningless(tree: Any, at: str = "") -> list[str]:
    """Return the numbers of a summary that no run can have: infinite, negative, or a share over 1."""
    if isinstance(tree, dict):
        return [w for k, v in tree.items() if k not in ("assumptions", "trace") for w in _meaningless(v, f"{at}.{k}")]
    if isinstance(tree, list):
        return [w for i, v in enumerate(tree) for w in _meaningless(v, f"{at}.{i}")]
    if isinstance(tree, bool) or not isinstance(tree, int | float):
        return []
    share = at.endswith(("_rate", "_share", "busy_fraction")) or ".hit_share_by_k." in at
    if (
        not math.isfinite(tree)
        or (tree < -1e-9 and not at.endswith(("saving", "growth_per_hour")))
        or (share and tree > 1 + 1e-9)
    ):
        return [f"{SUMMARY}{at}: is {tree}"]
    return []
