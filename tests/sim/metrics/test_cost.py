"""What a run costs: instances, services, and which parts are unknown."""

import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.gpu import Gpu
from mezzotint.sim.metrics.cost import PaidService, list_prices, rate_usd_h
from mezzotint.sim.run.config.choices import gpus
from tests.sim.lab import simulated

A10G = ("cluster=a10g", "arrivals=closed", "trace.requests=200")


def costs(*overrides: str) -> dict[str, Any]:
    cost: dict[str, Any] = simulated(*A10G, *overrides).summary["cost_usd"]
    return cost


@given(count=st.integers(1, 64), together=st.integers(1, 8), price=st.floats(0, 100), service=st.floats(0, 10))
def test_instances_are_paid_whole(count: int, together: int, price: float, service: float) -> None:
    gpu = Gpu("test", None, None, "made up", price, together)
    rates = rate_usd_h({gpu: count}, {"store": PaidService(usd_per_h=service, source="made up")})
    assert rates["store"] == service
    assert rates["gpu"] == pytest.approx(price * together * math.ceil(count / together))
    assert rates["gpu"] >= price * count * (1 - 1e-12)


def test_one_a10g_costs_as_much_as_the_four_of_its_instance() -> None:
    """NIRVANA, 7.3: a g5.24xlarge, four A10G, is $8.144 per hour; the paper serves on one A10G."""
    for count, instances in ((1, 1), (4, 1), (5, 2)):
        summary = simulated(*A10G, f"cluster.count={count}", "arrivals.outstanding=8").summary
        hours = summary["gpu"]["seconds"] / count / 3600
        assert summary["cost_usd"]["total"] == pytest.approx(8.144 * instances * hours)


def test_services_are_paid_by_the_systems_that_use_them() -> None:
    alone = costs("system=vanilla")
    assert list(alone["by"]) == ["gpu"]
    served = simulated(*A10G, "system=nirvana").summary
    by, hours = served["cost_usd"]["by"], served["gpu"]["seconds"] / 3600
    assert by["vector_database"] == pytest.approx(0.12 * hours)
    assert by["file_store"] == pytest.approx(0.09 * hours)
    assert by["gpu"] == pytest.approx(8.144 * hours)
    assert served["cost_usd"]["total"] == pytest.approx(sum(by.values()))
    assert served["cost_usd"]["per_image"] == pytest.approx(served["cost_usd"]["total"] / 200)
    assumptions = {a["what"]: (a["value"], a["source"]) for a in served["assumptions"]}
    assert assumptions["price of the vector database [USD/h]"][0] == 0.12
    assert "7.3" in assumptions["price of the file store [USD/h]"][1]
    assert assumptions["GPUs that are rented together"][0] == 4


def test_higher_service_price_changes_only_the_cost() -> None:
    dear = costs("system=nirvana", "system.services.file_store.usd_per_h=9")
    cheap = costs("system=nirvana")
    assert dear["by"]["gpu"] == cheap["by"]["gpu"]
    assert dear["total"] - cheap["total"] == pytest.approx(dear["by"]["file_store"] * (1 - 0.09 / 9))


def test_cost_with_an_unknown_part_is_null() -> None:
    cost = costs("system=nirvana", "system.services.file_store.usd_per_h=null")
    assert cost["total"] is None
    assert cost["per_image"] is None
    assert cost["by"]["file_store"] is None
    assert cost["by"]["gpu"] > 0
    unpriced = simulated("system=nirvana", "cluster=h800", "trace.requests=50").summary["cost_usd"]
    assert unpriced["total"] is None, "nobody published an H800"
    assert unpriced["by"]["vector_database"] > 0


def priced(*overrides: str) -> tuple[float, tuple[float, str]]:
    """Return the US$ per GPU-hour of a run, and what its summary says of the price."""
    summary = simulated("models=sdxl-mlperf", "trace.requests=50", "cluster.count=1", *overrides).summary
    (stated,) = (
        (row["value"], row["source"]) for row in summary["assumptions"] if row["what"].startswith("price of a")
    )
    return summary["cost_usd"]["total"] / (summary["gpu"]["seconds"] / 3600), stated


@pytest.mark.parametrize("kind", ["l40s", "h100-sxm"])
def test_gpu_price_is_its_list_price_by_default(kind: str) -> None:
    """The default price names its cloud and date; a price set by the user is no list price."""
    listed = list_prices()[kind]
    alike = (f"cluster={kind}", "extrapolate=warn", "executor=sequential")
    rate, stated = priced(*alike)
    assert rate == pytest.approx(listed.usd_per_gpu_h)
    assert stated == (listed.usd_per_gpu_h, listed.source)
    assert stated[1].startswith("list price of 20")
    rate, stated = priced(*alike, "cluster.gpu.usd_per_gpu_h=1.25")
    assert rate == pytest.approx(1.25)
    assert stated == (1.25, "cluster.gpu.usd_per_gpu_h, set in the configuration")


def test_every_list_price_is_of_a_known_gpu_and_has_a_source() -> None:
    assert set(list_prices()) <= set(gpus())
    singles = {kind: price for kind, price in list_prices().items() if " times " not in price.source}
    assert all(0.05 < price.usd_per_gpu_h < 20 and price.source for price in singles.values())


@pytest.mark.parametrize("kind", [kind for kind in gpus() if re.search(r"-x\d$", kind)])
def test_server_of_several_gpus_costs_and_draws_as_many_times_a_gpu(kind: str) -> None:
    count = int(kind[-1])
    (single,) = (other for other in (kind[:-3], f"{kind[:-3]}-sxm") if other in list_prices() and other != "h100-sxm")
    assert list_prices()[kind].usd_per_gpu_h == pytest.approx(count * list_prices()[single].usd_per_gpu_h)
    of_server, of_gpu = (gpus()[name]["cluster"]["gpu"] for name in (kind, single))
    assert all(of_server[key] == count * of_gpu[key] for key in ("memory_bytes", "active_w", "idle_w"))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("system.services.file_store.usd_per_h=-1", r"system\.services\.file_store\.usd_per_h: .*found -1"),
        ("+system.services.file_store.colour=red", r"system\.services\.file_store\.colour"),
        ("+system.services.queue={usd_per_h: 1}", r"system\.services\.queue\.source"),
        ("cluster.gpu.gpus_per_instance=0", r"cluster\.gpu\.gpus_per_instance: found 0"),
    ],
)
def test_invalid_price_is_refused(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        costs("system=nirvana", override)
