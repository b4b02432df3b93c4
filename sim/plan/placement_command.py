"""`mezzotint plan placement`: the number of ControlNet servers, and the ControlNets on each."""

import json
from pathlib import Path
from typing import Annotated

from typer import Option

from mezzotint.figures.page import number
from mezzotint.sim.core.errors import ConfigError

STEPS = 50
CALL_S = 0.0232
"""Seconds of one ControlNet in one step on a GPU of its own: SwiftDiffusion on an H800, with its faster kernels."""

MAX_SERVERS = 64
"""With about a hundred servers the solver takes minutes."""


def placement(
    service: Annotated[
        str | None, Option(metavar="A|B", help="a service of the synthetic traces, instead of --trace")
    ] = None,
    trace: Annotated[Path | None, Option(metavar="FILE", help="a trace's Parquet file, instead of --service")] = None,
    rate_rpm: Annotated[
        float | None, Option(min=1e-6, max=1e9, show_default="the trace's own", help="requests per minute")
    ] = None,
    servers: Annotated[
        int | None, Option(min=1, max=MAX_SERVERS, show_default="the fewest", help="GPUs that serve ControlNets")
    ] = None,
    limit: Annotated[float, Option(min=1e-6, max=1, help="largest share of its time that a server may be busy")] = 0.7,
    room: Annotated[int, Option(min=1, help="ControlNets that fit on a server")] = 8,
    step_s: Annotated[
        float, Option(min=1e-6, max=1e6, help="seconds of a ControlNet for one step; the default is an H800's")
    ] = CALL_S,
    steps: Annotated[int, Option(min=1, help="denoising steps of a request")] = STEPS,
    max_controlnets: Annotated[
        int, Option("--most", min=1, max=40, help="ControlNets to place, the most called first")
    ] = 16,
    as_json: Annotated[bool, Option("--json", help="print JSON")] = False,
) -> None:
    """Place ControlNets on the fewest server GPUs, from the rates at which they are called alone and together. Solves a
    mixed-integer program and prints naive placements beside it.

    Raises:
        ConfigError, TraceError: options that conflict, no placement within the limits, an unreadable trace.
    """
    from mezzotint.sim.plan import placement as solver  # SciPy's solver takes half a second to import

    call_s = step_s * steps
    every = solver.find_demand(service, trace, rate_rpm, call_s)
    demand = every.head(max_controlnets)
    placed = len(demand.load)
    min_servers = solver.min_servers(demand, limit)
    if servers is None and min_servers > MAX_SERVERS:
        raise ConfigError(
            f"plan placement: the calls of {demand.rate_hz * 60:g} requests a minute need {min_servers} servers, "
            f"expected at most {MAX_SERVERS}; give less --rate-rpm (a part of the service) or a shorter --step-s"
        )
    counts = [servers] if servers is not None else range(min_servers, min_servers + 4)
    solved = next(filter(None, (solver.solve(demand, count, limit, room) for count in counts)), None)
    if solved is None:
        raise ConfigError(
            f"plan placement: no placement of {placed} ControlNets on {counts[-1]} servers keeps each busy "
            f"for at most {limit:g} of its time with at most {room} on it; the calls alone need {min_servers} "
            "servers; give more --servers, --room or --limit"
        )
    count = len(solved.load)
    rows = {"solved": solved, **solver.naive_placements(demand, count)}
    if as_json:
        data = {name: {"servers": row.servers, "load": row.load, "turns_s": row.turns_s} for name, row in rows.items()}
        print(json.dumps(data, indent=2))
        return
    rare_load = sum(every.load.values()) - sum(demand.load.values())
    print(
        f"{count} servers for {number(demand.rate_hz * 60)} requests a minute; {placed} ControlNets, each "
        f"{number(call_s, 3)} s of a request; the {len(every.load) - placed} least called "
        f"({number(rare_load, 2)} of a server) are loaded on demand"
    )
    for name, row in rows.items():
        over = "; OVERLOADED" if max(row.load) >= 1 else ""
        print(
            f"{name}: load {', '.join(f'{load:.2f}' for load in row.load)}{over}; {row.copies} copies; a request waits "
            f"{row.turns_s:.3f} s because its own ControlNets share a server"
        )
    print(f"allocation.servers={count} '{solved.override}'")
