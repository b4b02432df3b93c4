"""Policies as a user outside the project would write them: one class each, and one YAML file in their_conf/."""

from collections import deque

from mezzotint.sim.core.clock import COMPLETION, CONTROL
from mezzotint.sim.core.plan import Plan, Stage
from mezzotint.sim.protocols import FREE, NOBODY, Cost, Launch, Stand, Steps


class StepBatcher:
    """Steps up to ``max_batch`` requests together in ``first_s``, plus ``more_s`` for each but the first."""

    def __init__(self, limit: int = 4, first_s: float = 1.0, more_s: float = 0.5):
        self.max_batch, self.first_s, self.more_s = limit, first_s, more_s

    def bind(self, run):
        self.run, self.active, self.stepping = run, {}, set()

    def accept(self, worker, request):
        request.worker, request.start_s = worker.id, self.run.clock.now
        self.active.setdefault(worker.id, []).append(request)
        if worker.id not in self.stepping:
            self.step(worker)

    def step(self, worker):
        self.stepping.add(worker.id)
        batch, now_s = list(self.active[worker.id]), self.run.clock.now
        seconds = self.first_s + self.more_s * (len(batch) - 1)
        self.run.clock.at(now_s + seconds, COMPLETION, self.stepped, (worker, batch, now_s))

    def stepped(self, what):
        worker, batch, from_s = what
        now_s, cluster = self.run.clock.now, self.run.cluster
        joules = cluster.record_busy(worker, from_s, now_s, "steps", batch=len(batch))
        for request in batch:
            request.steps_left -= 1
            request.energy_j += joules / len(batch)
            request.denoise_s += now_s - from_s
        for request in [request for request in batch if request.steps_left == 0]:
            self.active[worker.id].remove(request)
            self.run.end(request)
            cluster.release(worker)
        self.stepping.remove(worker.id)
        if self.active[worker.id]:
            self.step(worker)


class BatchingServer:
    """Runs up to ``max_batch`` requests at once as soon as so many wait, or ``max_wait_s`` after the first arrived."""

    def __init__(self, limit: int = 8, wait_s: float = 5.0, batch_s: float = 10.0):
        self.max_batch, self.max_wait_s, self.batch_s = limit, wait_s, batch_s

    def bind(self, run):
        self.run, self.formed = run, {}
        self.batch_mean = run.add_column("batch_mean")

    def accept(self, worker, request):
        batch = self.formed.setdefault(worker.id, [])
        batch.append(request)
        if len(batch) == self.max_batch:
            self.start((worker, batch))
        elif len(batch) == 1:
            self.run.clock.at(self.run.clock.now + self.max_wait_s, CONTROL, self.start, (worker, batch))

    def start(self, what):
        worker, batch = what
        if self.formed.get(worker.id) is batch:  # it has not started yet
            del self.formed[worker.id]
            self.run.cluster.close(worker)
            now_s = self.run.clock.now
            self.run.clock.at(now_s + self.batch_s, COMPLETION, self.done, (worker, batch, now_s))

    def done(self, what):
        worker, batch, from_s = what
        joules = self.run.cluster.record_busy(worker, from_s, self.run.clock.now, "serve", batch=len(batch))
        self.run.cluster.reopen(worker)
        for request in batch:
            request.worker, request.start_s, self.batch_mean[request.row] = worker.id, from_s, len(batch)
            request.denoise_s, request.energy_j = self.batch_s, joules / len(batch)
            self.run.end(request)
        self.run.cluster.release(worker, len(batch))


class RoleFlipper:
    """Every minute the worker with the fewest active requests changes to the other role."""

    def __init__(self, period_s: float = 60.0):
        self.period_s = period_s

    def bind(self, run):
        self.run = run
        run.process(self.flip())

    def arrived(self, request, now_s):
        pass

    def flip(self):
        cluster = self.run.cluster
        while True:
            yield self.run.clock.timeout(self.period_s)
            roles = [worker.role for worker in cluster.workers]
            worker = min(cluster.workers, key=lambda worker: (worker.running, worker.id))
            other = "small" if worker.role == "large" else "large"
            if roles.count(worker.role) > 1:
                cluster.change_role(worker, other, self.run.clock.now)


class SecondChance:
    """The oldest item goes, unless it was used since its last turn: then it moves to the end."""

    def bind(self, run, similarity, selector):
        self.items, self.touched = deque(), set()

    def added(self, entry, ks, row):
        self.items.extend(entry << 14 | k for k in ks)

    def used(self, item):
        self.touched.add(item)

    def victims(self, count):
        gone = []
        while len(gone) < count:
            item = self.items.popleft()
            if item in self.touched:
                self.touched.remove(item)
                self.items.append(item)
            else:
                gone.append(item)
        return gone


class ShortestFirst:
    """The waiting request with the fewest steps left runs next."""

    def __init__(self, longest: int = 1000):
        self.longest = longest

    def bind(self, run):
        self.cluster, self.waiting = run.cluster, []

    def offer(self, request, now_s):
        worker = self.cluster.least_loaded()
        if worker is None:
            self.waiting.append(request)
        return worker

    def next(self, worker, now_s):
        if not self.waiting:
            return None
        shortest = min(self.waiting, key=lambda request: request.steps_left)
        self.waiting.remove(shortest)
        return shortest

    def worker_changed(self, worker, now_s):
        pass

    def __len__(self):
        return len(self.waiting)


class WidenLate:
    """One GPU a request, in order of arrival. GPUs that are left over widen the requests that would be late."""

    follows_gpus = True

    def bind(self, run, view):
        self.view = view

    def latest_s(self, progress, degree):
        """Return the last instant at which ``progress`` is still in time on ``degree`` GPUs."""
        return progress.request.deadline_s - self.view.remaining_s(progress, degree)

    def decide(self, now_s):
        idle, gpus = self.view.idle(), {}
        for progress in sorted(self.view.waiting, key=lambda waiting: waiting.submission_index)[: len(idle)]:
            last = progress.group.gpus[0] if progress.group else None
            idle.remove(gpu := last if last in idle else idle[0])
            gpus[progress] = [gpu]
        for progress in gpus:
            degrees = [degree for degree in self.view.degrees(progress) if degree <= 1 + len(idle)]
            in_time = [degree for degree in degrees if now_s <= self.latest_s(progress, degree)]
            more = min(in_time, default=max(degrees)) - 1
            gpus[progress] += idle[:more]
            del idle[:more]
        return [Launch(progress, tuple(group)) for progress, group in gpus.items()]


class WidenLateAhead(WidenLate):
    """The same. A request on one GPU stays there while it is in time, and later while no other GPU is idle."""

    def stands(self, progress, gpus, begin_s):
        steps, rank = progress.left if len(gpus) == 1 else 1, (progress.submission_index,)
        latest_s = self.latest_s(progress, 1)
        return Stand(steps, rank, until_s=latest_s) if begin_s < latest_s else Stand(steps, rank, idle=0)

    def first_waiting(self):
        return min(((waiting.submission_index,) for waiting in self.view.waiting), default=NOBODY)


class SecondOpinion:
    """The small model answers; every n-th image is made again by the large one."""

    def __init__(self, every: int = 3, judge_s: float = 0.5):
        self.every, self.seconds, self.count = every, judge_s, 0

    def bind(self, run):
        self.run, small, large = run, run.model("small"), run.model("large")
        self.plan = Plan(small.name, then=Plan(large.name))
        run.attempts()

    def admit(self, request, now_s):
        self.run.assign(request, self.plan)
        return 0.0

    def judge_s(self, request):
        return self.seconds

    def escalates(self, request, now_s):
        self.count += 1
        return self.count % self.every == 0


class ThreeStages:
    """Plans text encoder, denoiser and, from request ``upscale_from`` on, an upscaler in place of the VAE."""

    def __init__(self, upscale_from: int = 2):
        self.upscale_from = upscale_from

    def bind(self, run):
        self.run, self.model = run, run.model("large")

    def admit(self, request, now_s):
        stages = [Stage("text-encoder", max_degree=1), Stage("denoiser", request.steps)]
        if request.row >= self.upscale_from:
            stages.append(Stage("upscaler", max_degree=1))
        self.run.assign(request, Plan(self.model.name, stages=(*stages,)))
        return 0.0

    def completed(self, request):
        return False


class LinearSteps(Steps):
    """A step takes ``base_s`` and ``s_per_megapixel`` for each megapixel of its batch, at ``watts``; decoding 2 s."""

    def __init__(self, base_s: float = 0.1, s_per_megapixel: float = 0.5, watts: float = 100.0):
        self.base_s, self.s_per_megapixel, self.watts = base_s, s_per_megapixel, watts

    def bind(self, run, interrupt):
        run.assume("seconds of a step", self.s_per_megapixel, "linear in pixels; made up")

    def prepare(self, worker, request, now_s):
        return FREE

    def step(self, worker, active, now_s):
        megapixels = sum(request.width * request.height for request in active) / 2**20
        seconds = self.base_s + self.s_per_megapixel * megapixels
        return Cost(seconds, self.watts * seconds)

    def finish(self, worker, request, now_s):
        return Cost(2.0), FREE
