"""A part that does or returns what cannot be true, or changes what it may only read, ends its run and is named."""

import random
import sys
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import cache, reduce
from math import inf, nan
from operator import getitem
from typing import Any, NamedTuple

import numpy as np
import pytest

from mezzotint.backends.base import Asset, Cost
from mezzotint.backends.profiled import Profiled
from mezzotint.sim.addons.inline import InlineControlNets
from mezzotint.sim.client.client import Impatient
from mezzotint.sim.control.timetable import Timetable
from mezzotint.sim.core.clock import COMPLETION
from mezzotint.sim.core.errors import ConfigError, SimulationError
from mezzotint.sim.core.plan import HIT, UNPLANNED, WHOLE, Plan, Stage
from mezzotint.sim.core.request import DISCARDED, FAILED
from mezzotint.sim.frontend.cascade import Cascade
from mezzotint.sim.metrics.clients import SEEN
from mezzotint.sim.metrics.quality import Published, QualityEstimate
from mezzotint.sim.protocols import Launch
from mezzotint.sim.run.config.choices import gpus
from mezzotint.sim.run.simulate import Outcome, simulate
from mezzotint.traces.encoders.embeddings import identity
from mezzotint.traces.encoders.ngram import HashedNgrams
from mezzotint.traces.error import TraceError
from mezzotint.traces.similarity.exact import Exact
from mezzotint.traces.similarity.similarity_map import Identity
from tests.sim.lab import configured, simulated
from tests.sim.outsider import their_parts as their

VANILLA = ("system=vanilla", "cluster.count=4", "trace.requests=200")
BUSY = (*VANILLA, "arrivals.rate_rpm=500")
RENTED = (*VANILLA, "controller=autoscale-utilisation")
FAILING = ("failures=random", "failures.mean_up_s=300", "failures.mean_down_s=60")
BATCHES = ("system=vanilla", "cluster=h100", "executor=continuous-batching", "trace.requests=100")
ADDONS = ("system=diffusers", "cluster=h800", "trace=add-ons", "trace.requests=20")
LORA = Asset("lora", "a", "sdxl")
MODM = ("system=modm-fixed", "trace.requests=200")
NIRVANA = ("system=nirvana-no-predictor", "cache.capacity=50", "trace.requests=300")
PREDICTED = ("system=nirvana", "trace.requests=200")
CASCADE = ("system=diffserve", "cluster=a100", "trace.requests=200", "arrivals.rate_rpm=200")
FLUX = ("models=flux-dev-elastic", "cluster=h100", "cluster.count=8", "trace=tetriserve-uniform", "trace.requests=60")
LOAD = ("shapes=trace", "slo=[5]", "arrivals=poisson", "arrivals.rate_rpm=40")
STAGES = ("system=rssp", *FLUX, *LOAD)
TETRISERVE = ("system=tetriserve", *FLUX, *LOAD)
LIMITED = ("client=limited", *VANILLA)
PATCHES = ("system=patchedserve", "cluster=h100", "cluster.count=2", "trace=hybrid", "trace.requests=60", *LOAD)


PREEMPTED = (
    "scheduler=per-worker", "router=least-requests", "discipline=shortest-remaining", "latency_predictor=known",
    "executor=continuous-batching", "executor.max_batch=1", "cluster.count=3", "models=sd35l-sdxl", "trace=mix",
    "trace.requests=200", "trace.shapes=[[1024,1024,50,1],[1024,1024,10,3]]", "shapes=trace", "arrivals.rate_rpm=6",
    "seed=3",
)  # fmt: skip


class Wrong(NamedTuple):
    """A class ``name``, ``base`` with ``changes``: under ``key`` of ``common`` it ends the run with ``words``."""

    key: str
    base: type
    common: Sequence[str]
    name: str
    changes: Mapping[str, Any]
    words: str


def of(key: str, base: type, common: Sequence[str], *rows: tuple[str, Mapping[str, Any], str]) -> list[Wrong]:
    return [Wrong(key, base, common, *row) for row in rows]


def returns(value: object) -> Callable[..., object]:
    return lambda *_: value


def sets(method: Callable[..., Any], **values: Any) -> Callable[..., Any]:
    """Return ``method`` of a part that first sets attributes of its request, to a value or to what one makes of it."""

    def spoiled(self: object, request: object, *rest: object) -> object:
        for name, value in values.items():
            setattr(request, name, value(request) if callable(value) else value)
        return method(self, request, *rest)

    return spoiled


def releases_but_runs(self, worker, request):
    """Release each request on arrival, and record 90 of them as a batch."""
    self.cluster.release(worker)
    self.taken += 1
    if self.taken == 90:
        self.run.clock.at(self.run.clock.now + 1.0, COMPLETION, self.done, None)


def forgets_its_work(self, what):
    what[0].busy_until_s = 0.0


def raises(self, *_):
    raise KeyError("boom")


def skips_from_nothing(self, request, now_s):
    self.run.assign(request, request.plan._replace(k=49))


def leaves_one_step(self, worker, request, now_s):
    request.steps_left = 1
    return Cost(0.0, 0.0)


def stops(self, *_):
    raise StopIteration


def lacks_a_file(self, *_):
    open("/absent/table.csv").close()


def lies_of_itself(self, *_):
    raise SimulationError("the scheduler of somebody else dropped 3 requests")


def asks_cluster(name: str) -> Callable[..., object]:
    return lambda self, *_: getattr(self.cluster, name)(self.cluster.workers[0])


def calls_function(self, *_):
    self.run.clock.at(self.run.clock.now + 1.0, COMPLETION, fails)


def fails(_):
    raise KeyError("boom")


def waits_nanoseconds(self):
    while True:
        yield self.clock.timeout(1e-9)


def exits(self, *_):
    sys.exit(0)


def spins(self):
    while True:
        yield self.clock.timeout(0)


def calls_nothing(self, worker, request):
    self.run.clock.at(self.run.clock.now + self.took_s, COMPLETION, self.done((worker, request)))


def starts_on_arrival(self, worker, request):
    their.Executor.accept(self, worker, request)
    request.start_s = request.arrival_s


def keeps_stale_max(self, run):
    their.Executor.bind(self, run)
    self.max_batch = 4


def spins_later(self):
    yield self.clock.timeout(600)
    self.again(None)


def yields_five(self):
    yield self.clock.timeout(60)
    yield 5


def discards_what_runs(self, now_s):
    for launch in their.GroupPolicy.decide(self, now_s):
        yield launch
        self.view.discard(launch.progress, "late")


def skips_less_than_nothing(self, request, now_s):
    self._run.assign(request, self._plan)
    request.skipped = -3
    return 0.0


class OneStep(their.StepCosts):
    def seconds(self, count):
        return self.longest_s


class ReusesTwice(their.StepCosts):
    def reused(self, count):
        return [2.0 * count] * self.requests


class FindsRow:
    def add(self, entry, row):
        pass

    def remove(self, entry):
        pass

    def best(self, row):
        return row, 1.0


def moved(request):
    request.arrival_s -= 100.0
    return request


def refuse_and_send(sender, request):
    sender.refuse(request, "no")
    sender.send(request)


def send_and_give_up(sender, request):
    sender.send(request)
    sender.give_up(request, "slow")


def launches(**how: Any) -> dict[str, Any]:
    """Launch in another way: ``how`` has the arguments, or what makes them of the progress and the GPU."""

    def launch(self, progress, gpu):
        changes = {name: value(progress, gpu) if callable(value) else value for name, value in how.items()}
        return Launch(**{"progress": progress, "gpus": (gpu,), "steps": progress.left} | changes)

    return {"launch": launch}


def decides(before: Callable[[Any, float], object]) -> dict[str, Any]:
    """Do ``before`` ahead of each decision."""
    return {"decide": lambda self, now_s: (before(self, now_s), their.GroupPolicy.decide(self, now_s))[1]}


EXECUTORS = [
    *of("executor", their.Executor, VANILLA,
        ("Unrecorded", {"max_batch": 1000, "record": returns(None)},
         r"completed the request in row 0 on worker \d .* not busy all that time"),
        ("HalfRecorded", {"record": lambda self, worker, a, b: self.cluster.record_busy(worker, a, a + 5, "serve")},
         "not busy all that time"),
        ("Backward", {"record": lambda self, worker, a, b: self.cluster.record_busy(worker, b, a, "serve")},
         "which is earlier"),
        ("OtherRow", {"record": lambda self, *span: self.cluster.record_busy(*span, "serve", row=7777)},
         r"{part}\) recorded busy time for row 7777, which the run does not have"),
        ("NanSpan", {"record": lambda self, worker, a, b: self.cluster.record_busy(worker, a, nan, "serve")},
         "which are no times"),
        ("NegativeJoules", {"record": lambda self, *span: self.cluster.record_busy(*span, "serve", joules=-1e9)},
         "spends -1000000000.0 J"),
        ("AtOnce", {"took_s": 0.0}, "ran 50 steps of the request in row 0 in 0.0 s"),
        ("Nanoseconds", {"took_s": 1e-9}, "ran 50 steps of the request in row 0 in"),
        ("Unstarted", {"accept": lambda self, worker, request: (self.end(request), self.release(worker))},
         "row 0 started at 0.0 s; it could from 3"),
        ("NoStepTime", {"end": sets(their.Executor.end, denoise_s=0)}, "ran 50 steps of the request in row 0 in 0.0 s"),
        ("LongParts", {"end": sets(their.Executor.end, decode_s=100.0)}, "decoded for 110.0 s"),
        ("NegativeSeconds", {"end": sets(their.Executor.end, denoise_s=-3.0)},
         "wrote denoise_s = -3.0 of the request in row 0"),
        ("ManyJoules", {"end": sets(their.Executor.end, energy_j=1e12)}, "wrote energy_j of .* its GPUs drew"),
        ("StepsLeft", {"end": sets(their.Executor.end, steps_left=25)}, "with 25 of its 50 steps left"),
        ("EndsTwice", {"end": lambda self, request: (self.run.end(request), self.run.end(request))},
         "row 0 ended twice: {part} ended it at 13"),
        ("NeverReleases", {"release": returns(None)}, "holds 4 requests .* Cluster.release was not called"),
        ("NeverEnds", {"accept": returns(None)}, "holds 4 requests .* call Run.end and Cluster.release"),
        ("ReleasesNegative", {"release": lambda self, worker: self.cluster.release(worker, -1)},
         "released -1 requests"),
        ("InThePast", {"accept": lambda self, *what: self.run.clock.at(-5.0, COMPLETION, self.done, what)},
         "asked for a call at -5"),
        ("NoLimit", {"max_batch": "many"}, "takes 'many' requests at once"),
        ("SizesWhenBound", {"bind": keeps_stale_max}, r"{part}\) has max_batch = 4 once bound, and 1 before"),
        ("HalfLimit", {"max_batch": 1.0}, "takes 1.0 requests at once; expected a whole number"),
        ("CallsNothing", {"accept": calls_nothing, "done": returns(None)}, "{part} schedules the call None at"),
        ("CallsInNoOrder", {"accept": lambda self, *what: self.run.clock.at(10.0, self.done, what)},
         "{part} schedules the call .* in the order <bound method"),
        ("TakesNothing", {"done": lambda self: None},
         "{part}.<lambda> cannot be called as the engine does: .* takes 1 positional argument"),
        ("Forgets", {"done": forgets_its_work}, r"sets busy_until_s of worker \d+ .* to 0.0"),
    ),
    *of("executor", their.Executor, (*VANILLA, "allocation=fixed-split"),
        ("OneModel", {}, "planned for sd3.5-large, on worker ., which held sdxl"),
    ),
    *of("executor", their.Executor, BUSY,
        ("StartsOnArrival", {"accept": starts_on_arrival,
                             "record": lambda self, worker, _, until_s: self.cluster.record_busy(
                                 worker, max(worker.busy_until_s, until_s - 10), until_s, "serve"),
                             "end": sets(their.Executor.end, denoise_s=10.0)},
         r"{part}\) recorded that 2 requests were between start_s and their end on worker \d"),
        ("TwoAtOnce", {"max_batch": 2}, "records worker . .* as busy twice"),
        ("Overfull", {"max_batch": 4, "taken": 0, "accept": releases_but_runs,
                      "done": lambda self, _: self.cluster.record_busy(self.cluster.workers[0], 0, 1, "x", batch=90)},
         r"{part}\)? runs \d+ requests at once .* takes 4 at most"),
    ),
]  # fmt: skip

SCHEDULERS = [
    *of("scheduler", their.Scheduler, VANILLA,
        *((f"Edits {name}", {"offer": sets(their.Scheduler.offer, **{name: value})},
           f"changed {name} of the request in row 0 from {before}")
          for name, value, before in (("skipped", 49, "0 to 49"), ("steps", 1, "50 to 1"), ("arrival_s", 90.0, ""),
                                      ("deadline_s", 9e9, ""))),
        ("EditsPlan", {"offer": sets(their.Scheduler.offer, plan=lambda request: request.plan._replace(k=5))},
         "changed k of the request in row 0 from 0 to 5"),
        ("EditsLater", {"offer": sets(their.Scheduler.offer, arrival_s=lambda request: request.arrival_s
                                      + 0.5 * (request.row == 150))},
         "changed arrival_s of the request in row 150"),
        ("OtherModel", {"offer": sets(their.Scheduler.offer, plan=lambda request: request.plan.on("sdxl")
                                      if request.row > 150 else request.plan)},
         "changed model of the request in row 151"),
        ("Drops", {"offer": lambda self, request, now_s: their.Scheduler.offer(self, request, now_s)
                   if request.row % 10 else None},
         r"the scheduler \({part}\) dropped 20 requests"),
        ("GivesTwice", {"offer": lambda self, request, now_s: (self.waiting.append(request),
                                                               self.run.cluster.least_loaded())[1]},
         "handed the request in row 0 to worker . .* before, to worker 0"),
        ("GivesToBusy", {"offer": lambda self, request, now_s: self.run.cluster.workers[0]},
         "gave a request to worker 0 .* has 1 of at most 1 running"),
        ("NegativeLength", {"__len__": returns(-5)}, "reports how many requests wait, and"),
        ("WrongLength", {"__len__": lambda self: len(self.waiting) + 3},
         "says that 3 requests wait, and all have ended"),
        ("NoWorker", {"offer": returns("worker 0")}, "returned 'worker 0'"),
        ("NoRequest", {"next": lambda self, worker, now_s: self.waiting.popleft().row if self.waiting else None},
         r"returned \d+ from next"),
        ("Raises", {"next": raises}, r"raised KeyError: 'boom' \(in raises, test_wrong_policies.py line \d+\)"),
        ("RaisesWhenBound", {"bind": raises}, r"raised KeyError: 'boom' \(in raises"),
        ("Stops", {"next": stops}, r"{part} raised StopIteration:  \(in stops"),
        ("LacksFile", {"next": lacks_a_file}, r"{part} raised FileNotFoundError: .* \(in lacks_a_file"),
        ("Lies", {"next": lies_of_itself}, r"^{part}: the scheduler of somebody else"),
        ("NumberAsReason", {"offer": lambda self, request, now_s: self.run.end(request, DISCARDED, 5)},
         "{part} ended the request in row 0 for the reason 5; expected text"),
        *((f"Writes {name}", {"request_ended": lambda self, request, now_s, name=name: setattr(request, name, 1e-3)},
           rf"{{part}} changed {name} of the request in row \d+ from .* to 0.001; only an executor writes it")
          for name in ("start_s", "denoise_s", "energy_j", "remote_controlnets")),
        ("Exits", {"next": exits}, r"{part} raised SystemExit: 0 \(in exits"),
        *((f"EndsAs {outcome}", {"offer": lambda self, request, now_s, outcome=outcome: self.run.end(request, outcome)},
           f"{{part}} ended the request in row 0 as {outcome}; expected COMPLETED, DISCARDED or FAILED")
          for outcome in (0, 2.5, 99)),
        ("EndsAndGives", {"offer": lambda self, request, now_s: (self.run.end(request, DISCARDED),
                                                                 their.Scheduler.offer(self, request, now_s))[1]},
         r"Sequential ended it at .* before it was discarded by {part}"),
        ("SkipsFromNothing", {"offer": skips_from_nothing},
         "{part} planned that the request in row 0 skips steps, and no source of what they made"),
        ("PlansWhatRuns", {"request_ended": lambda self, request, now_s: self.run.assign(request, request.plan)},
         r"{part} planned the request in row \d anew, which runs on worker \d"),
    ),
    *of("scheduler", their.Scheduler, ADDONS,
        ("AdmitsForNothing", {"next": lambda self, worker, now_s: self.run.cluster.admit(worker, LORA, 1)},
         r"\({part}\) puts an asset on worker \d .*; only an executor may"),
        ("EvictsForNothing", {"next": lambda self, worker, now_s: self.run.cluster.evict(worker, LORA)},
         r"\({part}\) evicts an asset from worker \d .*; only an executor may"),
        ("CompilesForNothing", {"next": lambda self, worker, now_s: self.run.cluster.compile_s(worker, None)},
         r"\({part}\) compiles a shape on worker \d .*; only an executor may"),
        ("DropsAddons", {"offer": sets(their.Scheduler.offer, addons=None)},
         r"{part} changed addons of the request in row 0 from Addons\(.* to None"),
    ),
    *of("scheduler", their.Scheduler, BATCHES,
        ("EditsStepsLeft", {"offer": sets(their.Scheduler.offer, steps_left=1)},
         "handed over the request in row 0 with 1 steps left; its plan has 50"),
    ),
    *(wrong for common in (VANILLA, RENTED) for wrong in of("scheduler", their.Scheduler, common,
        (f"Hoards{len(common)}", {"offer": returns(None), "__len__": returns(7)}, "{part}.* dropped 193 requests"))),
    *of("router", their.Router, (*VANILLA, "scheduler=per-worker"),
        ("AnyWorker", {"choose": returns(object())}, "returned <object .* from choose for the request in row 0"),
    ),
    *of("discipline", their.Discipline, (*BUSY, "scheduler=per-worker", "router=least-requests", *FAILING),
        ("KeepsWhatLeft", {"add": lambda self, *what: (their.Discipline.add(self, *what), self.came.append(what)),
                           "leave": lambda self, worker: [what[1] for what in self.came if what[0] is worker]},
         r"{part} returned the request in row \d+ from leave, which does not wait at worker \d"),
    ),
    *of("allocation", their.Allocation, VANILLA,
        ("ManyRoles", {"roles": returns(["large"] * 8)}, "gave the roles .* to 4 GPUs"),
        ("ChangesModels", {"roles": lambda self, gpus, models, backend: models.popitem()},
         "{part} raised AttributeError: 'mappingproxy' object"),
    ),
]  # fmt: skip


CONTROLLERS = [
    *of("controller", their.Controller, MODM,
        ("Installs", {"act": lambda self, workers: [self.cluster.install(worker, "sdxl" if worker.model != "sdxl"
                      else "sd3.5-large") for worker in workers if worker.running]},
         "installs .* with 1 requests running"),
        ("OrdersInThePast", {"act": lambda self, workers: self.cluster.change_role(workers[0], "small", 0.0)},
         "orders worker 0 .* at 0.0 s, and the clock stands at 60"),
        ("OrdersAll", {"act": lambda self, workers: [self.cluster.change_role(worker, "small", 60.0)
                                                     for worker in workers]},
         "ordered the last worker of role 'large' elsewhere at 60"),
        ("FailsBusy", {"act": lambda self, workers: [self.cluster.fail(worker, 60.0) for worker in workers
                                                     if worker.running]},
         "fails worker .* with 1 requests running"),
        ("SetsRole", {"act": lambda self, workers: setattr(workers[0], "role", "small")},
         r"set the role of worker 0 \(large\) to 'small'"),
        ("Spins", {"live": spins}, "asks for calls at 0 s without end"),
        ("SpinsLater", {"live": spins_later, "again": lambda self, _: self.clock.at(600, COMPLETION, self.again)},
         "asks for calls at 600 s without end"),
        ("WaitsNanoseconds", {"live": waits_nanoseconds}, "{part} asks for calls at .* s without end"),
        ("WaitsNegative", {"act": lambda self, workers: self.clock.timeout(-1)}, "raised ValueError: Negative delay"),
    ),
    *of("controller", their.Controller, VANILLA,
        ("YieldsNumber", {"live": yields_five}, '{part}: Invalid yield value "5"'),
        ("NoGenerator", {"bind": lambda self, run: run.process(5)}, "raised ValueError: 5 is not a generator"),
        ("GivesAllBack", {"bind": lambda self, run: (their.Controller.bind(self, run), run.cluster.rent(4)),
                          "act": lambda self, _: [self.cluster.stop_instance(instance, 60.0) for instance in range(4)]},
         "gave back the last worker of role 'large' at 60"),
        ("SetsArrived", {"arrived": lambda self, request, now_s: setattr(self.run, "arrived", self.run.arrived + 1)},
         "sets arrived of the run to 2"),
        ("SetsHits", {"arrived": lambda self, request, now_s: setattr(self.run, "hits", 1)}, "sets hits of the run"),
        ("SetsDeadlines", {"arrived": lambda self, request, _: self.run.workload.limit_s.__setitem__(request.row, 1e9)},
         "raised TypeError: cannot modify read-only memory"),
        ("SetsStandalone", {"arrived": lambda self, *_: self.run.workload.standalone.total_s.__setitem__(0, 1e9)},
         "{part} raised ValueError: assignment destination is read-only"),
        ("SetsArrivals", {"arrived": lambda self, *_: self.run.workload.schedule.times.__setitem__(0, 1e9)},
         "{part} raised ValueError: assignment destination is read-only"),
        ("SetsRows", {"arrived": lambda self, *_: setattr(self.run.workload, "rows", 1)},
         "{part} sets rows of the workload to 1"),
        *((f"Does {name}", {"arrived": asks_cluster(name)},
           rf"\({{part}}\) {does} worker 0 .*; only an executor may")
          for name, does in (("vacate", "counts as idle"), ("close", "closes"), ("reopen", "reopens"))),
        ("GaugeRaises", {"bind": lambda self, run: run.gauge("mood", lambda _: raises(self))},
         "{part} raised KeyError: 'boom'"),
        ("PeriodRaises", {"period_s": property(raises)}, "{part} raised KeyError: 'boom'"),
        *((f"Clears {name}", {"arrived": lambda self, request, now_s, name=name: getattr(self.cluster, name).clear()},
           f"{{part}} raised AttributeError: .*{kind}")
          for name, kind in (("kinds", "mappingproxy"), ("models", "mappingproxy"), ("servers", "tuple"))),
        ("GaugeTakesNothing", {"bind": lambda self, run: run.gauge("mood", self.act), "act": lambda self: 1.0},
         "{part}.<lambda> cannot be called as the engine does"),
        ("GaugeGreat", {"bind": lambda self, run: run.gauge("mood", returns(10**30))},
         "reads 10+ for its gauge 'mood'"),
        ("NegativePeriod", {"period_s": -5.0}, "has period_s = -5.0; expected seconds over 0"),
        ("SetsModels", {"arrived": lambda self, request, now_s: self.run.models.update(large=None)},
         "raised AttributeError: .*mappingproxy"),
        ("Completes", {"arrived": lambda self, request, now_s: self.run.end(request)},
         "ended the request in row 0 as completed"),
        ("Requeues", {"arrived": lambda self, request, now_s: self.run.requeue(request)},
         "requeues the request in row 0, which was not lost"),
        ("StopsClock", {"arrived": lambda self, request, now_s: self.run.clock.stop()}, "stops the clock"),
        ("RecordsBusy", {"arrived": lambda self, request, now_s: self.cluster.record_busy(
            self.cluster.workers[0], now_s, now_s, "serve")},
         "records busy time of worker 0 .* only an executor may"),
        ("Releases", {"arrived": lambda self, request, now_s: self.cluster.release(self.cluster.workers[0])},
         "releases requests of worker 0 .* only an executor may"),
        ("OrdersNobody", {"arrived": lambda self, request, now_s: self.cluster.change_role(
            self.cluster.workers[0], "nobody", now_s)},
         "orders worker 0 .* to 'nobody'"),
        ("NumbersItsGauge", {"bind": lambda self, run: run.gauge(5, returns(1.0))}, "{part} declares the gauge 5"),
        ("NumbersItsColumn", {"bind": lambda self, run: run.add_column(5)}, "{part} declares the column 5 as .*text"),
        ("GaugesText", {"bind": lambda self, run: run.gauge("mood", returns("good"))},
         "reads 'good' for its gauge 'mood'"),
        ("AssumesObject", {"bind": lambda self, run: run.assume("mood", object(), "a guess")},
         "assumes <object .* for 'mood'"),
    ),
    *of("controller", their.Controller, ("system=fixed-groups", *FLUX, *LOAD),
        ("OrdersRoles", {"act": lambda self, workers: self.cluster.change_role(workers[0], "large", 60.0)},
         "orders GPUs to another role or back, .* counts on the GPUs that it began with"),
    ),
    *of("controller.rule", their.Rule, RENTED,
        ("WantsNan", {"wanted": returns(nan)}, "returned nan from wanted"),
        ("WantsNegative", {"wanted": returns(-3.0)}, "returned -3.0 from wanted"),
    ),
]  # fmt: skip

STEPS = [
    *of("batching", their.Steps, BATCHES,
        ("NegativeSteps", {"step_cost": Cost(-1.0, 0.0)}, r"returned Cost\(seconds=-1.0, joules=0.0\) from step"),
        ("ZeroSteps", {"step_cost": Cost(0.0, 0.0)}, "with {part}.* ran 50 steps of the request in row 0 in 0.0 s"),
        ("NanSteps", {"step_cost": Cost(nan, 0.0)}, r"returned Cost\(seconds=nan"),
        ("NegativeJouleSteps", {"step_cost": Cost(0.1, -1e6)},
         r"returned Cost\(seconds=0.1, joules=-1000000.0\) from step"),
        ("NoCost", {"step_cost": None}, "returned None from step; expected a Cost"),
        ("NegativeFinish", {"finish": returns((Cost(-0.5, 0.0), Cost(0.0, 0.0)))},
         r"returned \(Cost\(seconds=-0.5, .* from finish for the request in row"),
        ("PreparesAllButOne", {"prepare": leaves_one_step},
         r"with {part}\) left 1 steps of the request in row 0, whose plan has 50"),
        ("TooLarge", {"step": lambda self, worker, active, now_s: self.run.cluster.check_memory(worker, 10**13)},
         r"with {part}\) runs 1 requests .* takes 10000.0 GB of the 80.0 GB"),
    ),
    *of("feature_cache", their.FeatureCache, PATCHES,
        ("QuickSteps", {"step_s": 1e-9}, r"with .*{part}.*\) ran 50 steps of the request in row \d+ in"),
        ("OneStepForAll", {"step_costs": lambda self, active, count, step: OneStep(count, 0.1, len(active))},
         "OneStep has 0.1 s for the first step and 0.1 s for 50 steps, .* StepCosts"),
        ("FewerSteps", {"step_costs": lambda self, active, count, step: their.StepCosts(1, 0.1, len(active))},
         r"StepCosts has 1 steps by the end of \d+ steps"),
        ("ReusesForOne", {"step_costs": lambda self, active, count, step: their.StepCosts(count, 0.1, 1)},
         "StepCosts returned 1 numbers from reused; expected one for each of the 2 requests"),
        ("ReusesAll", {"step_costs": lambda self, active, count, step: ReusesTwice(count, 0.1, len(active))},
         r"with .*{part}.*\) reused 2.0 of the features of the request in row \d+"),
        ("NanFeatureSteps", {"step_s": nan}, "their_parts.StepCosts has longest_s = nan"),
    ),
    *of("backend", Profiled, VANILLA,
        ("NoneCost", {"steps": returns(None)}, "returned None from steps; expected a Cost"),
        ("ZeroCost", {"steps": lambda self, works, count=1: (Profiled.steps(self, works, count), Cost(0.0, 0.0))[1]},
         "{part}"),
        ("OneStepOfMany", {"steps": lambda self, works, count=1: Profiled.steps(self, works, count).over(count)},
         "{part} runs 50 steps of sd3.5-large in .* and one in"),
        ("NegativeBegin", {"begin": returns(Cost(-0.5))}, r"returned Cost\(seconds=-0.5, .*\) from begin"),
        ("HalfBytes", {"bytes": returns(0.5)}, "returned 0.5 from bytes"),
    ),
    *of("backend", Profiled, (*VANILLA, "allocation=fixed-split"),
        ("NanLoad", {"load": returns(Cost(nan))}, r"returned Cost\(seconds=nan.* from load"),
    ),
]  # fmt: skip

POLICIES = [
    *of("group_policy", their.GroupPolicy, STAGES,
        ("SetsLeft", {"arrived": lambda self, progress, now_s: setattr(progress, "left", 1)},
         "raised FrozenInstanceError: .*'left'"),
        ("SetsStages", {"arrived": lambda self, progress, now_s: setattr(progress, "stages", (Stage(WHOLE, 1),))},
         "raised FrozenInstanceError: .*'stages'"),
        ("SetsGroup", {"at_boundary": lambda self, progress, now_s: setattr(progress, "group", None)},
         "raised FrozenInstanceError: .*'group'"),
        ("SetsView", {"bind": lambda self, run, view: setattr(view, "estimates_are_exact", True)},
         "raised FrozenInstanceError: .*'estimates_are_exact'"),
        ("SetsClaims", decides(lambda self, now_s: self.view.claimed.__setitem__(0, 0)), "changes StageView.claimed"),
        ("PopsClaims", decides(lambda self, now_s: self.view.claimed.pop()), "changes StageView.claimed"),
        ("ClearsWaiting", decides(lambda self, now_s: self.view.waiting.clear()), "raised AttributeError: .*'clear'"),
        ("EditsRequest", {"arrived": lambda self, progress, now_s: setattr(progress.request, "steps", 1)},
         r"changed steps of the request in row 0 from \d+ to 1"),
        ("HalfSteps", launches(steps=1.5), r"returned Launch\(.*\) from decide; expected int .* as its steps"),
        ("TrueSteps", launches(steps=True), r"returned Launch\(.*\) from decide; expected int .* as its steps"),
        ("ManySteps", launches(steps=lambda progress, gpu: progress.left + 1),
         "launches 51 steps of the request in row 0"),
        ("ZeroEvery", launches(every=0), r"returned Launch\(.*\) from decide; expected int .* its every"),
        ("NegativeEvery", launches(every=-3), r"returned Launch\(.*\) from decide; expected int .* its every"),
        ("AheadText", launches(ahead="no"), "returned .* from decide; expected True or False as its ahead"),
        ("StandsText", {**launches(), "stands": returns("long")}, "returned 'long' from stands .*; expected a Stand"),
        ("AbsentGpu", launches(gpus=(77,)), r"launches .* on the GPUs \(77,\)"),
        ("ListOfGpus", launches(gpus=[0]), "returned .* from decide; expected a tuple as its gpus"),
        ("GpuTwice", launches(gpus=(0, 0)), r"launches .* on the GPUs \(0, 0\)"),
        ("ThreeGpus", launches(gpus=(0, 1, 2)), r"launches .* on 3 GPUs; expected 1, 2, 4, 8 of them"),
        ("PlacesBeyond", {"bind": lambda self, run, view: view.place([99], ["denoiser"])},
         "places components on GPU 99; expected 0 to 7"),
        ("BatchOfNone", launches(batch=(None,)), "returned .* from decide; expected a Progress as its batch"),
        ("LaunchesNumber", {"launch": returns(5)}, "returned 5 from decide; expected a Launch"),
        ("DecidesNone", {"decide": returns(None)}, "returned None from decide; expected an iterable"),
        ("DecidesOne", {"decide": returns(1)}, "returned 1 from decide; expected an iterable"),
        ("Again", {"decide": lambda self, now_s: [*their.GroupPolicy.decide(self, now_s)] * 2},
         "launches .* which does not wait at a boundary"),
        ("TicksInThePast", {"arrived": lambda self, progress, now_s: self.view.decide_at(now_s - 5)},
         "asked for a call at -"),
        ("TicksAtNoTime", {"arrived": lambda self, progress, now_s: self.view.decide_at(nan)},
         "asked for a call at nan s"),
        ("TicksForEver", decides(lambda self, now_s: self.view.decide_at(now_s)), "asks for calls at .* s without end"),
        ("DiscardsRunning", {"decide": discards_what_runs}, "discards .* which does not wait at a boundary"),
    ),
    *of("estimates", their.Estimates, TETRISERVE,
        ("BelievesNan", {"seconds": nan}, "returned .* from cost for the request in row 0; .* as its step_s"),
        ("BelievesInfinity", {"seconds": inf}, "returned .* from cost for the request in row"),
        ("BelievesFewSteps", {"cost": returns(their.StageCost(0.0, 1.0, 0.0, nan, (0.0, 1.0, 2.0)))},
         r"{part} returned the ends \(0.0, 1.0, 2.0\) from cost for the request in row 0"),
    ),
    *of("estimates", their.Estimates, STAGES,
        ("BelievesNegative", {"seconds": -1.0}, "returned .* from cost for the request in row"),
        ("BelievesNothing", {"seconds": 0.0}, r"with .*{part}\) believed that steps of .* in row \d+ take 0.0 s"),
        ("BelievesText", {"seconds": "long"}, "returned .* from cost for the request in row"),
        ("BelievesCost", {"cost": returns(Cost(1.0))},
         "returned .* from cost for the request in row 0; .* a StageCost"),
    ),
    *of("latency_predictor", their.LatencyPredictor, PATCHES,
        ("NegativeLatency", {"step_s": returns(-1.0)}, "returned -1.0 from step_s"),
        ("NanLatency", {"step_s": returns(nan)}, "returned nan from step_s"),
    ),
]  # fmt: skip

FRONT_ENDS = [
    *of("frontend", their.FrontEnd, VANILLA,
        ("NeverPlans", {"admit": returns(0.0)}, "planned for row 0 neither a model nor"),
        ("TakesPlansBack", {"plan": returns(UNPLANNED)}, "planned for row 20 neither a model nor"),
        ("PlansNoModel", {"plan": returns(Plan(None))}, "planned for row 20 neither a model nor"),
        ("PlansUnknownModel", {"plan": returns(Plan("dall-e"))}, "planned for row 20 the model 'dall-e'"),
        ("SkipsNegative", {"admit": skips_less_than_nothing},
         r"the frontend \({part}\) planned for row 0 -3 of 50 steps skipped"),
        ("FromLater", {"plan": lambda self, request: self.hit(request.row + 5 if request.row < 50 else 0)},
         r"started the request in row 2\d, .* row \d+, which was at"),
        ("FromItself", {"plan": lambda self, request: self.hit(request.row)},
         "started the request in row 20, .* of row 20, which was at"),
        ("FromUnfinished", {"plan": lambda self, request: self.hit(request.row - 1)},
         r"started the request in row 2\d, .* row \d+, which was at"),
        ("FromNowhere", {"plan": lambda self, request: self.hit(10**6)},
         "started the request in row 20 .* row 1000000; the trace has"),
        ("SimilarSeven", {"plan": lambda self, request: self.hit(0, similarity=7.0)},
         "wrote similarity = 7.0 of the request in row 20"),
        ("AgeNegative", {"plan": lambda self, request: self.hit(0, age_s=-100.0)},
         "wrote source_age_s = -100.0 of the request in row 20"),
        *((f"Plans {name}", {"plan": lambda self, _, name=name, value=value: self._plan._replace(**{name: value})},
           f"{{part}} planned the request in row 20 with {name} = {value!r}; expected a .*number")
          for name, value in (("k", 5.0), ("of_steps", 0), ("source", 0.0), ("similarity", None), ("lookup", "hit"),
                              ("search_s", "1"))),
        ("PlansNone", {"plan": returns(None)},
         "{part} called Run.assign with .* and None; expected a Request and a Plan"),
        ("SearchesForNothing", {"plan": lambda self, request: self._plan._replace(search_s=5.0)},
         r"{part}\) planned the request in row 20 with search_s = 5.0 and returned 0.0 s from admit"),
        *((f"Changes {name}", {"admit": lambda self, request, now_s, name=name, value=value: (
            their.FrontEnd.admit(self, request, now_s), setattr(request, name, value))[0]},
           rf"{{part}}\) changed {name} of the request in row 0 from .* to {value}; a front end plans")
          for name, value in (("arrival_s", 90.0), ("worker", 0))),
        *((f"Admits {took_s!r}", {"took_s": took_s},
           f"returned {took_s!r} from admit for the request in row")
          for took_s in (None, nan, inf, "soon", -1.0)),
        ("SkipsFromNothing", {"plan": lambda self, request: self._plan._replace(k=49)},
         "{part} planned that the request in row 20 skips steps, and no source of what they made"),
        ("HitsNothing", {"plan": lambda self, request: self._plan._replace(lookup=HIT)},
         r"the frontend \({part}\) planned for row 20 0 of 50 steps skipped after a lookup \(hit\)"),
        ("KeepsOne", {"completed": returns(1)}, r"returned 1 from completed for the request in row \d"),
    ),
    *of("frontend", their.FrontEnd, STAGES,
        ("PlansFewStages", {"plan": lambda self, request: self._plan._replace(stages=(Stage(WHOLE, 1),))},
         r"gives the request in row 20 stages with \[1\] denoising steps"),
    ),
    *of("frontend", Cascade, CASCADE,
        ("EscalatesShare", {"escalates": returns(0.3)}, "returned 0.3 from escalates for the request in row"),
        ("EscalatesNone", {"escalates": returns(None)}, "returned None from escalates for the request in row"),
        ("JudgesBefore", {"judge_s": returns(-2.0)}, "returned -2.0 from judge_s for the request in row"),
        ("ThenUnknown", {"admit": lambda self, request, now_s: self._run.assign(
            request, self._plan._replace(then=Plan("dall-e"))) or 0.0}, "planned for row 0 the next try .*'dall-e'"),
        ("SharesNan", {"escalated_share": returns(nan)}, "returned nan from escalated_share"),
    ),
    *of("frontend.search_s", their.Delay, NIRVANA,
        ("NegativeDelay", {"draw": lambda self, rng, count: rng.random(count) - 0.5}, "drew"),
    ),
    *of("eviction", their.Eviction, NIRVANA,
        ("NotHeld", {"victims": lambda self, count: [123456 << 14 | 5] * count},
         r"the eviction \({part}\) named item \d+ .* which is not in the cache"),
        ("TooMany", {"victims": lambda self, count: [self.items.pop() for _ in range(count + 3)]},
         r"the eviction \({part}\) named 8 items when 5 had to go"),
        ("TooFew", {"victims": returns([])}, r"the eviction \({part}\) named 0 items when 5 had to go"),
        ("NoItems", {"victims": lambda self, count: [None] * count}, r"returned \[None, .*\] from victims"),
    ),
    *of("search", Exact, (*NIRVANA, "search=exact"),
        ("FindsRows", {"open": lambda self, *_: lambda: FindsRow()},
         r"{part} found \(\d+, 1.0\) for row \d+; expected None, or an entry that was added"),
    ),
    *of("similarity_map", Identity, (*NIRVANA, "similarity_map=identity"),
        ("Percent", {"to_clip": lambda self, similarity: 100 * similarity},
         "returned .* from to_clip; expected float at least -1"),
        ("NoFloor", {"from_clip": returns(nan)}, "TextToText with {part} the product nan"),
    ),
    *of("quality", Published, VANILLA,
        ("JudgesFew", {"judge": returns(QualityEstimate(np.ones(3)))},
         r"{part} returned factors of float64 \(3,\) from judge"),
        ("JudgesInPlace", {"judge": lambda self, record, *_: np.subtract(
            columns := record.request_columns["finish_s"], 1.0, out=columns)},
         "{part} raised ValueError: output array is read-only"),
    ),
    *of("controlnet_placement", InlineControlNets, ADDONS,
        ("AdmitsNan", {"load_addons": lambda self, worker, *_: self._run.cluster.admit(worker, LORA, nan)},
         "{part} puts a of nan bytes on worker"),
        ("AdmitsText", {"load_addons": lambda self, worker, *_: self._run.cluster.admit(worker, "a net", 1)},
         "{part} puts an asset on worker .* by .*; expected an Asset"),
    ),
    *of("admission", their.Admission, NIRVANA,
        *((f"Admits {answer!r}", {"admits": returns(answer)},
           f"returned {answer!r} from admits for")
          for answer in (None, "no")),
    ),
    *of("selector", their.Selector, NIRVANA,
        ("SkipsAll", {"skip": returns(70)}, "skips 70 steps"),
        ("SkipsHalf", {"skip": returns(2.5)}, "returned 2.5 from skip"),
        ("NanFloor", {"floor": nan}, "{part} has the floor nan"),
        ("TextFloor", {"floor": "low"}, "{part} has floor = 'low'; expected a number"),
        ("SkipsNoSteps", {"of_steps": "all"}, "has of_steps = 'all'"),
    ),
    *of("match_predictor", their.MatchPredictor, PREDICTED,
        ("ExpectsSome", {"expects": returns(0.4)}, "returned 0.4 from expects; expected True or False"),
    ),
]  # fmt: skip

CLIENTS = [
    *of("client", their.Client, LIMITED,
        ("SendsLate", {"due": lambda self, row, now_s: self.run.clock.at(now_s + 10, COMPLETION, self.sender.send,
                                                                         self.sender.make(row))},
         r"{part}\) sends the request in row 0 at .* s, and it was made for .* s; make it when it is sent"),
        ("EditsArrival", {"due": lambda self, row, now_s: self.sender.send(moved(self.sender.make(row)))},
         r"{part}\) sends the request in row 0 at .* s, and it was made for"),
        ("RefusesAndSends", {"due": lambda self, row, now_s: refuse_and_send(self.sender, self.sender.make(row))},
         r"{part}\) sends the request in row 0 twice"),
        ("GivesUpAnyway", {"due": lambda self, row, now_s: send_and_give_up(self.sender, self.sender.make(row))},
         r"{part}\) gives up the request in row 0, and its gives_up is False"),
        ("SendsMore", {"max_tries": 2, "due": lambda self, row, now_s: [
            self.sender.send(self.sender.make(row, number)) for number in (1, 2)]},
         r"{part}\) sends a further try of the request in row 0, which it did not ask for"),
        ("NoTries", {"max_tries": 0}, "{part} has max_tries = 0; expected a whole number from 1 on"),
        ("TriesWhenBound", {"bind": lambda self, run, sender: setattr(self, "max_tries", 3)},
         r"{part}\) has max_tries = 3 once bound, and 1 before"),
        ("SeesLittle", {"seen": returns({"due_s": np.zeros(20)})}, "{part} returned due_s of shape .* from seen"),
        ("SeesTheFuture", {"seen": returns({name: np.arange(20.0)[::-1 if name == "sent_s" else 1] for name in SEEN})},
         "{part} returned from seen a request that was sent before it was due"),
    ),
]  # fmt: skip

TEN = ("system=nirvana-no-predictor", "trace.requests=10")
BEFORE_THE_CLOCK = [
    *of("arrivals", their.Arrivals, TEN,
        ("MoreTimes", {"schedule": lambda self, clock_s, rng: their.Schedule(np.arange(20.0))}, ".* 20 times"),
        ("ListOfTimes", {"schedule": lambda self, clock_s, rng: their.Schedule([0.0] * 10)},
         "{part}: arrival times: expected .* found list"),
        ("WordsAsTimes", {"schedule": lambda self, clock_s, rng: their.Schedule(np.array(["now"] * 10))},
         "{part}: arrival times: expected .* found"),
        ("NoTimes", {"schedule": lambda self, clock_s, rng: their.Schedule(np.zeros(0))},
         "{part} gave no times for the 10 requests"),
        ("ThinksShort", {"schedule": lambda self, clock_s, rng: their.Schedule(np.zeros(3), np.ones(3))},
         r"{part} gave think_s of shape \(3,\) for the 10 requests"),
        ("NoSchedule", {"schedule": returns(None)}, "returned None from schedule; expected a Schedule"),
    ),
    *of("trace", their.Source, TEN,
        ("NoTrace", {"load": returns(None)}, "returned None from load; expected a Trace"),
        ("DictionaryTrace", {"load": returns({"prompt": ["a cat"]})}, "returned .* from load; expected a Trace"),
        ("RaisingTrace", {"load": raises}, "raised KeyError: 'boom'"),
    ),
    *of("encoder", their.Encoder, (*TEN, "trace.requests=9"),
        ("ListOfVectors", {"name": "ListOfVectors", "encode": lambda self, prompts, _: [[1.0] * 8] * len(prompts)},
         "gave list, expected float32"),
    ),
    *of("encoder", their.Encoder, TEN,
        ("LongVectors", {"encode": lambda self, prompts, _: np.full((len(prompts), 8), 200 / np.sqrt(2), np.float32)},
         r"encoder alike \({part}\): gave a vector of length 400"),
    ),
]  # fmt: skip

ALL = EXECUTORS + SCHEDULERS + CONTROLLERS + STEPS + POLICIES + FRONT_ENDS + CLIENTS + BEFORE_THE_CLOCK

composed = cache(lambda common: configured(*common))


def simulated_with(monkeypatch: pytest.MonkeyPatch, key: str, common: Sequence[str], part: type) -> Outcome:
    """Run ``common`` with ``part`` under ``key``; one that extends a class of ours keeps its settings."""
    config = deepcopy(composed(common))
    *groups, last = key.split(".")
    node = reduce(getitem, groups, config)
    extends_ours = any(base.__module__.startswith("mezzotint.") for base in part.__mro__)
    monkeypatch.setattr(their, part.__name__, part, raising=False)
    target = f"{their.__name__}.{part.__name__}"
    node[last] = {**(node[last] if extends_ours else {}), "_target_": target}
    return simulate(config)


@pytest.mark.invariant(6)
@pytest.mark.parametrize("wrong", ALL, ids=[f"{wrong.key}-{wrong.name}" for wrong in ALL])
def test_impossible_action_ends_the_run_and_names_the_part(wrong: Wrong, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "".join(filter(str.isalnum, wrong.name))
    part = type(name, (wrong.base,), {"__module__": their.__name__, **wrong.changes})
    refused = (ConfigError, SimulationError, TraceError) if wrong in BEFORE_THE_CLOCK else SimulationError
    words = wrong.words.replace("{part}", f"{their.__name__}.{name}")
    with pytest.raises(refused, match=words) as caught:
        simulated_with(monkeypatch, wrong.key, wrong.common, part)
    assert name in str(caught.value) or "StepCosts" in wrong.words


TRUE = {wrong.base: wrong for wrong in reversed(ALL) if wrong.base.__module__ == their.__name__ and wrong.changes}


@pytest.mark.parametrize("base", TRUE, ids=lambda base: base.__name__)
def test_true_part_of_an_outsider_is_not_refused(base: type, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = simulated_with(monkeypatch, TRUE[base].key, TRUE[base].common, base).summary["requests"]
    assert counts["completed"] == counts["arrived"] > 0


@pytest.mark.parametrize("kind", ["scheduler", "executor"])
def test_part_of_others_is_named_where_no_request_completes(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """... since nobody else may be at fault."""
    changes = {
        "scheduler": {"offer": lambda self, request, now_s: self.run.end(request, DISCARDED, "full")},
        "executor": {"end": lambda self, request: self.run.end(request, FAILED, "tired")},
    }[kind]
    base = {"scheduler": their.Scheduler, "executor": their.Executor}[kind]
    part = type("EndsAll", (base,), {"__module__": their.__name__, **changes})
    with pytest.raises(ConfigError, match=rf"200 x .*; the {kind} \({their.__name__}.EndsAll\) took part"):
        simulated_with(monkeypatch, kind, VANILLA, part)


def test_class_that_cannot_be_extended_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of a class from outside are checked in a class that extends it."""

    def refuse(cls: type) -> None:
        raise TypeError("it is final")

    part = type("Final", (their.Scheduler,), {"__module__": their.__name__, "__init_subclass__": refuse})
    with pytest.raises(ConfigError, match=rf"{their.__name__}.Final cannot be extended.*TypeError: it is final"):
        simulated_with(monkeypatch, "scheduler", VANILLA, part)


def test_function_that_raises_is_named_where_no_part_is_on_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    part = type("CallsFunction", (their.Controller,), {"__module__": their.__name__, "act": calls_function})
    with pytest.raises(
        SimulationError, match=r"test_wrong_policies.fails raised KeyError: 'boom' \(in fails, .*py line"
    ):
        simulated_with(monkeypatch, "controller", VANILLA, part)


def test_part_that_raises_after_the_last_request_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for key, base, method, common in (
        ("client", Impatient, "seen", (*VANILLA, "client=impatient")),
        ("quality", Published, "judge", VANILLA),
    ):
        part = type("RaisesLate", (base,), {"__module__": their.__name__, method: raises})
        with pytest.raises(SimulationError, match=r"their_parts.RaisesLate raised KeyError: 'boom' \(in raises"):
            simulated_with(monkeypatch, key, common, part)


def requests_with(monkeypatch: pytest.MonkeyPatch, key: str, base: type, common: Sequence[str], **changes: Any) -> Any:
    part = type("Part", (base,), {"__module__": their.__name__, **changes})
    return simulated_with(monkeypatch, key, common, part).requests


@pytest.mark.invariant(1)
@pytest.mark.parametrize(
    ("key", "base", "common", "changes"),
    [
        ("arrivals", their.Arrivals, VANILLA,
         {"schedule": lambda self, clock_s, _: their.Schedule(np.cumsum([random.random() for _ in clock_s]))}),
        ("scheduler", their.Scheduler, BUSY, {"next": lambda self, *_: drawn(self, random.choice)}),
        ("scheduler", their.Scheduler, BUSY, {"next": lambda self, *_: drawn(self, np.random.choice)}),
        ("scheduler", their.Scheduler, BUSY, {"next": lambda self, *_: drawn(self, first_of_set)}),
        ("group_policy", their.GroupPolicy, STAGES,
         {"decide": lambda self, _: [*map(self.launch, set(self.view.waiting), self.view.idle())]}),
        ("router", their.Router, (*BUSY, "scheduler=per-worker"),
         {"choose": lambda self, request, workers, now_s: first_of_set(workers)}),
    ],
)  # fmt: skip
def test_global_random_numbers_and_sets_repeat_themselves(
    key: str, base: type, common: Sequence[str], changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = random.getstate()
    first, second = (requests_with(monkeypatch, key, base, common, **changes) for _ in range(2))
    assert first.equals(second)
    assert random.getstate() == before


def first_of_set(all_):
    return next(iter(set(all_)))


def drawn(part, choose):
    if not part.waiting:
        return None
    request = choose(list(part.waiting))
    part.waiting.remove(request)
    return request


def test_costs_may_be_one_object_and_numbers_of_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a part returns is copied with plain numbers, so float32 goes no further and no later call changes it."""
    cost = Cost(0.0, 1.0)

    def again(seconds: float) -> Cost:
        cost.seconds = np.float32(seconds)
        return cost

    def of(make: Callable[[float], Cost]) -> dict[str, Any]:
        return {
            "begin": lambda self, works: make(0.5),
            "steps": lambda self, works, count=1: (Profiled.steps(self, works, count), make(0.25 * count))[1],
            "end": lambda self, works: make(2.0),
        }

    one, new = (requests_with(monkeypatch, "backend", Profiled, BATCHES, **of(make)) for make in (again, Cost))
    assert one["finish_s"].equals(new["finish_s"])


@pytest.mark.parametrize(
    ("key", "base", "common", "changes"),
    [
        ("executor", their.Executor, BUSY, {"max_batch": np.int64(1)}),
        ("group_policy", their.GroupPolicy, STAGES, launches(gpus=lambda _, gpu: (np.int64(gpu),))),
        ("estimates", their.Estimates, TETRISERVE, {"seconds": np.float32(1)}),
    ],
)
def test_numbers_of_numpy_are_numbers(
    key: str, base: type, common: Sequence[str], changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = requests_with(monkeypatch, key, base, common)
    assert requests_with(monkeypatch, key, base, common, **changes).equals(plain)


def test_client_of_others_may_send_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def again(self, request, outcome, now_s):
        row = self.sender.trace_row(request)
        if request.row == row:
            self.sender.send_at(now_s + 1.0, row)

    found = requests_with(
        monkeypatch, "client", their.Client, LIMITED, max_tries=2, ended=again,
        resend=lambda self, row: self.sender.send(self.sender.make(row, 2)),
    )  # fmt: skip
    ids = found["request_id"].to_pylist()
    assert len(ids) == 400
    assert {f"{name}~2" for name in ids if "~" not in name} == {name for name in ids if "~" in name}


def test_attribute_of_a_protocol_may_be_a_property(monkeypatch: pytest.MonkeyPatch) -> None:
    part = type("OneByOne", (their.Executor,), {"__module__": their.__name__, "max_batch": property(lambda self: 1)})
    counts = simulated_with(monkeypatch, "executor", VANILLA, part).summary["requests"]
    assert counts["completed"] == counts["arrived"] > 0


@pytest.mark.parametrize("factor", [1.0, nan])
def test_placement_beside_others_in_a_union_is_checked_and_has_default_bodies(
    factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``controlnet_placement`` takes the protocol, or a class of ours that is none."""
    minimal = {
        "bind": lambda self, run, faster: None,
        "load_addons": lambda self, worker, request, active: [],
        "step": lambda self, worker, active, plain, steps: plain.times(factor),
    }
    part = type("Minimal", (), {"__module__": their.__name__, **minimal})
    if factor == 1.0:
        counts = simulated_with(monkeypatch, "controlnet_placement", ADDONS, part).summary["requests"]
        assert counts["completed"] == counts["arrived"] > 0
        return
    with pytest.raises(SimulationError, match=r"Minimal returned Cost\(seconds=nan.* from step"):
        simulated_with(monkeypatch, "controlnet_placement", ADDONS, part)


@pytest.mark.invariant(12)
def test_vectors_of_another_encoder_of_the_same_name_are_not_taken_from_the_disk() -> None:
    ours = HashedNgrams()
    same_name = type("SameName", (), {"__module__": their.__name__, "name": ours.name, "dim": ours.dim})()
    assert identity(ours) == ours.name
    assert identity(same_name).startswith(f"{ours.name} {their.__name__}.SameName ")


@pytest.mark.parametrize("controller", ["timetable", "autoscale-utilisation"])
def test_controllers_of_roles_and_rentals_are_refused_beside_fixed_groups(controller: str) -> None:
    more = {"timetable": ["controller.at={60:{large:4}}"]}.get(controller, [])
    with pytest.raises(ConfigError, match=r"controller: found .* counts on the GPUs that it began with"):
        simulated(*STAGES, "group_policy=fixed-groups", f"controller={controller}", *more)


@pytest.mark.invariant(7)
def test_preempted_request_cannot_resume_away_from_its_state(monkeypatch: pytest.MonkeyPatch) -> None:
    class Orders(their.Controller):
        def bind(self, run: Any) -> None:
            Timetable({400.0: {"large": 1, "small": 2}}).bind(run)

    words = (
        r"PerWorkerQueues.* resumes the request in row 13, preempted by .*ShortestRemaining with 49 steps left, on "
        "worker 2 .* its state is on worker 0"
    )
    with pytest.raises(SimulationError, match=words):
        simulated_with(monkeypatch, "controller", PREEMPTED, Orders)


def test_controller_that_moves_preempted_requests_is_refused() -> None:
    with pytest.raises(ConfigError, match="discipline: found one that preempts beside a controller that changes"):
        simulated(*PREEMPTED, "controller=timetable", "controller.at={400:{large:1,small:2}}")


def test_max_batch_beyond_the_load_changes_nothing() -> None:
    large, huge = (simulated(*BATCHES, f"executor.max_batch={limit}").requests for limit in (10**3, 10**18))
    assert large.equals(huge)


@pytest.mark.parametrize(
    ("overrides", "what"),
    [
        (("system=katz", "cluster=h800", "cluster.count=1"), "group_policy.degree: found 2, .* has 1 GPUs"),
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
