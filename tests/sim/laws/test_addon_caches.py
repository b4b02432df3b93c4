"""Fetching and caching of add-ons: a shared link, a disk on each node, LRU and LFU, routing by add-on."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.backends.base import Asset
from mezzotint.sim.addons.fetch import Link, MeasuredFetch
from mezzotint.sim.addons.kernels import Kernels
from mezzotint.sim.addons.quantiles import QuantileSampler
from mezzotint.sim.addons.shared_link import NodeDisk, SharedLink
from mezzotint.sim.addons.sync_loading import SyncLoading
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.run.simulate import simulate
from mezzotint.traces.describe.loads import Lookups
from tests.sim.lab import FixedTimes, configured

RATE = 100.0
SIZES = st.lists(st.tuples(st.floats(0, 10), st.floats(1, 500)), min_size=1, max_size=5)


def bound(fetch: Any, sizes: dict[str, float]) -> Any:
    """Bind ``fetch`` to a run that notes each load, and whose workers know only the bytes of add-ons."""
    loaded: list[str] = []
    rng = SimpleNamespace(random=lambda: 0.5)
    backend = SimpleNamespace(bytes=lambda asset: sizes[asset.name])
    run = SimpleNamespace(
        worker=lambda number=0: SimpleNamespace(id=number, backend=backend),
        assume=lambda *_: None,
        rng=lambda name: rng,
        record_load=lambda asset, _: loaded.append(asset.name),
        noted=loaded,
    )
    fetch.bind(run)
    return run


def lora(name: str) -> Asset:
    return Asset("lora", name, "m")


def shared(files: list[tuple[float, float]], latency_s: float, step_s: float = 0.005) -> list[float]:
    """Return the arrival time of each of ``files`` (start, bytes), simulated in small steps."""
    left = [size for _, size in files]
    ends, now_s = [0.0] * len(files), 0.0
    while any(size > 0 for size in left):
        active = [at for at, (begins_s, _) in enumerate(files) if left[at] > 0 and begins_s + latency_s <= now_s]
        now_s += step_s
        for at in active:
            left[at] -= RATE / len(active) * step_s
            if left[at] <= 0:
                ends[at] = now_s
    return ends


@settings(max_examples=20)
@given(st.lists(st.floats(0, 5), min_size=2, max_size=6).map(sorted))
def test_measured_fetch_draws_from_its_quantiles(quantiles_s: list[float]) -> None:
    fetch = MeasuredFetch(quantiles_s)
    run = bound(fetch, {})
    run.rng("").random = iter(np.linspace(0.0, 1.0, len(quantiles_s)).tolist()).__next__
    assert [fetch.seconds(run.worker(), lora("x"), 0.0) for _ in quantiles_s] == pytest.approx(quantiles_s)
    assert len(run.noted) == len(quantiles_s)


@pytest.mark.parametrize("quantiles_s", [[1.0], [], [1.0, 0.5], [-0.1, 0.5], [0.1, 0.3, 0.2]])
def test_malformed_quantiles_are_refused(quantiles_s: list[float]) -> None:
    expected = r"found \[.*expected two or more numbers from 0 in ascending order"
    with pytest.raises(ConfigError, match=f"lora_fetch.quantiles: {expected}"):
        MeasuredFetch(quantiles_s)
    with pytest.raises(ConfigError, match=f"lora_fetch.latency_s: {expected}"):
        Link(quantiles_s, RATE)
    with pytest.raises(ConfigError, match=f"lora_loading.spread: {expected}"):
        SyncLoading(spread=quantiles_s)


QUANTILES = st.lists(st.floats(0, 5), min_size=2, max_size=40).map(sorted)


@settings(max_examples=25)
@given(QUANTILES, st.integers(0, 2**32))
def test_quantile_draws_have_the_mean_and_median_of_their_quantiles(quantiles: list[float], seed: int) -> None:
    """Within five standard errors: of the mean as usual, of the median as a share of the draws."""
    drawn, count = QuantileSampler("key", quantiles, np.random.default_rng(seed)), 4000
    found = np.array([drawn() for _ in range(count)])
    grid = np.linspace(0, 1, len(quantiles))
    assert quantiles[0] <= found.min() <= found.max() <= quantiles[-1]
    assert abs(found.mean() - np.trapezoid(quantiles, grid)) <= 5 * found.std() / count**0.5 + 1e-9
    slack = 5 * 0.5 / count**0.5
    low, high = np.interp([0.5 - slack, 0.5 + slack], grid, quantiles)
    assert low - 1e-9 <= np.median(found) <= high + 1e-9


@given(QUANTILES, st.integers(0, 2**32))
def test_link_time_is_a_drawn_latency_plus_bytes_over_bandwidth(quantiles: list[float], seed: int) -> None:
    link = Link(quantiles, RATE)
    run = bound(link, {"x": 50.0})
    run.rng("").random = np.random.default_rng(seed).random
    expected = QuantileSampler("key", quantiles, np.random.default_rng(seed))
    found = [link.seconds(run.worker(), lora("x"), 0.0) for _ in range(5)]
    assert found == pytest.approx([expected() + 0.5 for _ in range(5)])


def test_kernels_need_a_backend_that_knows_them() -> None:
    assumed: list[tuple[Any, ...]] = []
    run = SimpleNamespace(backend=FixedTimes([1.0]), assume=lambda *what: assumed.append(what))
    with pytest.raises(ConfigError, match=r"kernels: FixedTimes knows none; add backend=profiled or ~kernels"):
        Kernels(["fused"]).bind(run)  # type: ignore[arg-type]
    plain = Kernels()
    plain.bind(run)  # type: ignore[arg-type]
    assert plain.faster("sdxl") == 1.0
    assert assumed == []


@settings(max_examples=40)
@given(SIZES, st.floats(0, 1))
def test_shared_link_matches_a_small_step_simulation(files: list[tuple[float, float]], latency_s: float) -> None:
    files = sorted(files)
    link = SharedLink(latency_s=latency_s, bytes_per_s=RATE)
    run = bound(link, {str(at): size for at, (_, size) in enumerate(files)})
    firsts = [
        begins_s + link.seconds(run.worker(at), lora(str(at)), begins_s) for at, (begins_s, _) in enumerate(files)
    ]
    known = [link.expected_s(run.worker(at), lora(str(at))) for at in range(len(files))]
    assert known == pytest.approx(shared(files, latency_s), abs=0.05)
    assert all(first <= last + 1e-9 for first, last in zip(firsts, known, strict=True))


def test_two_equal_files_halve_a_shared_link() -> None:
    link = SharedLink(latency_s=0.115, bytes_per_s=2**30)
    run = bound(link, {"a": 384 * 2**20, "b": 384 * 2**20})
    assert link.seconds(run.worker(0), lora("a"), 0.0) == pytest.approx(0.49)  # SwiftDiffusion, 4.2
    assert link.seconds(run.worker(1), lora("b"), 0.0) == pytest.approx(0.115 + 0.75)
    assert link.expected_s(run.worker(0), lora("a")) == pytest.approx(0.115 + 0.75)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=50), st.integers(1, 6), st.sampled_from(["lru", "lfu"]))
def test_node_disk_fetches_match_the_offline_miss_curve(asked: list[int], files: int, eviction: Any) -> None:
    remote = SharedLink(latency_s=0.0, bytes_per_s=RATE)
    disk = SharedLink(latency_s=0.0, bytes_per_s=RATE)
    node = NodeDisk(files=files, eviction=eviction, disk=disk, remote=remote)
    sizes = {str(n): 1.0 for n in range(6)}
    bound(node, sizes)
    run = bound(remote, sizes)
    bound(disk, sizes)
    for at, name in enumerate(asked):
        node.seconds(run.worker(), lora(str(name)), float(at))
    assert len(run.noted) == pytest.approx(Lookups(1, [asked]).loads(files, eviction))


@pytest.mark.parametrize("eviction", ["lru", "lfu"])
@pytest.mark.parametrize("max_resident", [1, 2, 3])
def test_controlnet_gpu_loads_match_the_offline_miss_curve(tmp_path: Any, eviction: str, max_resident: int) -> None:
    """One request at a time on one GPU loads what the curve of the trace's only node says."""
    drawn = np.random.default_rng(1).choice(6, 40, p=[0.35, 0.25, 0.2, 0.1, 0.05, 0.05])
    # with a capacity of two, counts that outlive an eviction show
    asked = np.concatenate([[0, 0, 1, 2, 1, 2, 0], drawn])
    file = tmp_path / "t.csv"
    lines = [f"p,{30 * at},net{name}," for at, name in enumerate(asked)]
    file.write_text("\n".join(["prompt,arrival_s,controlnets,loras", *lines, ""]))
    outcome = simulate(
        configured(
            "system=diffusers", "cluster=h800", "cluster.count=1", "arrivals=trace", "trace=file",
            f"trace.path={file}",
            f"controlnet_placement.eviction={eviction}", f"controlnet_placement.max_resident={max_resident}",
        )
    )  # fmt: skip
    loads = (outcome.requests.to_pandas().load_s > 0).sum()
    assert loads == round(Lookups(1, [asked.tolist()]).loads(max_resident, eviction))


def test_shared_link_stalls_concurrent_requests_unlike_separate_links() -> None:
    """Four requests start at once: each LoRA takes four times as long and stalls its request; nothing else differs."""
    common = (
        "system=swiftdiffusion", "cluster=h800", "cluster.count=4", "trace=add-ons", "trace.controlnets=0",
        "trace.loras=1", "trace.requests=4", "arrivals=closed", "arrivals.outstanding=4",
        "lora_loading.max_steps_without=5",
    )  # fmt: skip
    alone, together = (simulate(configured(*common, f"lora_fetch={fetch}")) for fetch in ("link", "shared-link"))
    size, rate = 340_500_000, 2**30
    begins = alone.requests.to_pandas().stall_s
    stalls = together.requests.to_pandas().stall_s
    assert (stalls - begins).tolist() == pytest.approx([3 * size / rate] * 4)


@pytest.mark.parametrize("worth", [0.0, 1.0, 1e6])
def test_load_weight_of_by_addons_trades_loads_for_waiting(worth: float) -> None:
    """All requests ask for the same ControlNet. With weight 0 they spread over the GPUs; with a large weight they queue
    at one."""
    outcome = simulate(
        configured(
            "system=diffusers", "cluster=h800", "cluster.count=4", "trace=add-ons", "trace.controlnets=1",
            "trace.loras=0", "trace.requests=12", "arrivals=closed", "arrivals.outstanding=12", "scheduler=per-worker",
            "router=by-addons", f"router.load_weight={worth}",
        )
    )  # fmt: skip
    loads = (outcome.requests.to_pandas().load_s > 0).sum()
    assert loads == (1 if worth > 1e3 else 4)
    longest_s = outcome.requests.to_pandas().finish_s.max()
    assert longest_s > 40 if worth > 1e3 else longest_s < 20
    assert outcome.summary["requests"]["completed"] == 12
