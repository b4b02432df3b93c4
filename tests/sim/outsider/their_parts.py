"""A part of each kind as somebody outside the project would write it: true, until a test replaces a method of it."""

from collections import deque
from math import nan

import numpy as np

from mezzotint.backends.base import Cost
from mezzotint.sim.core.clock import COMPLETION
from mezzotint.sim.core.plan import HIT
from mezzotint.sim.frontend.direct import Direct
from mezzotint.sim.protocols import Launch, StageCost
from mezzotint.traces.arrivals.base import Schedule
from mezzotint.traces.table.trace import make


class Executor:
    """Runs a request for ``took_s``, as it says."""

    max_batch, took_s = 1, 10.0

    def bind(self, run):
        self.run, self.cluster = run, run.cluster

    def accept(self, worker, request):
        request.start_s = self.run.clock.now
        self.run.clock.at(request.start_s + self.took_s, COMPLETION, self.done, (worker, request))

    def done(self, what):
        worker, request = what
        request.denoise_s = self.run.clock.now - request.start_s
        self.record(worker, request.start_s, self.run.clock.now)
        self.end(request)
        self.release(worker)

    def record(self, worker, from_s, until_s):
        self.cluster.record_busy(worker, from_s, until_s, "serve")

    def end(self, request):
        self.run.end(request)

    def release(self, worker):
        self.cluster.release(worker)


class Scheduler:
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

    def __len__(self):
        return len(self.waiting)


class Discipline:
    """Serves each worker's requests in the order in which they came."""

    def bind(self, run):
        self.queues, self.came = {worker: [] for worker in run.cluster.workers}, []

    def add(self, worker, request, now_s):
        self.queues[worker].append(request)

    def next(self, worker, now_s):
        return self.queues[worker].pop(0) if self.queues[worker] else None

    def leave(self, worker):
        left, self.queues[worker] = self.queues[worker], []
        return left

    def __len__(self):
        return sum(map(len, self.queues.values()))


class Client:
    """Sends each request as it is due, once."""

    max_tries, gives_up, cancellation = 1, False, "never"

    def bind(self, run, sender):
        self.run, self.sender = run, sender

    def due(self, row, now_s):
        self.sender.send(self.sender.make(row))

    def ended(self, request, outcome, now_s):
        self.sender.send_next()


class Controller:
    """Acts once, after a minute."""

    def bind(self, run):
        self.run, self.cluster, self.clock = run, run.cluster, run.clock
        run.process(self.live())

    def live(self):
        yield self.clock.timeout(60)
        self.act(self.cluster.workers)

    def act(self, workers):
        pass


class Rule:
    """Wants two GPUs."""

    def bind(self, run, instances):
        pass

    def arrived(self, request, now_s):
        pass

    def wanted(self, now_s):
        return 2.0


class Steps:
    """Every step takes ``step_cost``."""

    step_cost = Cost(0.1, 1.0)

    def bind(self, run, cut):
        self.run = run

    def prepare(self, worker, request, now_s):
        return Cost(0.0, 0.0)

    def step(self, worker, active, now_s):
        return self.step_cost

    def finish(self, worker, request, now_s):
        return Cost(0.0, 0.0), Cost(0.0, 0.0)


class FeatureCache:
    """Reuses nothing: each step takes ``step_s``."""

    step_s = 0.1

    def bind(self, run):
        pass

    def step_costs(self, active, count, step):
        return StepCosts(count, self.step_s, len(active))


class StepCosts:
    """Steps of ``longest_s`` each, which reuse nothing."""

    def __init__(self, count, longest_s, requests):
        self.count, self.longest_s, self.requests = count, longest_s, requests

    def seconds(self, count):
        return self.longest_s * count

    def joules(self, count):
        return None

    def steps_by(self, elapsed_s):
        return min(self.count, int(elapsed_s / self.longest_s) + 1)

    def reused(self, count):
        return [0.0] * self.requests


class GroupPolicy:
    """Launches the first waiting request on the first idle GPU, for all its steps."""

    def bind(self, run, view):
        self.run, self.view = run, view

    def decide(self, now_s):
        for progress, gpu in zip(list(self.view.waiting), self.view.idle(), strict=False):
            yield self.launch(progress, gpu)

    def launch(self, progress, gpu):
        return Launch(progress, (gpu,), progress.left)


class Estimates:
    """Believes that a stage takes ``seconds`` a step."""

    are_exact, seconds = False, 1.0

    def bind(self, run, cost):
        pass

    def cost(self, request, stage, degree, others=()):
        return StageCost(0.0, self.seconds, 0.0, nan)


class LatencyPredictor:
    """Expects a hundredth of a second for every step."""

    def bind(self, run, executor, sizes):
        pass

    def step_s(self, model, counts):
        return 0.01


class FrontEnd(Direct):
    """Plans every request as ``plan`` says, from row 20 on."""

    took_s: object = 0.0

    def admit(self, request, now_s):
        super().admit(request, now_s)
        if request.row >= 20:
            self._run.assign(request, self.plan(request))
        return self.took_s

    def plan(self, request):
        return self._plan

    def hit(self, source, similarity=0.5, age_s=1.0):
        changes = {"source": source, "similarity": similarity, "source_age_s": age_s}
        return self._plan._replace(k=5, of_steps=50, lookup=HIT, **changes)


class Eviction:
    """Evicts the newest."""

    def bind(self, run, similarity, selector):
        self.items = []

    def added(self, entry, ks, row):
        self.items += [entry << 14 | k for k in ks]

    def victims(self, count):
        return [self.items.pop() for _ in range(count)]


class Admission:
    """Admits everything."""

    def admits(self, request):
        return True


class Selector:
    """Skips five steps, however similar an artifact is."""

    of_steps, alpha, floor = 50, None, -1.0

    def skip(self, similarity):
        return 5


class Router:
    """Sends every request to the first worker."""

    def choose(self, request, workers, now_s):
        return workers[0]


class Allocation:
    """Has the large model on all GPUs."""

    def roles(self, gpus, models, backend):
        return ["large"] * gpus


class Delay:
    """Takes up to a second."""

    def draw(self, rng, count):
        return rng.random(count)


class Encoder:
    """Embeds every prompt alike."""

    name, dim = "alike", 8

    def encode(self, prompts, progress):
        return np.full((len(prompts), self.dim), 1 / np.sqrt(self.dim), np.float32)


class Arrivals:
    """One request a second."""

    def schedule(self, own_clock_s, rng):
        return Schedule(np.arange(len(own_clock_s), dtype=float))


class Source:
    """A trace of ten cats."""

    def load(self, rng):
        return make(
            {"request_id": [*"abcdefghij"], "arrival_s": range(10), "prompt": ["a cat"] * 10},
            name="cats",
            source="made up",
        )


class MatchPredictor:
    """Expects a match for every prompt."""

    def expects(self, row, now_s):
        return True
