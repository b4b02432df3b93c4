"""What a run costs: GPUs, which are rented by the instance, and the services that a system uses beside them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from conf.document import parse
from sim.core.gpu import Gpu
from sim.metrics.recorder import Record


class Service(BaseModel):
    """A service that is paid by the hour, used or not: a vector database, a file store.

    ``usd_per_h`` is None where nobody published a price; then the run has no cost either.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    usd_per_h: Annotated[float, Field(ge=0, le=1e9, strict=True)] | None
    source: str


@dataclass(frozen=True, slots=True)
class Price:
    """US$ for one GPU for an hour, and where that comes from."""

    usd_per_gpu_h: float
    source: str


@cache
def list_prices() -> Mapping[str, Price]:
    """Return the price of each GPU kind that conf/data/gpu-prices.yaml knows."""
    known = parse((files("conf") / "data" / "gpu-prices.yaml").read_text(encoding="utf-8"))
    said = {name: f"list price of {row['date']}: " if row["date"] else "" for name, row in known.items()}
    return {name: Price(row["usd_per_gpu_h"], said[name] + row["source"]) for name, row in known.items()}


def gpu_price(gpu: Gpu) -> Price | None:
    """Return the price that the configuration sets, else the list price of the GPU's kind; None without either."""
    if gpu.usd_per_gpu_h is not None:
        return Price(gpu.usd_per_gpu_h, "cluster.gpu.usd_per_gpu_h, set in the configuration")
    return list_prices().get(gpu.name)


def rate_usd_h(gpu: Gpu, count: int, services: Mapping[str, Service]) -> dict[str, float | None]:
    """US$ per hour of each part of a deployment: ``gpu``, then the services by name. None where not known.

    GPUs come in whole instances: of five GPUs that are rented by fours, eight are paid.
    """
    paid = math.ceil(count / gpu.gpus_per_instance) * gpu.gpus_per_instance
    price = gpu_price(gpu)
    gpus = None if price is None else price.usd_per_gpu_h * paid
    return {"gpu": gpus, **{name: service.usd_per_h for name, service in services.items()}}


def cost(
    record: Record, gpu: Gpu, gpus: int, services: Mapping[str, Service], span_s: float, images: int
) -> dict[str, Any]:
    """The summary's ``cost_usd``: of ``gpus`` GPUs for ``span_s`` seconds in which ``images`` were finished, by part.

    A cost of which one part is not known is not known (null). Every price that is known is said as an assumption.
    """
    rates = rate_usd_h(gpu, gpus, services)
    by = {name: None if rate is None else rate * span_s / 3600 for name, rate in rates.items()}
    known = [usd for usd in by.values() if usd is not None]
    total = sum(known) if len(known) == len(by) else None
    price = gpu_price(gpu)
    if price is not None:
        record.assume("price of a GPU [USD/h]", price.usd_per_gpu_h, price.source)
        record.assume("GPUs that are rented together", gpu.gpus_per_instance, gpu.source)
    for name, service in services.items():
        record.assume(f"price of the {name.replace('_', ' ')} [USD/h]", service.usd_per_h, service.source)
    per_image = total / images if total is not None and images else None
    return {"per_image": per_image, "total": total, "by": by}
