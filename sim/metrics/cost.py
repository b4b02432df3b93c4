"""Cost of a run: GPUs, rented by the instance, and paid services such as a vector database."""

import datetime
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from mezzotint.files.document import DocumentError, parse
from mezzotint.files.validation import first_error
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.gpu import Gpu
from mezzotint.sim.metrics.recorder import RunRecord


class PaidService(BaseModel):
    """Service paid by the hour, used or not: a vector database, a file store.

    ``usd_per_h`` is None if no price is published; then the run has no cost either.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    usd_per_h: Annotated[float, Field(ge=0, le=1e9, strict=True)] | None
    source: str


@dataclass(frozen=True, slots=True)
class Price:
    """Price of one GPU for an hour in US$, with its source."""

    usd_per_gpu_h: float
    source: str


class PriceRow(BaseModel):
    """A row of a file of prices; a bare number is the US$ of one GPU for an hour."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    usd_per_gpu_h: Annotated[float, Field(gt=0, le=1e6, strict=True)]
    date: Annotated[datetime.date, Field(strict=True)] | None = None
    source: str = ""


def _row(value: Any) -> Any:
    return {"usd_per_gpu_h": value} if isinstance(value, int | float | str) else value


_PRICES = TypeAdapter(dict[str, Annotated[PriceRow, BeforeValidator(_row)]])


def read_prices(path: Traversable, name: str) -> dict[str, PriceRow]:
    """Read a YAML file of prices, by kind of GPU; ``name`` is what errors call the file.

    Raises ConfigError: it cannot be read, or a row is no price.
    """
    try:
        return _PRICES.validate_python(parse(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name}: cannot be read ({error})") from None
    except DocumentError as error:
        raise ConfigError(f"{name}: {error}") from None
    except ValidationError as error:
        raise ConfigError(
            f"{name}: {first_error(error)}; expected KIND: USD per GPU and hour, or "
            "KIND: {usd_per_gpu_h, date, source}"
        ) from None


@cache
def list_prices() -> Mapping[str, Price]:
    """Return the price of each GPU kind that conf/data/gpu-prices.yaml knows."""
    name = "gpu-prices.yaml"
    return {
        kind: Price(row.usd_per_gpu_h, (f"list price of {row.date}: " if row.date else "") + row.source)
        for kind, row in read_prices(files("mezzotint.conf") / "data" / name, name).items()
    }


def gpu_price(gpu: Gpu) -> Price | None:
    """Return the price that the configuration sets, else the list price of the GPU's kind; None without either."""
    if gpu.usd_per_gpu_h is not None:
        return Price(gpu.usd_per_gpu_h, "cluster.gpu.usd_per_gpu_h, set in the configuration")
    return list_prices().get(gpu.name)


def rate_usd_h(counts: Mapping[Gpu, int], services: Mapping[str, PaidService]) -> dict[str, float | None]:
    """Return the US$ per hour of each part of a deployment; None if not known.

    The parts are the GPUs, called ``gpu`` if all are of one kind and else by the names of their kinds, and then the
    services by name. GPUs are rented in whole instances: five GPUs in instances of four cost as much as eight.

    Args:
        counts: number of GPUs of each kind.
    """
    rates: dict[str, float | None] = {}
    for gpu, count in counts.items():
        # Providers rent whole instances (test_instances_are_paid_whole).
        paid = math.ceil(count / gpu.gpus_per_instance) * gpu.gpus_per_instance
        price = gpu_price(gpu)
        rates["gpu" if len(counts) == 1 else gpu.name] = None if price is None else price.usd_per_gpu_h * paid
    return rates | {name: service.usd_per_h for name, service in services.items()}


def cost(
    record: RunRecord,
    counts: Mapping[Gpu, int],
    services: Mapping[str, PaidService],
    span_s: float,
    images: int,
    off_s: float = 0.0,
) -> dict[str, Any]:
    """Return the summary's ``cost_usd`` of the GPUs for ``span_s`` seconds in which ``images`` were finished.

    The total is null if the cost of one part is. Every known price is recorded as an assumption.

    Args:
        counts: number of GPUs of each kind.
        off_s: GPU-seconds of instances that were off, which are not paid (UsageLog.off_s).
    """
    rates = rate_usd_h(counts, services)
    by_part = {name: None if rate is None else rate * span_s / 3600 for name, rate in rates.items()}
    if off_s:
        (gpu,) = counts  # GPUs are off only in a cluster of one kind
        price, gpus_usd = gpu_price(gpu), by_part["gpu"]
        if price is not None and gpus_usd is not None:
            by_part["gpu"] = gpus_usd - price.usd_per_gpu_h * off_s / 3600
    known = [usd for usd in by_part.values() if usd is not None]
    total = sum(known) if len(known) == len(by_part) else None
    for gpu in counts:
        price, of_kind = gpu_price(gpu), "" if len(counts) == 1 else f" ({gpu.name})"
        if price is not None:
            record.assume(f"price of a GPU{of_kind} [USD/h]", price.usd_per_gpu_h, price.source)
            record.assume(f"GPUs that are rented together{of_kind}", gpu.gpus_per_instance, gpu.source)
    for name, service in services.items():
        record.assume(f"price of the {name.replace('_', ' ')} [USD/h]", service.usd_per_h, service.source)
    per_image = total / images if total is not None and images else None
    return {"per_image": per_image, "total": total, "by": by_part}
