"""Options that the commands under `reproduce` share."""

from pathlib import Path
from typing import Annotated

import typer

from mezzotint.sim.run.config.options import RunsOn as RunsOn

Quick = Annotated[bool, typer.Option("--quick", help="small traces or a part of them, seconds; CI compares this form")]

Check = Annotated[
    bool,
    typer.Option("--check", help="write nothing, compare with DIR; status 1 if a row is no longer within tolerance"),
]

Jobs = Annotated[int, typer.Option(min=1, metavar="N", help="worker processes")]

Output = Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="folder to write to")]

Work = Annotated[Path, typer.Option(metavar="DIR", help="folder of the finished runs")]

Traces = Annotated[list[Path], typer.Option("--trace", metavar="FILE", help="Parquet file of a trace; may be repeated")]

Names = Annotated[
    list[str], typer.Option("--name", metavar="NAME", help="name of each --trace, in order [default: of the file]")
]

Encoders = Annotated[
    list[str],
    typer.Option(
        "--encoder",
        metavar="NAME",
        help="another encoder: adds a column of NIRVANA's rows for each --trace; may be repeated",
    ),
]

RESULTS = Path("results")
RUNS = Path("results/runs/scorecard")
