"""A part that returns what cannot be true, or changes what it may only read, ends its run and is named."""

import sys
from collections.abc import Sequence
from functools import reduce
from importlib import import_module
from operator import getitem
from pathlib import Path

import pytest

from mezzotint.sim.core.errors import ConfigError, SimulationError
from mezzotint.sim.run.simulate import simulate
from mezzotint.traces.error import TraceError
from tests.sim.lab import configured

OUTSIDE = Path(__file__).parents[1] / "outsider"

VANILLA = ("system=vanilla", "cluster.count=4", "trace.requests=60")
FLUX = ("models=flux-dev-elastic", "cluster=h100", "cluster.count=8", "trace=tetriserve-uniform", "trace.requests=60")
LOAD = ("shapes=trace", "slo=[5]", "arrivals=poisson", "arrivals.rate_rpm=40")
STAGES = ("system=rssp", *FLUX, *LOAD)
TETRISERVE = ("system=tetriserve", *FLUX, *LOAD)
MOVES = ("system=edf-best-fit", "executor.migration_s=0.1", *FLUX, *LOAD, "trace.requests=100")
PATCHES = ("system=patchedserve", "cluster=h100", "cluster.count=2", "trace=hybrid", "trace.requests=60", *LOAD)
CASCADE = ("system=diffserve", "cluster=a100", "trace.requests=200", "arrivals.rate_rpm=200")
NIRVANA = ("system=nirvana", "trace.requests=200")
RENTED = ("system=vanilla", "cluster.count=4", "trace.requests=100", "controller=autoscale-utilisation")

FALSE = [
    # what policies may only read
    ("group_policy", "SetsLeft", STAGES, r"{part} raised FrozenInstanceError: .*'left' \(in arrived"),
    ("group_policy", "SetsStages", STAGES, r"{part} raised FrozenInstanceError: .*'stages' \(in arrived"),
    ("group_policy", "SetsGroup", STAGES, r"{part} raised FrozenInstanceError: .*'group' \(in at_boundary"),
    ("group_policy", "SetsView", STAGES, r"{part} raised FrozenInstanceError: .*'moves_are_free' \(in bind"),
    ("group_policy", "SetsClaims", STAGES, "{part} changes StageView.claimed"),
    ("group_policy", "PopsClaims", STAGES, "{part} changes StageView.claimed"),
    ("group_policy", "ClearsWaiting", STAGES, r"{part} raised AttributeError: .*'clear' \(in decide"),
    ("group_policy", "EditsRequest", STAGES, r"{part} changed steps of the request in row 0 from \d+ to 1"),
    # launches
    ("group_policy", "HalfSteps", STAGES, r"{part} returned Launch\(.*\) from decide; expected int .* as its steps"),
    ("group_policy", "TrueSteps", STAGES, r"{part} returned Launch\(.*\) from decide; expected int .* as its steps"),
    ("group_policy", "ManySteps", STAGES, r"\({part}\) launches 51 steps of the request in row 0"),
    ("group_policy", "ZeroEvery", STAGES, r"{part} returned Launch\(.*\) from decide; expected int .* its every"),
    ("group_policy", "NegativeEvery", STAGES, r"{part} returned Launch\(.*\) from decide; expected int .* its every"),
    ("group_policy", "YieldsText", STAGES, "{part} returned .* from decide; expected True or False as its yields"),
    ("group_policy", "AbsentGpu", STAGES, r"\({part}\) launches .* on the GPUs \(77,\)"),
    ("group_policy", "ListOfGpus", STAGES, "{part} returned .* from decide; expected a tuple as its gpus"),
    ("group_policy", "GpuTwice", STAGES, r"\({part}\) launches .* on the GPUs \(0, 0\)"),
    ("group_policy", "BatchOfNone", STAGES, "{part} returned .* from decide; expected a Progress as its batch"),
    ("group_policy", "LaunchesNumber", STAGES, "{part} returned 5 from decide; expected a Launch"),
    ("group_policy", "DecidesNone", STAGES, "{part} returned None from decide; expected an iterable"),
    ("group_policy", "DecidesOne", STAGES, "{part} returned 1 from decide; expected an iterable"),
    ("group_policy", "Again", STAGES, r"\({part}\) launches .* which does not wait at a boundary"),
    ("group_policy", "TicksInThePast", STAGES, "{part} asked for a call at -"),
    ("group_policy", "TicksAtNoTime", STAGES, "{part} asked for a call at nan s"),
    ("group_policy", "TicksForEver", STAGES, "{part} asks for calls at .* s without end"),
    ("group_policy", "DiscardsRunning", STAGES, r"\({part}\) discards .* which does not wait at a boundary"),
    # estimates
    ("estimates", "BelievesNan", TETRISERVE, "{part} returned .* from cost for the request in row 0; .* as its step_s"),
    ("estimates", "BelievesInfinity", TETRISERVE, "{part} returned .* from cost for the request in row 0"),
    ("estimates", "BelievesNegative", STAGES, "{part} returned .* from cost for the request in row 0"),
    ("estimates", "BelievesNothing", STAGES, r"with .*{part}\) believed that steps of .* in row \d+ take 0.0 s"),
    ("estimates", "BelievesText", STAGES, "{part} returned .* from cost for the request in row 0"),
    ("estimates", "BelievesCost", STAGES, "{part} returned .* from cost for the request in row 0; .* a StageCost"),
    ("latency_predictor", "NegativeLatency", PATCHES, "{part} returned -1.0 from step_s"),
    ("latency_predictor", "NanLatency", PATCHES, "{part} returned nan from step_s"),
    # executors of stages
    ("executor", "NegativeMoves", MOVES, r"{part} returned -1.0 from move_s for the request in row \d+"),
    ("executor", "NanMoves", MOVES, r"{part} returned nan from move_s for the request in row \d+"),
    ("executor", "FreeStages", STAGES, r"\({part}\) ran 50 steps of the request in row 0 in 0.0 s"),
    ("executor", "NegativeAnswer", STAGES, "{part} returned -1.0 from answer_s for the request in row 0"),
    ("executor", "FewStages", STAGES, r"\({part}\) gives the request in row 0 stages with \[1\] denoising steps"),
    ("executor", "NoDegree", TETRISERVE, "{part} returned 0 from max_degree for the request in row 0"),
    # front ends
    ("frontend", "NeverPlans", VANILLA, r"\({part}\) planned for row 0 neither a model nor an artifact"),
    ("frontend", "PlansNothingLater", VANILLA, r"\({part}\) planned for row 20 neither a model nor an artifact"),
    ("frontend", "PlansNoModel", VANILLA, r"\({part}\) planned for row 20 neither a model nor an artifact"),
    ("frontend", "PlansUnknownModel", VANILLA, r"\({part}\) planned for row 20 the model 'dall-e'"),
    ("frontend", "FromLater", VANILLA, r"\({part}\) started the request in row 2\d, .* row \d+, which was at"),
    ("frontend", "FromItself", VANILLA, r"\({part}\) started the request in row 20, .* of row 20, which was at"),
    ("frontend", "FromUnfinished", VANILLA, r"\({part}\) started the request in row 2\d, .* row \d+, which was at"),
    ("frontend", "FromNowhere", VANILLA, r"\({part}\) started the request in row 20 .* row 1000000; the trace has"),
    ("frontend", "SimilarSeven", VANILLA, r"\({part}\) wrote similarity = 7.0 of the request in row 20"),
    ("frontend", "AgeNegative", VANILLA, r"\({part}\) wrote source_age_s = -100.0 of the request in row 20"),
    ("frontend", "PlansFewStages", STAGES, r"\({part}\) gives the request in row 20 stages with \[1\] denoising steps"),
    ("frontend", "AdmitsNone", VANILLA, "{part} returned None from admit for the request in row 0"),
    ("frontend", "AdmitsNan", VANILLA, "{part} returned nan from admit for the request in row 0"),
    ("frontend", "AdmitsForEver", VANILLA, "{part} returned inf from admit for the request in row 0"),
    ("frontend", "AdmitsWord", VANILLA, "{part} returned 'soon' from admit for the request in row 0"),
    ("frontend", "KeepsOne", VANILLA, r"{part} returned 1 from completed for the request in row \d"),
    ("frontend", "EscalatesShare", CASCADE, "{part} returned 0.3 from escalates for the request in row 0"),
    ("frontend", "EscalatesNone", CASCADE, "{part} returned None from escalates for the request in row 0"),
    ("frontend", "JudgesBefore", CASCADE, "{part} returned -2.0 from judge_s for the request in row 0"),
    ("frontend", "SharesNan", CASCADE, "{part} returned nan from escalated_share"),
    # caches
    ("selector", "SkipsHalf", NIRVANA, "{part} returned 2.5 from skip; expected int"),
    ("selector", "SkipsNoSteps", NIRVANA, "{part} has of_steps = 'all'; expected int"),
    ("match_predictor", "ExpectsSome", NIRVANA, "{part} returned 0.4 from expects; expected True or False"),
    ("feature_cache", "QuickCache", PATCHES, r"with .*{part}.*\) ran 50 steps of the request in row \d+ in"),
    ("feature_cache", "NanCache", PATCHES, "their_false_parts.Nan returned nan from seconds"),
    # controllers
    ("controller", "YieldsNumber", VANILLA, '{part}: Invalid yield value "5"'),
    ("controller", "NoGenerator", VANILLA, "{part} raised ValueError: 5 is not a generator"),
    ("controller", "OrdersRoles", STAGES, "{part} orders GPUs to another role, .* scheduler=stages"),
    ("controller", "GivesAllBack", VANILLA, "{part} gave back the last worker of role 'large' at 60"),
    ("controller", "SetsArrived", VANILLA, "{part} sets arrived of the run to 2"),
    ("controller", "SetsHits", VANILLA, "{part} sets hits of the run to 1"),
    ("controller", "SetsDeadlines", VANILLA, "{part} raised TypeError: cannot modify read-only memory"),
    ("controller", "SetsModels", VANILLA, "{part} raised TypeError: .*mappingproxy"),
    ("controller", "Completes", VANILLA, r"\({part}\) ended the request in row 0 as completed"),
    ("controller", "Requeues", VANILLA, "{part} requeues the request in row 0, which was not lost"),
    ("controller", "StopsClock", VANILLA, "{part} stops the clock"),
    ("controller", "RecordsBusy", VANILLA, r"\({part}\) records busy time of worker 0 .* only an executor may"),
    ("controller", "Releases", VANILLA, r"\({part}\) releases requests of worker 0 .* only an executor may"),
    ("controller", "OrdersNobody", VANILLA, "{part} orders worker 0 .* to 'nobody'"),
    ("controller", "GaugesText", VANILLA, "{part} reads 'good' for its gauge 'mood'"),
    ("controller", "AssumesObject", VANILLA, "{part} assumes <object .* for 'mood'"),
    ("controller.rule", "WantsNan", RENTED, "{part} returned nan from wanted"),
    ("controller.rule", "WantsNegative", RENTED, "{part} returned -3.0 from wanted"),
    # backends
    ("backend", "NoneCost", VANILLA, "{part} returned None from steps; expected a Cost"),
    ("backend", "ZeroCost", VANILLA, "{part}"),
    ("backend", "NegativeBegin", VANILLA, r"{part} returned Cost\(seconds=-0.5, .*\) from begin"),
    ("backend", "NanLoad", (*VANILLA, "allocation=fixed-split"), r"{part} returned Cost\(seconds=nan.* from load"),
    ("backend", "HalfBytes", VANILLA, "{part} returned 0.5 from bytes; expected int"),
    # executors of whole requests
    ("executor", "Twice", VANILLA, r"{part} sets busy_until_s of worker \d+ .* to 0.0"),
    ("executor", "Nanoseconds", VANILLA, r"\({part}\) ran 50 steps of the request in row 0 in"),
]  # fmt: skip

BEFORE_THE_CLOCK = [
    ("arrivals", "MoreTimes", "{part} .* 70 times for the 60 requests"),
    ("arrivals", "ListOfTimes", "{part}: arrival times: expected .* found list"),
    ("arrivals", "WordsAsTimes", "{part}: arrival times: expected .* found"),
    ("arrivals", "NoSchedule", "{part} returned None from schedule; expected a Schedule"),
    ("trace", "NoTrace", "{part} returned None from load; expected a Trace"),
    ("trace", "DictionaryTrace", "{part} returned .* from load; expected a Trace"),
    ("trace", "RaisingTrace", "{part} raised KeyError: 'boom'"),
    ("encoder", "LongVectors", r"encoder long \({part}\): gave a vector of length 400"),
]


@pytest.fixture(autouse=True)
def _their_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(OUTSIDE))
    monkeypatch.setenv("MEZZOTINT_PLUGINS", "their_false_parts")
    monkeypatch.delitem(sys.modules, "their_false_parts", raising=False)


def simulated_with(name: str, key: str, common: Sequence[str]) -> None:
    """Run ``common`` with the class ``name`` under ``key``; one that extends a class of ours keeps its settings."""
    config = configured(*common)
    *groups, last = key.split(".")
    node = reduce(getitem, groups, config)
    made = getattr(import_module("their_false_parts"), name)
    extends_ours = any(base.__module__.startswith("mezzotint.") for base in made.__mro__[1:])
    node[last] = {**(node[last] if extends_ours else {}), "_target_": f"their_false_parts.{name}"}
    simulate(config)


@pytest.mark.parametrize(("key", "name", "common", "what"), FALSE, ids=[name for _, name, _, _ in FALSE])
def test_false_part_ends_the_run_by_its_name(key: str, name: str, common: tuple[str, ...], what: str) -> None:
    with pytest.raises(SimulationError, match=what.replace("{part}", f"their_false_parts.{name}")):
        simulated_with(name, key, common)


@pytest.mark.parametrize(("key", "name", "what"), BEFORE_THE_CLOCK, ids=[name for _, name, _ in BEFORE_THE_CLOCK])
def test_false_traffic_is_refused_before_the_clock_starts(key: str, name: str, what: str) -> None:
    with pytest.raises(
        (ConfigError, SimulationError, TraceError), match=what.replace("{part}", f"their_false_parts.{name}")
    ):
        simulated_with(name, key, ("system=nirvana-no-predictor", "trace.requests=60"))


@pytest.mark.parametrize(("key", "name", "common"), [
    ("group_policy", "First", STAGES), ("estimates", "Believes", STAGES), ("arrivals", "Arrives", VANILLA),
    ("frontend", "Plans", VANILLA),
])  # fmt: skip
def test_true_part_of_an_outsider_is_not_refused(key: str, name: str, common: tuple[str, ...]) -> None:
    simulated_with(name, key, common)


@pytest.mark.parametrize("controller", ["modm-throughput", "timetable", "one-group", "autoscale-utilisation"])
def test_controllers_of_roles_and_rentals_are_refused_beside_stages(controller: str) -> None:
    more = {"timetable": ["controller.at={60:{large:4}}"]}.get(controller, [])
    with pytest.raises(ConfigError, match=r"controller: found .* scheduler=stages gives every stage any GPU"):
        simulate(configured(*STAGES, f"controller={controller}", *more))
