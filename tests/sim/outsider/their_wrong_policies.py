"""Mistakes of policies: each must end its run with an error that names the policy and its mistake."""

from collections import deque

from mezzotint.sim.core.clock import COMPLETION


class OverfullBatcher:
    """Declares four requests at once, and releases every request on arrival but still runs it."""

    max_batch = 4

    def bind(self, run):
        self.run, self.running = run, []

    def accept(self, worker, request):
        self.running.append(request)
        self.run.cluster.release(worker)
        if len(self.running) == 90:
            self.run.clock.at(self.run.clock.now + 1.0, COMPLETION, self.done, (worker, self.run.clock.now))

    def done(self, what):
        worker, from_s = what
        self.run.cluster.record_busy(worker, from_s, self.run.clock.now, "steps", batch=len(self.running))


class TwoAtOnce:
    """Runs every request at once, whatever else runs on the worker."""

    max_batch = 2

    def bind(self, run):
        self.run = run

    def accept(self, worker, request):
        self.run.clock.at(self.run.clock.now + 10.0, COMPLETION, self.done, (worker, request, self.run.clock.now))

    def done(self, what):
        worker, request, from_s = what
        self.run.cluster.record_busy(worker, from_s, self.run.clock.now, "serve")
        self.run.end(request)
        self.run.cluster.release(worker)


class OneForAll:
    """Offers the first worker, busy or not."""

    def bind(self, run):
        self.run = run

    def offer(self, request, now_s):
        return self.run.cluster.workers[0]

    def next(self, worker, now_s):
        return None

    def worker_changed(self, worker, now_s):
        pass

    def __len__(self):
        return 0


class RoleSetter:
    """Changes a worker's role without the cluster."""

    def bind(self, run):
        self.run = run
        run.process(self.act())

    def arrived(self, request, now_s):
        pass

    def act(self):
        yield self.run.clock.timeout(60.0)
        self.run.cluster.workers[0].role = "small"


class WrongVictims:
    """Names items that are not in the cache."""

    def bind(self, run, similarity, selector):
        self.items = deque()

    def added(self, entry, ks, row):
        self.items.extend((entry + 10**6) << 14 | k for k in ks)

    def used(self, item):
        pass

    def victims(self, count):
        return [self.items.popleft() for _ in range(count)]


class TooFewVictims(WrongVictims):
    """Names fewer items than must go."""

    def victims(self, count):
        return []


class Hoarder(OneForAll):
    """Keeps every request, beside a controller that never ends."""

    def offer(self, request, now_s):
        return None

    def __len__(self):
        return 7
