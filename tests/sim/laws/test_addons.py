"""Add-ons on a made-up profile against worked examples; and deadlines."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from mezzotint.backends.base import BackendError
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols import Scheduler, Worker
from mezzotint.sim.run.simulate import Outcome
from mezzotint.sim.scheduling.fcfs import Fcfs
from tests.sim.lab import engine, simulated

STEP_S, NET_S, NET_LOAD_S, READ_S, PATCH_S, END_S, STEPS = 0.1, {1: 0.03, 2: 0.05}, 2.0, 0.25, 0.5, 1.0, 50
ONE_S = STEPS * STEP_S + END_S
PLAIN: dict[str, Any] = {
    "model": "sdxl", "gpu": "h800", "source": "made up",
    "step": [{"width": 1024, "height": 1024, "seconds": STEP_S}],
    "vae_decode": [{"width": 1024, "height": 1024, "seconds": END_S}],
    "weights_bytes": 10_000, "schema": 1,
}  # fmt: skip
FULL = PLAIN | {
    "controlnet_step": [{"width": 1024, "height": 1024, "nets": n, "seconds": s} for n, s in NET_S.items()],
    "controlnet": {"bytes": 1000, "load_s": NET_LOAD_S},
    "lora": {
        "bytes": 100, "rank": 8, "read_s": READ_S, "patch_s": PATCH_S, "attach_s": 9.0, "fuse_s": 9.0, "unfuse_s": 9.0,
    },
}  # fmt: skip
LORA_S = READ_S + PATCH_S
ROWS = ("a;b|", "a|x", "|x", "|x;y", "|", "b|")
"""ControlNets and LoRAs of each request, as "ControlNets|LoRAs"."""


@pytest.fixture
def served(tmp_path: Path) -> Callable[..., Outcome]:
    """Run ``rows``, 100 s apart, on one GPU."""

    def run(*overrides: str, profile: dict[str, Any] = FULL, rows: tuple[str, ...] = ROWS) -> Outcome:
        folder, trace = tmp_path / "profiles", tmp_path / "trace.csv"
        folder.mkdir(exist_ok=True)
        (folder / "h800_sdxl.yaml").write_text(yaml.safe_dump(profile, sort_keys=False))
        lines = [f"p{i},{100 * i},{row.replace('|', ',')}" for i, row in enumerate(rows)]
        trace.write_text("\n".join(["prompt,arrival_s,controlnets,loras", *lines, ""]))
        return simulated(
            "cluster=h800", "cluster.count=1", f"backend.folder={folder}", "arrivals=trace", "trace=file",
            f"trace.path={trace}", *overrides,
        )  # fmt: skip

    return run


@pytest.mark.parametrize("executor", ["sequential", "continuous-batching"])
def test_addons_load_before_step_one_and_run_beside_every_step(served: Callable[..., Outcome], executor: str) -> None:
    """ControlNets stay resident; LoRAs are patched again for every other set."""
    outcome = served("addons=serve", f"executor={executor}", "cluster.gpu.memory_bytes=null")
    rows = outcome.requests.to_pandas()
    loads = [2 * NET_LOAD_S, LORA_S, 0.0, 2 * LORA_S, 0.0, 0.0]
    steps = [STEPS * (STEP_S + s) for s in (NET_S[2], NET_S[1], 0.0, 0.0, 0.0, NET_S[1])]
    assert rows.load_s.tolist() == pytest.approx(loads)
    assert rows.denoise_s.tolist() == pytest.approx(steps)
    stays = [load + step + END_S for load, step in zip(loads, steps, strict=True)]
    assert (rows.finish_s - rows.arrival_s).tolist() == pytest.approx(stays)
    assert rows.energy_j.tolist() == pytest.approx([700 * s for s in stays])
    gpu = outcome.summary["gpu"]
    assert gpu["switches"] == 0
    assert gpu["busy_fraction"] * gpu["seconds"] == pytest.approx(sum(stays))
    assumptions = [assumption["what"] for assumption in outcome.summary["assumptions"]]
    assert "seconds to take LoRAs out of a model's weights again" in assumptions
    assert "GPU memory for ControlNets" in assumptions


def test_memory_pressure_evicts_the_least_recently_used_controlnet(served: Callable[..., Outcome]) -> None:
    """Two ControlNets fit: c replaces b, which was used before a."""
    rows = ("a|", "b|", "a|", "c|", "a|", "b|")
    outcome = served("addons=serve", "cluster.gpu.memory_bytes=12500", rows=rows)
    loads = [NET_LOAD_S * n for n in (1, 1, 0, 1, 0, 1)]
    assert outcome.requests.to_pandas().load_s.tolist() == loads
    outcome = served("addons=serve", "cluster.gpu.memory_bytes=11500", rows=("a;b|", "a|"))
    assert outcome.requests.to_pandas().outcome.tolist() == ["failed", "completed"]
    assert (
        outcome.requests.to_pandas().reason[0].startswith("the ControlNets a, b do not fit into the 0.0 GB of a h800")
    )


def test_controlnet_in_use_by_an_active_request_is_not_evicted(served: Callable[..., Outcome]) -> None:
    """One ControlNet fits; the second request joins while the first steps."""
    together = (
        "addons=serve",
        "executor=continuous-batching",
        "arrivals=closed",
        "arrivals.outstanding=2",
        "extrapolate=warn",
    )
    served(*together, "cluster.gpu.memory_bytes=12000", rows=("a|", "b|"))
    outcome = served(*together, "cluster.gpu.memory_bytes=11500", rows=("a|", "b|"))
    assert outcome.requests.to_pandas().outcome.tolist() == ["completed", "failed"]


@pytest.mark.parametrize("executor", ["sequential", "continuous-batching"])
def test_working_memory_of_a_request_fits_beside_resident_addons(served: Callable[..., Outcome], executor: str) -> None:
    """Weights take 10,000 bytes, a ControlNet 1,000. A step with one takes 12,000 in all, a step without 11,000."""
    size = {"width": 1024, "height": 1024, "batch": 1}
    memory = [
        {"operation": "step", "nets": 0, "bytes": 11_000, **size},
        {"operation": "controlnet_step", "nets": 1, "bytes": 12_000, **size},
    ]
    profile = FULL | {"memory": memory}
    choose = ("addons=serve", f"executor={executor}")
    rows = ("a|", "b|", "|", "a|")
    for memory_bytes, loads in ((12_900, [1, 1, 0, 1]), (13_000, [1, 1, 0, 0])):
        outcome = served(*choose, f"cluster.gpu.memory_bytes={memory_bytes}", profile=profile, rows=rows)
        assert outcome.requests.to_pandas().load_s.tolist() == [NET_LOAD_S * n for n in loads]
    outcome = served(*choose, "cluster.gpu.memory_bytes=11900", profile=profile, rows=rows)
    assert outcome.requests.to_pandas().outcome.tolist() == ["failed", "failed", "completed", "failed"]


def test_requests_with_different_loras_cannot_share_a_worker(served: Callable[..., Outcome]) -> None:
    with pytest.raises(ConfigError, match="choose a scheduler= that keeps LoRAs apart"):
        served(
            "addons=serve",
            "executor=continuous-batching",
            "arrivals=closed",
            "arrivals.outstanding=2",
            rows=("|x", "|y"),
        )


def test_ignored_addons_are_stated_as_an_assumption(served: Callable[..., Outcome]) -> None:
    outcome = served()
    assert (outcome.requests.to_pandas().denoise_s == STEPS * STEP_S).all()
    (assumption,) = [each for each in outcome.summary["assumptions"] if "add-ons" in each["what"]]
    assert (assumption["value"], assumption["source"]) == (0, "addons=ignore; 5 requests ask for some")


@pytest.mark.parametrize("row", ["a|", "|x"])
def test_profile_without_addon_figures_is_refused(served: Callable[..., Outcome], row: str) -> None:
    message = r"profile of sdxl on h800: .*(measure it|measure them) \(mezzotint calibrate"
    with pytest.raises(BackendError, match=message) as caught:
        served("addons=serve", profile=PLAIN, rows=("|", row))
    assert "\n" not in str(caught.value)
    assert served("addons=serve", profile=PLAIN, rows=("|", "|")).summary["requests"]["completed"] == 2


# -- deadlines ---------------------------------------------------------------------------------------------------


class EarliestDeadline(Scheduler):
    """The waiting request with the earliest deadline starts next."""

    def bind(self, run: Any) -> None:
        self.cluster, self.waiting = run.cluster, list[Request]()

    def offer(self, request: Request, now_s: float) -> Worker | None:
        worker: Worker | None = self.cluster.least_loaded()
        if worker is None:
            self.waiting.append(request)
        return worker

    def next(self, worker: Worker, now_s: float) -> Request | None:
        due = min(self.waiting, key=lambda request: request.deadline_s, default=None)
        if due is not None:
            self.waiting.remove(due)
        return due

    def __len__(self) -> int:
        return len(self.waiting)


def test_deadline_is_arrival_plus_the_first_limit() -> None:
    """A long request that came first is due at 1 + 2 x 30 s, a short one at 2 + 2 x 5 s."""
    seen: dict[int, float] = {}

    class Watching(EarliestDeadline):
        def offer(self, request: Request, now_s: float) -> Worker | None:
            seen[request.row] = request.deadline_s
            return super().offer(request, now_s)

    asked = ([0.0, 1.0, 2.0], [10.0, 30.0, 5.0])
    first, due = engine(*asked, deadline=2.0), engine(*asked, deadline=2.0, scheduler=Watching())
    first.run()
    due.run()
    assert seen == {0: 20.0, 1: 61.0, 2: 12.0}
    assert first.record.request_columns["start_s"].tolist() == [0.0, 10.0, 40.0]
    assert due.record.request_columns["start_s"].tolist() == [0.0, 15.0, 10.0]


def test_deadline_follows_the_runs_first_slo(served: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []
    offer = Fcfs.offer

    def watched(self: Fcfs, request: Request, now_s: float) -> Worker | None:
        limits.append(request.deadline_s - request.arrival_s)
        return offer(self, request, now_s)

    monkeypatch.setattr(Fcfs, "offer", watched)
    served("slo=[3, 2]", rows=("|", "|"))
    assert limits == pytest.approx([3 * ONE_S] * 2)
