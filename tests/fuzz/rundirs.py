"""Run directories that were edited, cut or badly copied, given to the report."""

import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from hypothesis import strategies as st

from mezzotint.sim.core.run_folder import CLUSTER, CONFIG, REQUESTS, SUMMARY
from tests.fuzz.bytes_ import damaged
from tests.fuzz.config import bomb, covered, paths, replaced, written
from tests.fuzz.fixtures import finished
from tests.fuzz.inputs import Input
from tests.fuzz.values import IN_JSON, hostile, only_yaml


def run_of() -> dict[str, bytes]:
    """Return the files of a finished run, by name."""
    return {name.removeprefix("out/"): content for name, content in finished().items() if name.startswith("out/")}


@st.composite
def _summary(draw: st.DrawFn, content: bytes) -> tuple[bytes, str]:
    tree = json.loads(content)
    place = draw(st.sampled_from(list(paths(tree))))
    if draw(st.booleans()):
        return json.dumps(replaced(tree, place, draw(st.sampled_from(IN_JSON)))).encode(), covered(place)
    return json.dumps(_without(tree, place)).encode(), covered(place)


def _without(tree: Any, place: tuple[str | int, ...]) -> Any:
    if len(place) > 1:
        return replaced(tree, place[:1], _without(tree[place[0]], place[1:]))
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    del copy[place[0]]
    return copy


@st.composite
def _config(draw: st.DrawFn, content: bytes) -> tuple[bytes, str]:
    if draw(st.integers(0, 4)) == 0:
        ends = [content + bomb(), bomb(), b"a: &a [*a]\n", b"&a {a: *a}\n", b"- 1\n", b""]
        return draw(st.sampled_from(ends)), "bomb"
    tree = yaml.load(content, Loader=yaml.CSafeLoader)
    place = draw(st.sampled_from(list(paths(tree))))
    return written(tree, [(place, draw(hostile | only_yaml))]), covered(place)


def _arrays(rows: int) -> tuple[Any, ...]:
    return (
        *(pa.nulls(rows), pa.array([float("nan")] * rows), pa.array([1e308] * rows), pa.array([-1] * rows)),
        *(pa.array([float("inf")] * rows), pa.array(["x"] * rows), pa.array([[1]] * rows), pa.array([b"\0"] * rows)),
        *(pa.array([True] * rows), pa.array([0] * rows, pa.timestamp("s")), pa.array([2**62] * rows)),
    )


@st.composite
def _table(draw: st.DrawFn, content: bytes) -> tuple[bytes, str]:
    table = pq.read_table(io.BytesIO(content))
    name = draw(st.sampled_from(table.column_names))
    at = table.column_names.index(name)
    how = draw(st.sampled_from(["column", "column", "dropped", "twice", "empty", "short"]))
    if how == "column":
        table = table.set_column(at, name, draw(st.sampled_from(_arrays(table.num_rows))))
    elif how == "dropped":
        table = table.remove_column(at)
    elif how == "twice":
        table = table.append_column(name, table.column(at))
    else:
        table = table.slice(0, 0 if how == "empty" else 1)
    file = io.BytesIO()
    pq.write_table(table, file)
    return file.getvalue(), name


def inputs() -> st.SearchStrategy[Input]:
    """Draw run directories with a changed file."""
    run_of()
    return _inputs()


@st.composite
def _inputs(draw: st.DrawFn) -> Input:
    """Draw one or two runs, one of them with a changed file."""
    files = run_of()
    name = draw(st.sampled_from([SUMMARY, SUMMARY, CONFIG, REQUESTS, CLUSTER]))
    covers = name
    how = draw(st.sampled_from(["value", "value", "value", "damage", "gone", "other"]))
    if how == "value":
        make = {SUMMARY: _summary, CONFIG: _config}.get(name, _table)
        files[name], key = draw(make(files[name]))
        covers = f"{name} {key}"
    elif how == "damage":
        files[name] = draw(damaged(files[name]))
    elif how == "gone":
        del files[name]
    else:
        files[name] = draw(st.sampled_from(sorted(files.values())))
    laid = [(f"runs/a/{name}", content) for name, content in files.items()]
    if draw(st.booleans()):
        laid += [(f"runs/b/{name}", content) for name, content in run_of().items()]
    return Input(tuple(laid), (("report", "runs", "-o", "report.html"),), ("report.html", "figures"), covers=covers)
