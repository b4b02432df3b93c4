"""Policies of somebody outside the project that do or return what cannot be true, one class each.

The first line of a docstring says what its class does. Each is run by tests/sim/laws/test_wrong_policies.py.
"""

from collections import deque

from mezzotint.backends.base import Cost
from mezzotint.sim.core.clock import COMPLETION
from mezzotint.sim.core.plan import Plan

# -- executors -------------------------------------------------------------------------------------------------------


class Honest:
    """Runs a request for 10 s, as it says."""

    max_batch = 1

    def bind(self, run):
        self.run, self.cluster = run, run.cluster

    def accept(self, worker, request):
        request.start_s = self.run.clock.now
        self.run.clock.at(request.start_s + 10, COMPLETION, self.done, (worker, request))

    def done(self, what):
        worker, request = what
        request.denoise_s = 10
        self.record_busy(worker, request)
        self.end(request)
        self.release(worker)

    def record_busy(self, worker, request):
        self.cluster.record_busy(worker, request.start_s, self.run.clock.now, "serve")

    def end(self, request):
        self.run.end(request)

    def release(self, worker):
        self.cluster.release(worker)


class Unrecorded(Honest):
    """Records no busy time."""

    max_batch = 1000

    def record_busy(self, worker, request):
        pass


class HalfRecorded(Honest):
    """Records the first half of its time."""

    def record_busy(self, worker, request):
        self.cluster.record_busy(worker, request.start_s, request.start_s + 5, "serve")


class AtOnce(Honest):
    """Ends a request when it comes."""

    def accept(self, worker, request):
        request.start_s = self.run.clock.now
        self.run.end(request)
        self.cluster.release(worker)


class Unstarted(AtOnce):
    """Does not state when it started."""

    def accept(self, worker, request):
        self.run.end(request)
        self.cluster.release(worker)


class NoStepTime(Honest):
    """Says that its steps took no time."""

    def end(self, request):
        request.denoise_s = 0
        self.run.end(request)


class LongParts(Honest):
    """Says that decoding took longer than the request."""

    def end(self, request):
        request.decode_s = 100.0
        self.run.end(request)


class NegativeSeconds(Honest):
    """Says that its steps took less than no time."""

    def end(self, request):
        request.denoise_s = -3.0
        self.run.end(request)


class NegativeJoules(Honest):
    """Says that the GPU drew less than nothing."""

    def record_busy(self, worker, request):
        self.cluster.record_busy(worker, request.start_s, self.run.clock.now, "serve", joules=-1e9)


class ManyJoules(Honest):
    """Gives a request more joules than its GPU drew."""

    def end(self, request):
        request.energy_j = 1e12
        self.run.end(request)


class BackwardSpan(Honest):
    """Records a span that ends before it begins."""

    def record_busy(self, worker, request):
        self.cluster.record_busy(worker, self.run.clock.now, request.start_s, "serve")


class NanSpan(Honest):
    """Records a span until no time."""

    def record_busy(self, worker, request):
        self.cluster.record_busy(worker, request.start_s, float("nan"), "serve")


class EndsTwice(Honest):
    """Ends a request twice."""

    def end(self, request):
        self.run.end(request)
        self.run.end(request)


class NeverReleases(Honest):
    """Does not release its worker."""

    def release(self, worker):
        pass


class NeverEnds(Honest):
    """Does not finish a request that it accepted."""

    def accept(self, worker, request):
        pass


class ReleasesNegative(Honest):
    """Releases less than nothing."""

    def release(self, worker):
        self.cluster.release(worker, -1)


class StepsLeft(Honest):
    """Ends a request with half of its steps left."""

    def end(self, request):
        request.steps_left //= 2
        self.run.end(request)


class InThePast(Honest):
    """Asks for a call before the present."""

    def accept(self, worker, request):
        self.run.clock.at(self.run.clock.now - 5, COMPLETION, self.done, (worker, request))


class NoLimit(Honest):
    """Takes no number of requests."""

    max_batch = "many"


# -- schedulers ------------------------------------------------------------------------------------------------------


class Queue:
    """First come, first served."""

    def bind(self, run):
        self.run, self.waiting = run, deque()

    def offer(self, request, now_s):
        worker = self.run.cluster.least_loaded()
        if worker is None:
            self.waiting.append(request)
        return worker

    def next(self, worker, now_s):
        return self.waiting.popleft() if self.waiting else None

    def worker_changed(self, worker, now_s):
        pass

    def __len__(self):
        return len(self.waiting)


class Edits(Queue):
    """Changes an attribute of every request that it is offered."""

    def __init__(self, name: str, value: float):
        self.name, self.value = name, value

    def offer(self, request, now_s):
        setattr(request, self.name, type(getattr(request, self.name))(self.value))
        return super().offer(request, now_s)


class EditsPlan(Edits):
    """Replaces the plan of every request that it is offered by one that differs in an attribute."""

    def offer(self, request, now_s):
        request.plan = request.plan._replace(**{self.name: self.value})
        return Queue.offer(self, request, now_s)


class EditsLater(Queue):
    """Changes the arrival of one request late in the run."""

    def offer(self, request, now_s):
        if request.row == 150:
            request.arrival_s += 0.5
        return super().offer(request, now_s)


class OtherModel(Queue):
    """Has every request run on the small model late in the run."""

    def offer(self, request, now_s):
        if request.row > 150:
            request.plan = request.plan.on("sdxl")
        return super().offer(request, now_s)


class Drops(Queue):
    """Forgets every tenth request."""

    def offer(self, request, now_s):
        return super().offer(request, now_s) if request.row % 10 else None


class GivesTwice(Queue):
    """Queues a request that it also hands over."""

    def offer(self, request, now_s):
        worker = self.run.cluster.least_loaded()
        self.waiting.append(request)
        return worker


class NegativeLength(Queue):
    """Says that less than nothing waits."""

    def __len__(self):
        return -5


class WrongLength(Queue):
    """Says that three more wait than do."""

    def __len__(self):
        return len(self.waiting) + 3


class NoWorker(Queue):
    """Offers the name of a worker."""

    def offer(self, request, now_s):
        return "worker 0"


class NoRequest(Queue):
    """Hands over a row's number."""

    def next(self, worker, now_s):
        return self.waiting.popleft().row if self.waiting else None


class Raises(Queue):
    """Has an error of its own."""

    def next(self, worker, now_s):
        raise KeyError("boom")


class RaisesWhenBound(Queue):
    """Has an error before the clock starts."""

    def bind(self, run):
        raise KeyError("boom")


# -- controllers -----------------------------------------------------------------------------------------------------


class Controller:
    """Acts once, after a minute."""

    def bind(self, run):
        self.run, self.cluster, self.clock = run, run.cluster, run.clock
        run.process(self.live())

    def arrived(self, request, now_s):
        pass

    def live(self):
        yield self.clock.timeout(60)
        self.act(self.cluster.workers)

    def act(self, workers):
        pass


class Installs(Controller):
    """Puts a model on a worker that runs a request."""

    def act(self, workers):
        worker = next(worker for worker in workers if worker.running)
        self.cluster.install(worker, "sdxl" if worker.model != "sdxl" else "sd3.5-large")


class OrdersInThePast(Controller):
    """Orders a role at the beginning of the run."""

    def act(self, workers):
        self.cluster.change_role(workers[0], "small", 0.0)


class OrdersAll(Controller):
    """Leaves no worker for one of the roles."""

    def act(self, workers):
        for worker in workers:
            self.cluster.change_role(worker, "small", self.clock.now)


class GroupOfBusy(Controller):
    """Makes a group of workers that run requests."""

    def act(self, workers):
        self.cluster.form_group([worker for worker in workers if worker.running][:2], "large", self.clock.now)


class FailsBusy(Controller):
    """Takes a GPU out of service behind the back of the executor."""

    def act(self, workers):
        self.cluster.fail(next(worker for worker in workers if worker.running), self.clock.now)


class Spins(Controller):
    """Waits for no time, for ever."""

    def live(self):
        while True:
            yield self.clock.timeout(0)


class SpinsLater(Spins):
    """The same, by calls of the clock, from the middle of the run on."""

    def live(self):
        yield self.clock.timeout(600)
        self.again(None)

    def again(self, _):
        self.clock.at(self.clock.now, COMPLETION, self.again)


class WaitsNegative(Controller):
    """Waits for less than no time."""

    def live(self):
        yield self.clock.timeout(-1)


# -- steps -----------------------------------------------------------------------------------------------------------


class Steps:
    """Every stage takes what ``step_cost`` says."""

    step_cost = Cost(0.1, 1.0)

    def bind(self, run, cut):
        self.run = run

    def prepare(self, worker, request, now_s):
        return Cost(0.0, 0.0)

    def step(self, worker, active, now_s):
        return self.step_cost

    def boundary(self, worker, active, now_s):
        return Cost(0.0, 0.0)

    def finish(self, worker, request, now_s):
        return Cost(0.0, 0.0), Cost(0.0, 0.0)


class NegativeSteps(Steps):
    """A step of less than no time."""

    step_cost = Cost(-1.0, 0.0)


class ZeroSteps(Steps):
    """A step of no time."""

    step_cost = Cost(0.0, 0.0)


class NanSteps(Steps):
    """A step of no number of seconds."""

    step_cost = Cost(float("nan"), 0.0)


class NegativeJouleSteps(Steps):
    """A step that makes energy."""

    step_cost = Cost(0.1, -1e6)


class NoCost(Steps):
    """A step without a cost."""

    step_cost = None


class NegativeFinish(Steps):
    """A decoding of less than no time."""

    def finish(self, worker, request, now_s):
        return Cost(-0.5, 0.0), Cost(0.0, 0.0)


class TooLarge(Steps):
    """Ten terabytes in the memory of a GPU."""

    def step(self, worker, active, now_s):
        self.run.cluster.check_memory(worker, 10**13)
        return self.step_cost


# -- what a cache is made of -----------------------------------------------------------------------------------------


class Victims:
    """Evicts the newest."""

    def bind(self, run, similarity, selector):
        self.items = []

    def added(self, entry, ks, row):
        self.items += [entry << 14 | k for k in ks]

    def used(self, item):
        pass

    def victims(self, count):
        return [self.items.pop() for _ in range(count)]


class NotHeld(Victims):
    """Evicts what is not there."""

    def victims(self, count):
        return [123456 << 14 | 5] * count


class TooMany(Victims):
    """Evicts more than it was asked for."""

    def victims(self, count):
        return [self.items.pop() for _ in range(count + 3)]


class NoItems(Victims):
    """Evicts nothing that could be an item."""

    def victims(self, count):
        return [None] * count


class Admits:
    """Admits ``answer``."""

    answer: object = None

    def bind(self, run):
        pass

    def admits(self, request):
        return self.answer


class AdmitsText(Admits):
    """The same, of a text, which would be true."""

    answer = "no"


class Skips:
    """A selector that skips more than all steps."""

    of_steps, alpha, floor = 50, None, -1.0

    def skip(self, similarity):
        return 70


class NegativeDelay:
    """A search of less than no time."""

    def draw(self, rng, count):
        return rng.random(count) - 0.5


class NegativeSkip:
    """A front end that plans a step before the first."""

    def bind(self, run):
        self.run = run

    def admit(self, request, now_s):
        self.run.assign(request, Plan(self.run.model("large").name))
        request.skipped = -3
        return 0.0

    def completed(self, request):
        return False

    def insert(self, request, now_s):
        pass


class NegativePlanning(NegativeSkip):
    """A front end that plans in less than no time."""

    def admit(self, request, now_s):
        self.run.assign(request, Plan(self.run.model("large").name))
        return -1.0


class AnyWorker:
    """A router that chooses a worker of another cluster."""

    def bind(self, run):
        pass

    def choose(self, request, workers, now_s):
        return object()

    def sent(self, worker, request, now_s):
        pass

    def left(self, worker, request, now_s):
        pass


class ManyRoles:
    """An allocation of more GPUs than there are."""

    def roles(self, gpus, models, backend):
        return ["large"] * (gpus + 4)

    def assumptions(self):
        return []
