"""Typed rows of CSV and Parquet files."""

from pathlib import Path

import pandas as pd
import pytest

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers.elastic.tables import Cost, Served
from mezzotint.sim.papers.rows import read_rows


def test_rows_of_parquet_are_those_of_its_csv(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("request_id,start_ms,finish_ms,pauses,more\n 7 ,0.1,,0,x\n8,0.30000000000000004,2,1,y\n")
    rows = read_rows(path, Served)
    assert rows == [Served("7", 0.1, pauses=0), Served("8", 0.30000000000000004, 2.0, 1)]
    pd.read_csv(path).to_parquet(path.with_suffix(".parquet"))
    path.unlink()
    assert read_rows(path, Served) == rows


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, r"table.csv: cannot be read as a table \(No such file or directory\)"),
        ('size_class,gpus\n"S', r"table.csv: cannot be read as a table \(unexpected end of data\)"),
        ("size_class,gpus,step_ms\n", r"table.csv: found no rows"),
        ("size_class,gpus\nS,1\n", r"table.csv: row 1, column step_ms: field required; correct it"),
        ("size_class,gpus,step_ms\nS,1,2\nS,1,fast\n", r"row 2, column step_ms: input should be a .*, found 'fast'"),
        ("size_class,gpus,step_ms\nS,-1,2\n", r"row 1, column gpus: .* found '-1'"),
    ],
)
def test_unusable_file_is_refused_with_row_and_column(text: str | None, message: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "table.csv").write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_rows(tmp_path / "table.csv", Cost)


def test_damaged_parquet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "table.parquet").write_text("size_class\n")
    with pytest.raises(ConfigError, match=r"table.parquet: cannot be read as a table"):
        read_rows(tmp_path / "table.csv", Cost)
