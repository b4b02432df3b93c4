"""Traces: inputs of every importer of ``trace import``, and options that do not fit it."""

import csv
import inspect
import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from mezzotint.traces.sources.command import sources
from tests.fuzz.bytes_ import damaged
from tests.fuzz.inputs import Input
from tests.fuzz.values import IN_JSON
from tests.traces.lab import IMPORTERS, VALID, parquet_bytes

OUT = "out.parquet"

OPTIONS = {
    name: tuple(option for option in inspect.signature(kind).parameters if option not in ("path", "name", "limits"))
    for name, kind in sources().items()
}
"""The sources, and the options of `trace import` that only they have."""

CELLS = (
    *("", "nan", "NaN", "inf", "-inf", "1e400", "1e300", "-1", "0", "1", "99999999999999999999", "1e-300", "1.5.2"),
    *("2024-01-01T00:00:00Z", "2024-13-45"),
    *("1700000000", "1700000000000", "1700000000000000", "12:30", "true", "null", "None", "N/A", "'", "[1]", "{}"),
    *("a;b;c", "\ufeff", "\u202e", "\x00", "١٢٣", "½"),
    *("9999-12-31 23:59:59", "0001-01-01 00:00:00", "a fox", 'a "fox"', "a\nb", "a\rb", "a,b", "a\tb", "1,000", "0x10"),
    *(" ", "\x1b[31m", "é" * 300, "x" * 70_000),
)

cells = st.sampled_from(CELLS) | st.text(max_size=12)

OPTION_VALUES = (
    *("-1", "0", "1", "x", "nan", "inf", "-inf", "1e400", "9" * 20, "", " ", "\\t", ",", ";;", "é", "A", "="),
)


@st.composite
def _rows(draw: st.DrawFn, content: bytes, delimiter: str) -> bytes:
    """Draw the table with other cells, columns and row lengths."""
    table = list(csv.reader(io.StringIO(content.decode()), delimiter=delimiter))
    header, row = table[0], (table[1:] or [[""]])[0]
    header = [draw(cells) if draw(st.integers(0, 19)) == 0 else name for name in header]
    rows = [header]
    for _ in range(draw(st.integers(0, 6))):
        own = [draw(cells) if draw(st.integers(0, 3)) == 0 else cell for cell in row]
        cut = draw(st.sampled_from([len(own)] * 8 + [0, 1, len(own) + 2]))
        rows.append([*own, "", "x"] if cut > len(own) else own[:cut])
    file = io.StringIO()
    end = draw(st.sampled_from(["\n", "\n", "\r\n", "\r", "\n\n"]))
    csv.writer(file, delimiter=delimiter, lineterminator=end, quoting=draw(st.sampled_from([0, 1]))).writerows(rows)
    return file.getvalue().encode("utf-8", "surrogatepass")


@st.composite
def _json(draw: st.DrawFn, content: bytes) -> bytes:
    """Draw the document with other values; as lines of JSON, too."""
    tree = json.loads(content)
    for _ in range(draw(st.integers(1, 3))):
        tree = _changed(draw, tree)
    if isinstance(tree, list) and draw(st.booleans()):
        return "\n".join(json.dumps(each) for each in tree).encode()
    return json.dumps(tree, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")


def _changed(draw: st.DrawFn, tree: Any) -> Any:
    if not isinstance(tree, dict | list) or not tree or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from(IN_JSON))
    if isinstance(tree, list):
        at = draw(st.integers(0, len(tree) - 1))
        return [_changed(draw, each) if i == at else each for i, each in enumerate(tree)]
    key = draw(st.sampled_from(sorted(tree)))
    if draw(st.integers(0, 4)) == 0:
        return {k: v for k, v in tree.items() if k != key}
    return {k: _changed(draw, v) if k == key else v for k, v in tree.items()}


@st.composite
def _parquet(draw: st.DrawFn) -> bytes:
    """Draw columns of another type, or with impossible values."""
    columns = pq.read_table(io.BytesIO(parquet_bytes())).column_names
    values = (
        *(pa.nulls(2), pa.array([float("nan"), 1.0]), pa.array([1e300, -1e300]), pa.array([True, None])),
        *(pa.array([2**62, -(2**62)]), pa.array([0, 253402300799], pa.timestamp("s")), pa.array([[1], None])),
        *(pa.array([-(10**15), 10**15], pa.timestamp("s")), pa.array([b"\xff", b""]), pa.array(["x", None])),
        *(pa.array(["9999-12-31", "0001-01-01"]), pa.array([{"a": 1}, None]), pa.array(["", "\0"]).dictionary_encode()),
        *(pa.array([1, 2], pa.date32()), pa.array([1, 2], pa.time32("s")), pa.array([1, 2], pa.duration("s"))),
        *(pa.array([1700000000000, 1700000000001]), pa.array(["x" * 70_000, "y"])),
    )
    names = draw(st.lists(st.sampled_from(columns), min_size=1, max_size=2, unique=True))
    changed = {name: draw(st.sampled_from(values)) for name in names}
    return parquet_bytes(**changed)


@st.composite
def _options(draw: st.DrawFn, source: str) -> list[str]:
    """Draw options: half of the time none, else one of this source's, or of another's, with any value."""
    if draw(st.booleans()):
        return []
    flags = ("drop_failed", "text_only", "unnamed_loras", "no_quotes")
    known = [option for options in OPTIONS.values() for option in options]
    option = draw(
        st.sampled_from(OPTIONS[source] or ("seed",))
        | st.sampled_from([*known, "seed", "max_prompt_bytes", "max_bytes", "name"])
    )
    spelled = f"--{option.replace('columns', 'map').replace('units', 'unit').replace('_', '-')}"
    if option in flags:
        return [spelled]
    maps = ("prompt=text", "arrival_s=width", "prompt=", "=x", "prompt=prompt", "nothing=prompt", "width=prompt")
    values = maps if option == "columns" else OPTION_VALUES
    return [f"{spelled}={draw(st.sampled_from(values))}"]


@st.composite
def inputs(draw: st.DrawFn) -> Input:
    """Draw a file for one importer, and the description of its trace: an accepted trace can be described."""
    importer = draw(st.sampled_from(sorted(IMPORTERS)))
    name, _ = IMPORTERS[importer]
    source, content = importer.partition(" ")[0], VALID[importer]
    how = draw(st.sampled_from(["values", "values", "values", "damage", "damage", "another's", "as it is"]))
    if how == "values" and name.endswith((".csv", ".tsv")):
        content = draw(_rows(content, "\t" if name.endswith(".tsv") else ","))
    elif how == "values" and name.endswith(".json"):
        content = draw(_json(content))
    elif how == "values" and name.endswith(".parquet"):
        content = draw(_parquet())
    elif how == "another's":
        content = VALID[draw(st.sampled_from(sorted(VALID)))]
    elif how != "as it is":
        content = draw(damaged(content))
    words = ("trace", "import", source, name, "-o", OUT, *draw(_options(source)))
    return Input(((name, content),), (words, ("trace", "describe", OUT)), (OUT,), covers=f"import {importer}")
