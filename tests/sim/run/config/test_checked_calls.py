"""Checked calls: the return types of protocols are laws for classes from outside the package."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, nan
from typing import Annotated, Any, Literal, get_type_hints

import numpy as np
import pytest
from annotated_types import Ge, Le

from mezzotint.backends.base import Backend, Cost
from mezzotint.settings.ranges import Count, Seconds, Share
from mezzotint.sim.core.culprit import has_outsiders
from mezzotint.sim.core.errors import SimulationError
from mezzotint.sim.engine import Engine
from mezzotint.sim.protocols import Delay, FrontEnd, GroupPolicy, Launch, Scheduler, StageCost, Steps
from mezzotint.sim.run.config.checked_calls import Broken, check_calls, law_of
from mezzotint.sim.run.config.settings import check
from mezzotint.sim.run.simulate import assemble
from mezzotint.sim.scheduling.fcfs import Fcfs
from tests.sim.lab import configured

HINTS: list[tuple[Any, list[Any], list[Any]]] = [
    (Seconds, [0.0, 5, 1.5, np.float64(2), np.int32(3)], [-1.0, nan, inf, None, "1", True, 1e10, [1.0]]),
    (Share, [0.0, 1, 0.5], [-0.1, 1.1, nan]),
    (Count, [1, np.int64(7)], [0, -1, 1.5, True, "1", None]),
    (bool, [True, False, np.bool_(True)], [0, 1, 0.3, None, "no"]),
    (float, [nan, inf, -1.0, 3, np.float32(1)], [None, "1", True]),
    (str, ["a"], [None, 5, b"a"]),
    (Literal["a", "b"], ["a"], ["c", None]),
    (Count | None, [None, 4], [0, "x"]),
    (tuple[Cost, Cost], [(Cost(1.0), Cost(0.0, 2.0))], [(Cost(1.0),), Cost(1.0), (Cost(1.0), None), [Cost(1.0)] * 2]),
    (tuple[int, ...], [(), (1, 2)], [[1], (1.5,), "12", None]),
    (list[int], [[], [3]], [(1,), [None], None, "1"]),
    (Sequence[float], [[1.0], (2.0,)], ["ab", None, [None]]),
    (Mapping[str, Share], [{"a": 0.5}], [{"a": 2.0}, {1: 0.5}, None]),
    (Cost, [Cost(0.0), Cost(1.0, 0.0)], [None, 1.0, Cost(-1.0), Cost(nan), Cost(1.0, -2.0), Cost("1")]),  # type: ignore[arg-type]
    (
        StageCost,
        [StageCost(0.0, 1.0, 0.0, nan), StageCost(0.0, 1.0, 0.0, 1.0, (0.0, 1.0), {(64, 64): (0.0, 1.0)})],
        [
            StageCost(0.0, inf, 0.0, 1.0),
            StageCost(0.0, 1.0, 0.0, 1.0, ("a",)),  # type: ignore[arg-type]
            (0.0, 1.0, 0.0, 1.0),
            Cost(1.0),
        ],
    ),
    (Annotated[int, Ge(2), Le(3)], [2, 3], [1, 4]),
]


@pytest.mark.parametrize(("hint", "true", "false"), HINTS, ids=[str(hint)[:40] for hint, _, _ in HINTS])
def test_law_of_a_type_takes_its_values_and_no_other(hint: Any, true: list[Any], false: list[Any]) -> None:
    law = law_of(hint)
    assert law is not None
    for value in true:
        law(value)
    for value in false:
        with pytest.raises(Broken):
            law(value)


def test_numpy_scalars_become_plain_numbers() -> None:
    law = law_of(Seconds)
    assert law is not None
    assert type(law(np.float64(2.5))) is float


@dataclass(slots=True)
class Slow:
    """A front end that plans in ``took_s``, in slots as our own classes are."""

    took_s: Any

    def bind(self, run: Any) -> None: ...

    def admit(self, request: Any, now_s: float) -> Any:
        return self.took_s


@pytest.mark.parametrize("took_s", [-1.0, None, nan])
def test_slotted_class_is_checked_under_its_own_name(took_s: Any) -> None:
    part = check_calls(Slow(took_s), FrontEnd)
    assert isinstance(part, Slow)
    assert type(part).__qualname__ == "Slow"
    with pytest.raises(SimulationError, match=rf"Slow returned {took_s} from admit; expected float at least 0"):
        part.admit(None, 0.0)


def test_frozen_class_is_checked() -> None:
    @dataclass(frozen=True)
    class Frozen:
        def bind(self, run: Any) -> None: ...

        def admit(self, request: Any, now_s: float) -> Any:
            return -1

    with pytest.raises(SimulationError, match="Frozen returned -1"):
        check_calls(Frozen(), FrontEnd).admit(None, 0.0)


def test_iterable_is_checked_item_by_item_as_it_is_taken() -> None:
    """A policy may look at the run between two launches, so its generator must not be run ahead."""
    taken: list[int] = []

    class Policy:
        def decide(self, now_s: float) -> Iterable[Any]:
            for number in range(3):
                taken.append(number)
                yield number

    launches = check_calls(Policy(), GroupPolicy).decide(0.0)
    assert taken == []
    with pytest.raises(SimulationError, match="Policy returned 0 from decide; expected a Launch"):
        next(iter(launches))
    assert taken == [0]


def test_part_checked_as_two_protocols_is_wrapped_once() -> None:
    part = check_calls(check_calls(Slow(1.0), FrontEnd), FrontEnd)
    assert type(part).__mro__.index(Slow) == 1


def test_own_classes_are_not_wrapped() -> None:
    part = Fcfs()
    assert type(check_calls(part, Scheduler)) is Fcfs


@pytest.mark.parametrize("kind", [FrontEnd, Scheduler, Steps, Backend, Delay])
def test_every_method_of_a_protocol_that_returns_something_has_a_law(kind: Any) -> None:
    """But arrays, whose values are checked where they are used."""
    for name, method in vars(kind).items():
        hint = get_type_hints(method, include_extras=True).get("return") if callable(method) else None
        if hint not in (None, type(None)) and "ndarray" not in str(hint) and not name.startswith("_"):
            assert law_of(hint) is not None, name


def test_launch_is_validated_whole() -> None:
    law = law_of(Launch)
    assert law is not None
    for wrong in ({"steps": 0}, {"every": 0}, {"gpus": [0]}, {"ahead": None}, {"batch": [1]}):
        with pytest.raises(Broken):
            law(Launch(None, (0,), 1)._replace(**wrong))  # type: ignore[arg-type]


@pytest.mark.parametrize("system", ["vanilla", "nirvana", "modm-throughput", "orca", "katz", "tetriserve", "diffserve"])
def test_systems_of_our_own_guard_no_request(system: str) -> None:
    """Guarding doubles the cost of a request, which only classes from outside the package must pay."""
    more = {"katz": ["cluster=h800", "cluster.count=8"], "tetriserve": ["models=flux-dev-elastic", "cluster=h100"]}
    cluster = more.get(system, ["cluster=a100"] if system == "diffserve" else [])
    run: Engine = assemble(check(configured(f"system={system}", "trace.requests=20", *cluster))).engine
    parts = dict(enumerate((run.frontend, run.scheduler, run.executor, run.backend, *run.controllers)))
    assert not has_outsiders({str(number): part for number, part in parts.items()})
