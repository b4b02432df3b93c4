"""Options that the commands under `scorecard` share."""

from pathlib import Path
from typing import Annotated

import typer

Quick = Annotated[bool, typer.Option("--quick", help="small traces or a part, seconds: the form that CI compares")]

Check = Annotated[
    bool,
    typer.Option("--check", help="write nothing, compare with DIR: status 1 if a verdict that held there is lost"),
]

Jobs = Annotated[int, typer.Option(min=1, metavar="N", help="worker processes")]

Output = Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="where to write")]

Work = Annotated[Path, typer.Option(metavar="DIR", help="where the finished runs are kept")]

Traces = Annotated[list[Path], typer.Option("--trace", metavar="FILE", help="a trace's Parquet file; may be repeated")]

Names = Annotated[
    list[str], typer.Option("--name", metavar="NAME", help="of each --trace, in their order [default: the file's]")
]

RESULTS = Path("results")
RUNS = Path("results/runs/scorecard")
