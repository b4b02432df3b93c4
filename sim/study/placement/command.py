"""`mezzotint plan placement`: how many ControlNet servers, and what lies on which."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from sim.errors import ConfigError

STEPS = 50
CALL_S = 0.0229
"""Seconds of one ControlNet in one step on a GPU of its own: SwiftDiffusion's, an H800's with its faster kernels."""

MAX_SERVERS = 64
"""The solver takes minutes from some hundred servers on."""


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(
        prog="mezzotint plan placement",
        description="How many GPUs should serve ControlNets, and which should lie on which, given how often they are "
        "called and which together: a mixed-integer program, beside the naive choices.",
    )
    what = made.add_mutually_exclusive_group(required=True)
    what.add_argument("--service", metavar="A|B", help="a service of the synthetic traces")
    what.add_argument("--trace", type=Path, metavar="FILE", help="a trace's Parquet file")
    made.add_argument("--rate-rpm", type=float, metavar="R", help="requests per minute (default: the trace's own)")
    made.add_argument("--servers", type=int, metavar="N", help="GPUs that serve ControlNets (default: the fewest)")
    made.add_argument(
        "--limit", type=float, default=0.7, metavar="X", help="busiest that a server may be, 0 to 1 (default: 0.7)"
    )
    made.add_argument("--room", type=int, default=8, metavar="N", help="ControlNets that fit on a server (default: 8)")
    made.add_argument(
        "--step-s", type=float, default=CALL_S, metavar="S",
        help=f"seconds of a ControlNet for one step (default: {CALL_S}, SwiftDiffusion on an H800)",
    )  # fmt: skip
    made.add_argument("--steps", type=int, default=STEPS, metavar="N", help=f"of a request (default: {STEPS})")
    made.add_argument(
        "--most", type=int, default=16, metavar="N", help="ControlNets to place, the most called (default: 16)"
    )
    made.add_argument("--json", action="store_true", help="print JSON")
    return made


def find(given: Sequence[str]) -> int:
    """Answer; returns the exit status.

    Raises:
        ConfigError: options out of range, no placement within the limits.
        TraceError: the trace cannot be read.
    """
    args = parser().parse_args(given)
    from sim.study.placement import solve as solver
    from sim.study.placement.demand import head, of_service, of_trace
    from traces.table.trace import read

    ranges = {
        "--rate-rpm": (args.rate_rpm, args.rate_rpm is None or 0 < args.rate_rpm < 1e9),
        "--servers": (args.servers, args.servers is None or 0 < args.servers <= MAX_SERVERS),
        "--limit": (args.limit, 0 < args.limit <= 1),
        "--room": (args.room, args.room > 0),
        "--step-s": (args.step_s, 0 < args.step_s < 1e6),
        "--steps": (args.steps, args.steps > 0),
        "--most": (args.most, 0 < args.most <= 40),
    }
    for name, (value, fits) in ranges.items():
        if not fits:
            raise ConfigError(f"{name}: found {value}, which is out of its range; see mezzotint plan placement -h")
    if args.service is not None and args.rate_rpm is None:
        raise ConfigError("--service: has no rate of its own here; say --rate-rpm")
    call_s = args.step_s * args.steps
    whole = (
        of_service(args.service, args.rate_rpm, call_s)
        if args.service is not None
        else of_trace(read(args.trace), args.rate_rpm, call_s)
    )
    demand = head(whole, args.most)
    fewest = solver.fewest(demand, args.limit)
    if args.servers is None and fewest > MAX_SERVERS:
        raise ConfigError(
            f"plan placement: the calls of {demand.rate_hz * 60:g} requests a minute need {fewest} servers, expected "
            f"at most {MAX_SERVERS}; give less --rate-rpm (a part of the service) or a shorter --step-s"
        )
    counts = [args.servers] if args.servers is not None else range(fewest, fewest + 4)
    for servers in counts:
        found = solver.solve(demand, servers, args.limit, args.room)
        if found is not None:
            break
    else:
        raise ConfigError(
            f"plan placement: no placement of {len(demand.load)} ControlNets on {counts[-1]} servers keeps each busy "
            f"for at most {args.limit:g} of its time with at most {args.room} on it; the calls alone need {fewest} "
            "servers; give more --servers, --room or --limit"
        )
    rows = {
        "solved": found,
        "one each": solver.one_each(demand, servers),
        "in turn": solver.in_turn(demand, servers),
    }
    if args.json:
        said = {
            name: {"servers": each.servers, "load": each.load, "turns_s": each.turns_s} for name, each in rows.items()
        }
        print(json.dumps(said, indent=2))
        return 0
    left, rare = sum(whole.load.values()) - sum(demand.load.values()), len(whole.load) - len(demand.load)
    print(
        f"{servers} servers for {demand.rate_hz * 60:g} requests a minute; {len(demand.load)} ControlNets, each "
        f"{call_s:.3g} s of a request; the {rare} that are called least ({left:.2g} of a server) come when asked for"
    )
    for name, each in rows.items():
        loads = ", ".join(f"{load:.2f}" for load in each.load)
        over = "; OVERLOADED" if max(each.load) >= 1 else ""
        print(
            f"{name}: load {loads}{over}; {each.copies} copies; a request waits {each.turns_s:.3f} s for its own "
            "ControlNets to take turns"
        )
    plain = json.dumps(found.servers).replace('"', "").replace(" ", "")
    print(f"allocation.servers={servers} 'executor.steps.controlnets.placement={plain}'")
    return 0


def usage() -> str:
    """The help."""
    return parser().format_help()
