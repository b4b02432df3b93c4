"""What a request asks for beside its prompt: size, steps, images, base model, ControlNets and LoRAs."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from traces.error import TraceError
from traces.synthetic.laws import Indices, choices, inherited_from, weighted, zipf
from traces.table.validation import check_count, check_number

ADDON_KEYS = ("controlnets", "loras_per_request", "lora_names", "lora_skew", "lora_shift")


def inherited(previous: Indices, change: float, rng: np.random.Generator) -> Indices:
    """The row whose settings each row has, (n,): its session's row before it, or with chance `change` its own.

    Args:
        previous: (n,) the session's row before this one, -1 if none.
    """
    return inherited_from((previous < 0) | (rng.random(len(previous)) < change), previous)


def numbers(rows: Sequence[Sequence[Any]], what: str, width: int, source: Indices, rng: np.random.Generator) -> Indices:
    """Draw `width` numbers for each row of `source` by the weights of the setting `what`, (n, width)."""
    values, weights = weighted(rows, what, width)
    return np.asarray(values[choices(weights, len(source), rng)[source]], np.int64)


def models(shares: Sequence[float], source: Indices, rng: np.random.Generator) -> pa.Array:
    """Names of base models, (n,), the most popular first in order; nulls if there are no shares."""
    if not shares:
        return pa.nulls(len(source), pa.string())
    return named("model", choices(np.array(shares, np.float64), len(source), rng)[source], len(shares))


def named(prefix: str, numbers: Indices, size: int) -> pa.Array:
    """Names of things numbered from 0 to `size` - 1, equally long: `prefix`-07."""
    digits = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), len(str(max(size - 1, 0))), "0")
    return pc.binary_join_element_wise(pa.scalar(prefix), digits, "-")


def addons(
    service: Mapping[str, Any] | None, name: str, source: Indices, rng: np.random.Generator
) -> tuple[pa.Array, pa.Array]:
    """The ControlNets and the LoRAs of each row, (n,) lists of names; nulls if there is no service.

    ControlNets come in fixed combinations. LoRAs are drawn from a Zipf-Mandelbrot law, no request twice the same.
    """
    count = len(source)
    if service is None:
        nothing = pa.nulls(count, pa.list_(pa.string()))
        return nothing, nothing
    combos = service["controlnets"]
    combo = choices(np.array([weight for _, weight in combos], np.float64), count, rng)[source]
    controlnets = pa.array([list(names) for names, _ in combos], pa.list_(pa.string())).take(pa.array(combo))

    shares = np.array(service["loras_per_request"], np.float64)
    many = choices(shares, count, rng)
    size = int(service["lora_names"])
    drawn = np.column_stack(
        [zipf(size, service["lora_skew"], count, rng, service["lora_shift"]) for _ in range(len(shares) - 1)]
    )
    for column in range(1, drawn.shape[1]):
        # the next name of the list in place of one that the request has
        while (twice := (drawn[:, :column] == drawn[:, column : column + 1]).any(1)).any():
            drawn[twice, column] = (drawn[twice, column] + 1) % size
    drawn, many = drawn[source], many[source]
    ends = np.concatenate(([0], np.cumsum(many)))
    flat = drawn[np.arange(drawn.shape[1]) < many[:, None]]
    loras = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), named(f"{name.lower()}-lora", flat, size))
    return controlnets, loras


def check_shares(shares: Sequence[float], what: str) -> None:
    """Check weights, one a thing. Raises TraceError unless they are positive finite numbers (or there are none)."""
    for share in shares:
        check_number("synthetic trace", what, share, above=0.0)


def check_service(service: Mapping[str, Any], name: str) -> None:
    """Check one service's add-ons. Raises TraceError where a key is missing or unknown or a value is out of range."""
    where = f"synthetic trace: services.{name}"
    if not isinstance(service, Mapping) or set(service) != set(ADDON_KEYS):
        raise TraceError(f"{where}: found {service!r}; expected the keys {', '.join(ADDON_KEYS)}")
    combos = service["controlnets"]
    try:
        well = bool(combos) and all(
            all(isinstance(cell, str) for cell in names) and not isinstance(names, str) for names, _ in combos
        )
    except (TypeError, ValueError):
        well = False
    if not well:
        raise TraceError(f"{where}.controlnets={combos!r}, expected rows of a list of names and a positive weight")
    for _, weight in combos:
        check_number(where, "controlnets", weight, above=0.0)
    shares = service["loras_per_request"]
    if not isinstance(shares, Sequence) or isinstance(shares, str) or len(shares) < 2 or not any(shares):
        raise TraceError(f"{where}.loras_per_request={shares!r}, expected shares of 0, 1, 2 and more LoRAs")
    for share in shares:
        check_number(where, "loras_per_request", share, least=0.0)
    check_count(where, "lora_names", service["lora_names"], 10**6)
    if service["lora_names"] < len(shares):
        raise TraceError(f"{where}.lora_names={service['lora_names']}, expected at least {len(shares)}")
    check_number(where, "lora_skew", service["lora_skew"], least=0.0, most=10.0)
    check_number(where, "lora_shift", service["lora_shift"], least=0.0)
