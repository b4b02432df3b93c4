"""`mezzotint plan placement`: how many ControlNet servers, and what lies on which."""

import json
from pathlib import Path
from typing import Annotated

from typer import Option

from sim.core.errors import ConfigError

STEPS = 50
CALL_S = 0.0229
"""Seconds of one ControlNet in one step on a GPU of its own: SwiftDiffusion's, an H800's with its faster kernels."""

MAX_SERVERS = 64
"""The solver takes minutes from some hundred servers on."""


def placement(
    service: Annotated[str | None, Option(metavar="A|B", help="a service of the synthetic traces; or --trace")] = None,
    trace: Annotated[Path | None, Option(metavar="FILE", help="a trace's Parquet file; or --service")] = None,
    rate_rpm: Annotated[
        float | None, Option(min=1e-6, max=1e9, show_default="the trace's own", help="requests per minute")
    ] = None,
    servers: Annotated[
        int | None, Option(min=1, max=MAX_SERVERS, show_default="the fewest", help="GPUs that serve ControlNets")
    ] = None,
    limit: Annotated[float, Option(min=1e-6, max=1, help="busiest that a server may be, of its time")] = 0.7,
    room: Annotated[int, Option(min=1, help="ControlNets that fit on a server")] = 8,
    step_s: Annotated[
        float, Option(min=1e-6, max=1e6, help="seconds of a ControlNet for one step, here on an H800")
    ] = CALL_S,
    steps: Annotated[int, Option(min=1, help="of a request")] = STEPS,
    most: Annotated[int, Option(min=1, max=40, help="ControlNets to place, the most called")] = 16,
    as_json: Annotated[bool, Option("--json", help="print JSON")] = False,
) -> None:
    """How many GPUs should serve ControlNets, and which should lie on which, given how often they are called and
    which together: a mixed-integer program, beside the naive choices.

    Raises:
        ConfigError, TraceError: options that do not go together, no placement within the limits, an unreadable trace.
    """
    from sim.plan.placement import solve as solver  # SciPy's solver takes half a second to import
    from sim.plan.placement.demand import head, of_service, of_trace
    from traces.table.trace import read

    call_s = step_s * steps
    if service is not None and trace is None:
        if rate_rpm is None:
            raise ConfigError("--service: has no rate of its own here; say --rate-rpm")
        whole = of_service(service, rate_rpm, call_s)
    elif trace is not None and service is None:
        whole = of_trace(read(trace), rate_rpm, call_s)
    else:
        raise ConfigError("plan placement: expected one of --service and --trace")
    demand = head(whole, most)
    fewest = solver.fewest(demand, limit)
    if servers is None and fewest > MAX_SERVERS:
        raise ConfigError(
            f"plan placement: the calls of {demand.rate_hz * 60:g} requests a minute need {fewest} servers, expected "
            f"at most {MAX_SERVERS}; give less --rate-rpm (a part of the service) or a shorter --step-s"
        )
    counts = [servers] if servers is not None else range(fewest, fewest + 4)
    for count in counts:
        found = solver.solve(demand, count, limit, room)
        if found is not None:
            break
    else:
        raise ConfigError(
            f"plan placement: no placement of {len(demand.load)} ControlNets on {counts[-1]} servers keeps each busy "
            f"for at most {limit:g} of its time with at most {room} on it; the calls alone need {fewest} "
            "servers; give more --servers, --room or --limit"
        )
    rows = {"solved": found, "one each": solver.one_each(demand, count), "in turn": solver.in_turn(demand, count)}
    if as_json:
        said = {name: {"servers": row.servers, "load": row.load, "turns_s": row.turns_s} for name, row in rows.items()}
        print(json.dumps(said, indent=2))
        return
    left, rare = sum(whole.load.values()) - sum(demand.load.values()), len(whole.load) - len(demand.load)
    print(
        f"{count} servers for {demand.rate_hz * 60:g} requests a minute; {len(demand.load)} ControlNets, each "
        f"{call_s:.3g} s of a request; the {rare} that are called least ({left:.2g} of a server) come when asked for"
    )
    for name, row in rows.items():
        loads = ", ".join(f"{load:.2f}" for load in row.load)
        over = "; OVERLOADED" if max(row.load) >= 1 else ""
        print(
            f"{name}: load {loads}{over}; {row.copies} copies; a request waits {row.turns_s:.3f} s for its own "
            "ControlNets to take turns"
        )
    plain = json.dumps(found.servers).replace('"', "").replace(" ", "")
    print(f"allocation.servers={count} 'executor.steps.controlnets.placement={plain}'")
