"""Lists of prompts: an order, and no times."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mezzotint.traces.error import TraceError
from mezzotint.traces.sources.prompts import Prompts
from mezzotint.traces.table.trace import Trace

TextFile = Callable[..., Path]


def load(source: Any) -> Trace:
    trace: Trace = source.load(np.random.default_rng(0))
    return trace


def test_one_prompt_per_line_is_imported(text_file: TextFile) -> None:
    path = text_file("\ufeffa fox\r\n\n  \nna\u00efve\u2028one prompt\n[cat|dog] ", "list.txt")
    trace = load(Prompts(path=str(path)))
    assert trace.prompts().to_pylist() == ["a fox", "na\u00efve\u2028one prompt", "[cat|dog] "]
    assert trace.table.column("request_id").to_pylist() == ["0", "3", "4"]
    assert trace.arrival_s.tolist() == [0.0, 1.0, 2.0]
    assert trace.notes["skipped"] == {"blank lines": 2}
    assert trace.name == "list"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p.json", '["a fox", {"prompt": "", "seed": 1}, "\\u00e9"]'),
        ("p.jsonl", '"a fox"\n{"prompt": ""}\n"é"\n'),
    ],
)
def test_prompts_as_json_are_imported(text_file: TextFile, name: str, text: str) -> None:
    assert load(Prompts(path=str(text_file(text, name)))).prompts().to_pylist() == ["a fox", "", "é"]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("p.txt", "", "found no rows"),
        ("p.json", "[]", "found no rows"),
        ("p.json", '["a", 3]', "row 1, column prompt: found 3, expected a text"),
        ("p.json", '["a", "b', "value 1: cannot be read as JSON"),
        ("p.json", '["a"] "b"', "value 1: found more text after the closing"),
        ("p.json", '["\\ud800"]', "value 0: found half of a surrogate pair"),
        ("p.json", "[" * 100_000, "value 0: found values nested too deeply"),
    ],
)
def test_malformed_prompts_are_refused(text_file: TextFile, name: str, text: str, message: str) -> None:
    with pytest.raises(TraceError, match=message) as caught:
        load(Prompts(path=str(text_file(text, name))))
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_json_reader_handles_values_across_chunks(text_file: TextFile, monkeypatch: pytest.MonkeyPatch) -> None:
    from mezzotint.traces.formats import jsontext
    from mezzotint.traces.table.limits import Limits

    monkeypatch.setattr(jsontext, "GROUP", 3)
    values = [12.5e3, True, None, 'é\\"', {"a": [1, {}]}, [], -7, "x" * 50] * 4
    for text in (json.dumps(values), json.dumps(values, indent=2), "\n".join(map(json.dumps, values)) + "\n"):
        path = text_file(text)
        for piece in (1, 2, 7, 64):
            monkeypatch.setattr(jsontext, "PIECE", piece)
            groups = list(jsontext.elements(path, Limits()))
            assert [value for group in groups for value in group] == values
            assert max(map(len, groups)) == 3


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", b"a fox\n", "is a table by its name"),
        ("t.txt", b"prompt,arrival_s\na fox,1\n", r"row 0: found 'prompt,arrival_s', the header of a table .*,"),
        ("t.txt", b"Prompt\tCategory\tChallenge\tNote\na\tb\tc\td\n", r"header .*--delimiter '\\t'"),
        ("t.txt", b'{"prompt": "a fox"}\n', "JSON"),
        ("t.txt", b"PAR1\x15\x04\x15\n", "is Parquet, expected text"),
    ],
)
def test_table_is_refused_as_a_list_of_prompts(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TraceError, match=message) as caught:
        Prompts(path=str(tmp_path / name)).load(np.random.default_rng(0))
    assert "\n" not in str(caught.value)


LIKE_TABLES = [
    "a cat, oil painting, 4k", "cat,dog", "[a fox:a hare:0.5], forest", "{red|green} fox", "a | b | c", "portrait",
    "time, the fourth dimension", "text that says: hello; neon", '"quoted", they said', "image of a user",
]  # fmt: skip


@pytest.mark.parametrize("line", LIKE_TABLES)
def test_prompts_with_commas_and_brackets_are_prompts(tmp_path: Path, line: str) -> None:
    (tmp_path / "t.txt").write_text(line + "\nanother\n")
    trace = Prompts(path=str(tmp_path / "t.txt")).load(np.random.default_rng(0))
    assert trace.prompts().to_pylist() == [line, "another"]


@pytest.mark.parametrize(
    ("lines", "arrivals", "prompts"),
    [
        ("0 0\n12500 1\n31000 2\n", [0, 12.5, 31], [None, None, None]),
        ("1,0,a fox\n2,12500,a cat\n", [0, 12.5], ["a fox", "a cat"]),
        ("250\t1\ta fox\n300\t2\ta cat\n", [0.25, 0.3], ["a fox", "a cat"]),
        ("1 2 buckle my shoe\n3 4 knock at the door\n", [0, 1], ["1 2 buckle my shoe", "3 4 knock at the door"]),
    ],
)
def test_milliseconds_and_a_running_number_are_times(
    lines: str, arrivals: list[float], prompts: list[str | None], tmp_path: Path
) -> None:
    (tmp_path / "p.txt").write_text(lines)
    trace = Prompts(path=tmp_path / "p.txt").load(np.random.default_rng(0))
    assert trace.arrival_s.tolist() == arrivals
    assert trace.prompts().to_pylist() == prompts
