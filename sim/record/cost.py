"""What a run costs: GPUs, which are rented by the instance, and the services that a system uses beside them."""

import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from sim.gpu import Gpu
from sim.record.record import Record


class Service(BaseModel):
    """A service that is paid by the hour, used or not: a vector database, a file store.

    ``usd_per_h`` is None where nobody published a price; then the run has no cost either.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    usd_per_h: Annotated[float, Field(ge=0, le=1e9, strict=True)] | None
    source: str


def rate_usd_h(gpu: Gpu, count: int, services: Mapping[str, Service]) -> dict[str, float | None]:
    """US$ per hour of each part of a deployment: ``gpu``, then the services by name. None where not known.

    GPUs come in whole instances: of five GPUs that are rented by fours, eight are paid.
    """
    paid = math.ceil(count / gpu.gpus_per_instance) * gpu.gpus_per_instance
    gpus = None if gpu.usd_per_gpu_h is None else gpu.usd_per_gpu_h * paid
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
    if gpu.usd_per_gpu_h is not None:
        record.assume("price of a GPU [USD/h]", gpu.usd_per_gpu_h, gpu.source)
        record.assume("GPUs that are rented together", gpu.gpus_per_instance, gpu.source)
    for name, service in services.items():
        record.assume(f"price of the {name.replace('_', ' ')} [USD/h]", service.usd_per_h, service.source)
    per_image = total / images if total is not None and images else None
    return {"per_image": per_image, "total": total, "by": by}
