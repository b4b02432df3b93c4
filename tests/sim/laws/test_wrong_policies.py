"""A part's mistake ends its run, and the error names the part and the mistake."""

import json
import sys
from pathlib import Path

import pytest

from mezzotint.sim.core.errors import ConfigError, SimulationError
from mezzotint.sim.run.config.choices import gpus
from tests.sim.lab import simulated

OUTSIDE = Path(__file__).parents[1] / "outsider"

VANILLA = ("system=vanilla", "cluster.count=4", "trace.requests=200")
STEPS = ("system=vanilla", "cluster=h100", "executor=continuous-batching", "trace.requests=100")
MODM = ("system=modm-fixed", "trace.requests=200")
NIRVANA = ("system=nirvana-no-predictor", "cache.capacity=50", "trace.requests=300")

WRONG = [
    ("executor", "Unrecorded", VANILLA, r"completed the request in row 0 on worker \d .* not busy all that time"),
    ("executor", "HalfRecorded", VANILLA, "not busy all that time"),
    (
        "executor",
        "Honest",
        (*VANILLA, "allocation=fixed-split"),
        "planned for sd3.5-large, on worker ., which held sdxl",
    ),
    ("executor", "AtOnce", VANILLA, "ran 50 steps of the request in row 0 in 0.0 s"),
    ("executor", "Unstarted", VANILLA, "row 0 started at 0.0 s; it could from 3"),
    ("executor", "NoStepTime", VANILLA, "ran 50 steps of the request in row 0 in 0.0 s"),
    ("executor", "LongParts", VANILLA, "decoded for 110.0 s"),
    ("executor", "NegativeSeconds", VANILLA, "wrote denoise_s = -3.0 of the request in row 0"),
    ("executor", "NegativeJoules", VANILLA, "spends -1000000000.0 J"),
    ("executor", "ManyJoules", VANILLA, "wrote energy_j of .* its GPUs drew"),
    ("executor", "BackwardSpan", VANILLA, "which is earlier"),
    ("executor", "NanSpan", VANILLA, "which are no times"),
    ("executor", "EndsTwice", VANILLA, "row 0 ended twice: {policy} ended it at 13"),
    (
        "executor",
        "NeverReleases",
        VANILLA,
        r"\({policy}\) holds 4 requests .* Cluster.release was not called",
    ),
    ("executor", "NeverEnds", VANILLA, r"\({policy}\) holds 4 requests .* call Run.end and Cluster.release"),
    ("executor", "ReleasesNegative", VANILLA, "released -1 requests"),
    ("executor", "StepsLeft", VANILLA, "with 25 of its 50 steps left"),
    ("executor", "InThePast", VANILLA, "{policy} asked for a call at -1"),
    ("executor", "NoLimit", VANILLA, "takes 'many' requests at once"),
    ("scheduler", "Edits skipped 49", VANILLA, "{policy} changed skipped of the request in row 0 from 0 to 49"),
    ("scheduler", "EditsPlan k 5", VANILLA, "{policy} changed k of the request in row 0 from 0 to 5"),
    ("scheduler", "Edits steps 1", VANILLA, "{policy} changed steps of the request in row 0 from 50 to 1"),
    ("scheduler", "Edits arrival_s 90", VANILLA, "{policy} changed arrival_s of the request in row 0"),
    ("scheduler", "Edits deadline_s 9e9", VANILLA, "{policy} changed deadline_s of the request in row 0"),
    ("scheduler", "Edits steps_left 1", STEPS, "handed over the request in row 0 with 1 steps left; its plan has 50"),
    ("scheduler", "EditsLater", VANILLA, "{policy} changed arrival_s of the request in row 150"),
    ("scheduler", "OtherModel", VANILLA, "{policy} changed model of the request in row 151"),
    ("scheduler", "Drops", VANILLA, r"the scheduler \({policy}\) dropped 20 requests"),
    ("scheduler", "GivesTwice", VANILLA, "handed the request in row 0 to worker . .* before, to worker 0"),
    ("scheduler", "NegativeLength", VANILLA, "reports how many requests wait, and"),
    ("scheduler", "WrongLength", VANILLA, "says that 3 requests wait, and all have ended"),
    ("scheduler", "NoWorker", VANILLA, "returned 'worker 0'"),
    ("scheduler", "NoRequest", VANILLA, r"{policy} returned \d+ from next; expected a Request or None"),
    ("scheduler", "Raises", VANILLA, r"{policy} raised KeyError: 'boom' \(in next, their_lies.py line \d+\)"),
    ("scheduler", "RaisesWhenBound", VANILLA, r"{policy} raised KeyError: 'boom' \(in bind"),
    ("controller", "Installs", MODM, "{policy} installs .* with 1 requests running"),
    ("controller", "OrdersInThePast", MODM, "{policy} orders worker 0 .* at 0.0 s, and the clock stands at 60"),
    ("controller", "OrdersAll", MODM, "{policy} ordered the last worker of role 'large' elsewhere at 60"),
    ("controller", "GroupOfBusy", MODM, "{policy} wants worker .* in a group, which is not idle"),
    ("controller", "FailsBusy", MODM, "{policy} fails worker .* with 1 requests running"),
    ("controller", "Spins", MODM, "{policy} asks for calls at 0 s without end"),
    ("controller", "SpinsLater", MODM, "{policy} asks for calls at 600 s without end"),
    ("controller", "WaitsNegative", MODM, "{policy} raised ValueError: Negative delay"),
    ("batching", "NegativeSteps", STEPS, r"{policy} returned Cost\(seconds=-1.0, joules=0.0\) from step"),
    ("batching", "ZeroSteps", STEPS, "with {policy}.* ran 50 steps of the request in row 0 in 0.0 s"),
    ("batching", "NanSteps", STEPS, r"{policy} returned Cost\(seconds=nan"),
    ("batching", "NegativeJouleSteps", STEPS, r"{policy} returned Cost\(seconds=0.1, joules=-1000000.0\) from step"),
    ("batching", "NoCost", STEPS, "{policy} returned None from step; expected a Cost"),
    (
        "batching",
        "NegativeFinish",
        STEPS,
        r"{policy} returned \(Cost\(seconds=-0.5, .* from finish for the request in row 0",
    ),
    ("batching", "TooLarge", STEPS, r"with {policy}\) runs 1 requests .* takes 10000.0 GB of the 80.0 GB"),
    ("eviction", "NotHeld", NIRVANA, r"the eviction \({policy}\) named item"),
    ("eviction", "TooMany", NIRVANA, r"the eviction \({policy}\) named 8 items when 5 had to go"),
    ("eviction", "NoItems", NIRVANA, r"{policy} returned \[None, .*\] from victims; expected int"),
    (
        "admission",
        "Admits",
        NIRVANA,
        r"{policy} returned None from admits for the request in row 0; expected True or False",
    ),
    (
        "admission",
        "AdmitsText",
        NIRVANA,
        r"{policy} returned 'no' from admits for the request in row 0; expected True or False",
    ),
    ("selector", "Skips", NIRVANA, "{policy} skips 70 steps"),
    ("frontend.search_s", "NegativeDelay", NIRVANA, "{policy} drew"),
    ("frontend", "NegativeSkip", VANILLA, r"the frontend \({policy}\) planned for row 0 -3 of 50 steps skipped"),
    ("frontend", "NegativePlanning", VANILLA, r"{policy} returned -1.0 from admit for the request in row 0"),
    (
        "router",
        "AnyWorker",
        (*VANILLA, "scheduler=per-worker"),
        "{policy} returned <object .* from choose for the request in row 0; expected a Worker",
    ),
    ("allocation", "ManyRoles", VANILLA, "{policy} gave the roles .* to 4 GPUs"),
]


def chosen(folder: Path, key: str, policy: str) -> list[str]:
    """Return the overrides that choose the class of ``policy``, followed by its arguments, under ``key``."""
    name, *arguments = policy.split()
    node = {"_target_": f"their_lies.{name}"}
    if arguments:
        node |= {"name": arguments[0], "value": json.loads(arguments[1])}
    if "." in key:
        return [f"{key}={{_target_: their_lies.{name}}}"]
    (folder / key).mkdir()
    (folder / key / "wrong.yaml").write_text(json.dumps(node))
    return [f"hydra.searchpath=[file://{folder}]", f"{key}=wrong"]


@pytest.mark.parametrize(("key", "policy", "common", "what"), WRONG, ids=[policy for _, policy, _, _ in WRONG])
def test_impossible_action_ends_the_run_and_names_the_part(
    key: str, policy: str, common: tuple[str, ...], what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(OUTSIDE))
    monkeypatch.setenv("MEZZOTINT_PLUGINS", "their_lies")
    monkeypatch.delitem(sys.modules, "their_lies", raising=False)
    name = f"their_lies.{policy.split()[0]}"
    with pytest.raises(SimulationError, match=what.replace("{policy}", name)) as caught:
        simulated(*common, *chosen(tmp_path, key, policy))
    assert name in str(caught.value)


@pytest.mark.parametrize(("key", "policy", "common"), [("executor", "Honest", VANILLA), ("scheduler", "Queue", VANILLA),
    ("controller", "Controller", MODM), ("batching", "Steps", STEPS), ("eviction", "Victims", NIRVANA)])  # fmt: skip
def test_honest_policy_is_not_refused(
    key: str, policy: str, common: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(OUTSIDE))
    monkeypatch.setenv("MEZZOTINT_PLUGINS", "their_lies")
    monkeypatch.delitem(sys.modules, "their_lies", raising=False)
    counts = simulated(*common, *chosen(tmp_path, key, policy)).summary["requests"]
    assert counts["completed"] == counts["arrived"] > 0


@pytest.mark.invariant(7)
def test_preempted_request_cannot_resume_away_from_its_state() -> None:
    with pytest.raises(
        SimulationError,
        match=r"PerWorkerQueues.* resumes the request in row 13, preempted by .*ShortestRemaining with 49 "
        r"steps left, on worker "
        r"2 .* its state is on worker 0",
    ):
        simulated(
            "scheduler=per-worker", "router=least-requests", "discipline=shortest-remaining", "latency_predictor=known",
            "executor=continuous-batching", "executor.max_batch=1", "cluster.count=3", "models=sd35l-sdxl",
            "controller=timetable",
            "controller.at={400:{large:1,small:2}}", "trace=mix", "trace.requests=200",
            "trace.shapes=[[1024,1024,50,1],[1024,1024,10,3]]", "shapes=trace", "arrivals.rate_rpm=6", "seed=3",
        )  # fmt: skip


def test_max_batch_beyond_the_load_changes_nothing() -> None:
    common = ("executor=continuous-batching", "cluster=h100", "trace.requests=100")
    large, huge = (simulated(*common, f"executor.max_batch={limit}").requests for limit in (10**3, 10**18))
    assert large.equals(huge)


@pytest.mark.parametrize(
    ("overrides", "what"),
    [
        (("system=katz", "cluster=h800", "cluster.count=1"), "cluster.count: found 1 GPUs .* each takes 2"),
        (("models.large.width=7", "extrapolate=warn"), "sides of 8 to 65,536 pixels in multiples of 8"),
        (("system=nirvana", "cache=modm"), "selector.stored: found latents.* the cache stores images"),
        (("system=modm-fixed", "cache=nirvana"), "a latent is bound to the model that made it"),
        (
            (
                "failures=outages", "failures.lost=failed", "failures.outages={0: [[10, 9000]]}", "trace.requests=1",
                "cluster.count=1",
            ),
            "none of the 1 requests to measure was completed: 1 x GPU 0 failed",
        ),
    ],
)  # fmt: skip
def test_inconsistent_choices_are_refused(overrides: tuple[str, ...], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        simulated("trace.requests=20", *overrides)


def test_every_gpu_kind_states_its_memory() -> None:
    """Except for the local device, a service that did not state its machine, and one whose source does not state it."""
    bare = [name for name, settings in gpus().items() if settings["cluster"]["gpu"].get("memory_bytes") is None]
    assert bare == ["ascend-910b2", "local", "sd-beta"]
