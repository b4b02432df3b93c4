"""Text from outside as it is printed."""

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mezzotint.files.printable import printable, printable_output
from mezzotint.sim.cli import main
from mezzotint.sim.core.run_folder import SUMMARY


@given(st.text(st.characters()))
def test_printable_text_is_unchanged_and_the_rest_is_escaped(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert shown == text or not text.isprintable()
    assert printable(shown) == shown


def test_line_breaks_and_tabs_become_blanks() -> None:
    assert printable("two\nlines\tand\x1b[31m\u202e\udce9") == r"two lines and\x1b[31m\u202e\udce9"


def test_output_keeps_lines_and_bars_and_escapes_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    text = "one\ntwo\r\x1b[31mred\x9b\u202e\x1b[A\udce9"
    with printable_output():
        print(text)
        print(text, file=sys.stderr)
    shown = capsys.readouterr()
    assert shown.out == "one\ntwo \\x1b[31mred\\x9b\\u202e\\x1b[A\\udce9\n"
    assert shown.err == "one\ntwo\r\\x1b[31mred\\x9b\\u202e\x1b[A\\udce9\n"


HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m"


def test_no_name_from_a_file_acts_on_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither of a folder, a column, a prompt, a group, a setting, nor of a finished run."""
    monkeypatch.chdir(tmp_path)
    mine, out = Path(f"mine{HOSTILE}"), f"run.dir=out{HOSTILE}"
    (mine / "eviction").mkdir(parents=True)
    (mine / "eviction" / f"own{HOSTILE}.yaml").write_text(
        f"# a line {HOSTILE}\n_target_: mezzotint.sim.cache.eviction.Fifo\n"
    )
    rows = "".join(f"{number},{HOSTILE} a cat,{HOSTILE}\n" for number in range(60))
    Path("log.csv").write_text(f"ts,prompt,user{HOSTILE}\n{rows}")
    small = ["run", "trace.requests=60", "arrivals.rate_rpm=9"]
    commands = [
        ["list", "eviction", "--config-dir", str(mine)],
        ["trace", "import", "csv", "log.csv", "-o", f"t{HOSTILE}.parquet"],
        ["trace", "describe", f"t{HOSTILE}.parquet"],
        [*small, out],
        [*small, "-m", "seed=1,2", f"run.dir=sweep{HOSTILE}", "hydra.launcher.n_jobs=1"],
        [*small, f"eviction={HOSTILE}"],
        [*small, f"models.large.name={HOSTILE}", "run.dir=other"],
        ["report", f"out{HOSTILE}"],
        ["report", str(mine)],
    ]
    statuses = []
    for words in commands:
        statuses.append(main(words))
        if words[-1] == out:
            summary = Path(f"out{HOSTILE}", SUMMARY)
            summary.write_text(summary.read_text().replace('"vanilla"', json.dumps(HOSTILE)))
        shown = capsys.readouterr()
        assert set("\x1b\x07\x9b").isdisjoint(shown.out + shown.err), words
        assert "\\x1b" in shown.out + shown.err, words
    assert statuses == [0, 0, 0, 0, 0, 2, 2, 0, 2]
