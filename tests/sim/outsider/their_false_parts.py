"""More parts of somebody outside the project that return or change what cannot be, one class each.

The first line of a docstring says what its class does. Each is run by tests/sim/laws/test_false_parts.py.
"""

from math import inf, nan

import numpy as np

from mezzotint.backends.base import Cost
from mezzotint.backends.profiled import Profiled
from mezzotint.sim.core.plan import HIT, UNPLANNED, WHOLE, Plan, Stage
from mezzotint.sim.execution.stages import Stages
from mezzotint.sim.frontend.cascade import Cascade
from mezzotint.sim.frontend.direct import Direct
from mezzotint.sim.protocols import Launch, StageCost
from mezzotint.traces.arrivals.base import Schedule

# -- group policies --------------------------------------------------------------------------------------------------


class First:
    """Launches the first waiting request on the first idle GPU, for all its steps."""

    def bind(self, run, view):
        self.run, self.view = run, view

    def decide(self, now_s):
        for progress, gpu in zip(list(self.view.waiting), self.view.idle(), strict=False):
            yield self.launch(progress, gpu)

    def launch(self, progress, gpu):
        return Launch(progress, (gpu,), progress.left)


class SetsLeft(First):
    """Leaves one step of every request."""

    def arrived(self, progress, now_s):
        progress.left = 1


class SetsStages(First):
    """Gives every request stages of its own."""

    def arrived(self, progress, now_s):
        progress.stages = (Stage(WHOLE, 1),)


class SetsGroup(First):
    """Moves a latent without moving it."""

    def at_boundary(self, progress, now_s):
        progress.group = None


class SetsView(First):
    """Says that moves are free."""

    def bind(self, run, view):
        super().bind(run, view)
        view.moves_are_free = True


class SetsClaims(First):
    """Frees a GPU that is claimed."""

    def decide(self, now_s):
        self.view.claimed[0] = 0
        return super().decide(now_s)


class PopsClaims(First):
    """Takes a GPU out of the cluster."""

    def decide(self, now_s):
        self.view.claimed.pop()
        return super().decide(now_s)


class ClearsWaiting(First):
    """Forgets who waits."""

    def decide(self, now_s):
        self.view.waiting.clear()
        return []


class EditsRequest(First):
    """Has a request of fewer steps."""

    def arrived(self, progress, now_s):
        progress.request.steps = 1


class HalfSteps(First):
    """Launches one and a half steps."""

    def launch(self, progress, gpu):
        return Launch(progress, (gpu,), 1.5)


class TrueSteps(First):
    """Launches True steps."""

    def launch(self, progress, gpu):
        return Launch(progress, (gpu,), True)


class ManySteps(First):
    """Launches more steps than are left."""

    def launch(self, progress, gpu):
        return Launch(progress, (gpu,), progress.left + 1)


class ZeroEvery(First):
    """Has boundaries every 0 steps."""

    def launch(self, progress, gpu):
        return Launch(progress, (gpu,), progress.left, every=0)


class NegativeEvery(First):
    """Has boundaries every -3 steps."""

    def launch(self, progress, gpu):
        return Launch(progress, (gpu,), progress.left, every=-3)


class YieldsText(First):
    """Yields if "no" is true."""

    def launch(self, progress, gpu):
        return Launch(progress, (gpu,), progress.left, yields="no")


class AbsentGpu(First):
    """Launches on GPU 77."""

    def launch(self, progress, gpu):
        return Launch(progress, (77,), progress.left)


class ListOfGpus(First):
    """Launches on a list."""

    def launch(self, progress, gpu):
        return Launch(progress, [gpu], progress.left)


class GpuTwice(First):
    """Launches on a GPU twice."""

    def launch(self, progress, gpu):
        return Launch(progress, (gpu, gpu), progress.left)


class BatchOfNone(First):
    """Launches with None."""

    def launch(self, progress, gpu):
        return Launch(progress, (gpu,), progress.left, batch=(None,))


class LaunchesNumber(First):
    """Decides on a number."""

    def launch(self, progress, gpu):
        return 5


class DecidesNone(First):
    """Decides on no launches at all, by None."""

    def decide(self, now_s):
        return None


class DecidesOne(First):
    """Decides on a number, where launches are expected."""

    def decide(self, now_s):
        return 1


class Again(First):
    """Launches a request that runs."""

    def decide(self, now_s):
        launches = list(super().decide(now_s))
        return launches + launches


class TicksInThePast(First):
    """Asks for a decision before the present."""

    def arrived(self, progress, now_s):
        self.view.decide_at(now_s - 5)


class TicksAtNoTime(First):
    """Asks for a decision at no time."""

    def arrived(self, progress, now_s):
        self.view.decide_at(nan)


class TicksForEver(First):
    """Asks for decisions at the present instant, for ever."""

    def decide(self, now_s):
        self.view.decide_at(now_s)
        return super().decide(now_s)


class DiscardsRunning(First):
    """Discards a request that runs."""

    def decide(self, now_s):
        for launch in super().decide(now_s):
            yield launch
            self.view.discard(launch.progress, "late")


# -- what a scheduler believes ---------------------------------------------------------------------------------------


class Believes:
    """Believes that a stage takes ``seconds`` a step."""

    are_exact = False
    seconds = 1.0

    def bind(self, run, cost):
        pass

    def cost(self, request, stage, degree, batch=1):
        return StageCost(0.0, self.seconds, 0.0, nan)


class BelievesNan(Believes):
    """Believes in no number of seconds."""

    seconds = nan


class BelievesInfinity(Believes):
    """Believes that a step never ends."""

    seconds = inf


class BelievesNegative(Believes):
    """Believes that a step takes less than no time."""

    seconds = -1.0


class BelievesNothing(Believes):
    """Believes that a step takes no time."""

    seconds = 0.0


class BelievesText(Believes):
    """Believes a word."""

    seconds = "long"


class BelievesCost(Believes):
    """Believes the cost of something else."""

    def cost(self, request, stage, degree, batch=1):
        return Cost(1.0)


class NegativeLatency:
    """Expects a step of less than no time."""

    def bind(self, run, executor, sizes):
        pass

    def step_s(self, model, counts):
        return -1.0


class NanLatency(NegativeLatency):
    """Expects a step of no number of seconds."""

    def step_s(self, model, counts):
        return nan


# -- executors of stages ---------------------------------------------------------------------------------------------


class NegativeMoves(Stages):
    """Moves a latent in less than no time."""

    moves_are_free = False

    def move_s(self, progress, group):
        return -1.0


class NanMoves(Stages):
    """Moves a latent in no number of seconds."""

    moves_are_free = False

    def move_s(self, progress, group):
        return nan


class FreeStages(Stages):
    """Runs every stage in no time."""

    def cost(self, request, stage, degree, batch=1):
        return StageCost(0.0, 0.0, 0.0, 100.0)


class NegativeAnswer(Stages):
    """Answers before the end."""

    def answer_s(self, request):
        return -1.0


class FewStages(Stages):
    """Gives every request one step."""

    def stages_of(self, request):
        return (Stage(WHOLE, 1),)


class NoDegree(Stages):
    """Runs a stage on at most no GPU."""

    def max_degree(self, request, stage, gpus):
        return 0


# -- front ends ------------------------------------------------------------------------------------------------------


class Plans(Direct):
    """Plans every request as ``plan`` says, from the 20th row on."""

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


class NeverPlans:
    """Plans nothing."""

    def bind(self, run):
        pass

    def admit(self, request, now_s):
        return 0.0


class PlansNothingLater(Plans):
    """Takes its plans back."""

    def plan(self, request):
        return UNPLANNED


class PlansNoModel(Plans):
    """Plans no model, and no artifact either."""

    def plan(self, request):
        return Plan(None)


class PlansUnknownModel(Plans):
    """Plans a model that the run does not have."""

    def plan(self, request):
        return Plan("dall-e")


class FromLater(Plans):
    """Starts from the image of a later row."""

    def plan(self, request):
        return self.hit(request.row + 5 if request.row < 50 else 0)


class FromItself(Plans):
    """Starts from its own image."""

    def plan(self, request):
        return self.hit(request.row)


class FromUnfinished(Plans):
    """Starts from the image of the row before, whether it is made or not."""

    def plan(self, request):
        return self.hit(request.row - 1)


class FromNowhere(Plans):
    """Starts from a row past the end."""

    def plan(self, request):
        return self.hit(10**6)


class SimilarSeven(Plans):
    """Has a match of similarity 7."""

    def plan(self, request):
        return self.hit(0, similarity=7.0)


class AgeNegative(Plans):
    """Has a match that will be made in 100 s."""

    def plan(self, request):
        return self.hit(0, age_s=-100.0)


class PlansFewStages(Plans):
    """Plans one step for a request of many."""

    def plan(self, request):
        return self._plan._replace(stages=(Stage(WHOLE, 1),))


class AdmitsNone(Plans):
    """Says nothing of the time that planning took."""

    took_s = None


class AdmitsNan(Plans):
    """Plans in no number of seconds."""

    took_s = nan


class AdmitsForEver(Plans):
    """Plans for ever."""

    took_s = inf


class AdmitsWord(Plans):
    """Plans in a word."""

    took_s = "soon"


class KeepsOne(Plans):
    """Keeps an image if 1 is true."""

    def completed(self, request):
        return 1


class EscalatesShare(Cascade):
    """Makes an image again to three tenths."""

    def escalates(self, request, now_s):
        return 0.3


class EscalatesNone(Cascade):
    """Does not say if an image is made again."""

    def escalates(self, request, now_s):
        return None


class JudgesBefore(Cascade):
    """Judges an image before it is made."""

    def judge_s(self, request):
        return -2.0


class SharesNan(Cascade):
    """Expects no share of images to be made again."""

    def escalated_share(self, threshold):
        return nan


# -- caches ----------------------------------------------------------------------------------------------------------


class SkipsHalf:
    """Skips half a step more."""

    of_steps, alpha, floor = 50, None, -1.0

    def skip(self, similarity):
        return 2.5


class SkipsNoSteps(SkipsHalf):
    """Has no steps to skip."""

    of_steps = "all"


class ExpectsSome:
    """Expects a match to four tenths."""

    def expects(self, row, now_s):
        return 0.4


class LongVectors:
    """Embeds every prompt as a vector of length 400."""

    name, dim = "long", 8

    def encode(self, prompts, progress):
        return np.full((len(prompts), 8), 400 / np.sqrt(8), np.float32)


class QuickCache:
    """Steps of a nanosecond."""

    def bind(self, run):
        pass

    def step_costs(self, active, count, step):
        return Quick(count)


class Quick:
    """A nanosecond a step."""

    longest_s = 1e-9

    def __init__(self, count):
        self.count = count

    def seconds(self, count):
        return 1e-9 * count

    def joules(self, count):
        return None

    def steps_by(self, elapsed_s):
        return min(self.count, int(elapsed_s / 1e-9) + 1)

    def reused(self, count):
        return [0.0]


class NanCache(QuickCache):
    """Steps of no number of seconds."""

    def step_costs(self, active, count, step):
        return Nan(count)


class Nan(Quick):
    """No number of seconds a step."""

    def seconds(self, count):
        return nan


# -- traffic ---------------------------------------------------------------------------------------------------------


class Arrives:
    """Requests arrive at ``times``."""

    def times(self, rows):
        return np.arange(rows, dtype=float)

    def schedule(self, own_clock_s, rng):
        return Schedule(self.times(len(own_clock_s)))


class MoreTimes(Arrives):
    """More requests arrive than the trace has."""

    def times(self, rows):
        return np.arange(rows + 10, dtype=float)


class ListOfTimes(Arrives):
    """Requests arrive at a list."""

    def times(self, rows):
        return [float(row) for row in range(rows)]


class WordsAsTimes(Arrives):
    """Requests arrive at words."""

    def times(self, rows):
        return np.array(["now"] * rows)


class NoSchedule(Arrives):
    """Nothing is said about arrivals."""

    def schedule(self, own_clock_s, rng):
        return None


class NoTrace:
    """A source of nothing."""

    def load(self, rng):
        return None


class DictionaryTrace:
    """A source of a dictionary."""

    def load(self, rng):
        return {"prompt": ["a cat"]}


class RaisingTrace:
    """A source with an error of its own."""

    def load(self, rng):
        raise KeyError("boom")


# -- controllers -----------------------------------------------------------------------------------------------------


class YieldsNumber:
    """Yields 5 to the clock."""

    def bind(self, run):
        self.run = run
        run.process(self.live())

    def live(self):
        yield self.run.clock.timeout(60)
        yield 5


class NoGenerator(YieldsNumber):
    """Starts a process that is none."""

    def bind(self, run):
        run.process(5)


class OrdersRoles(YieldsNumber):
    """Orders a GPU to another role."""

    def live(self):
        yield self.run.clock.timeout(60)
        self.run.cluster.change_role(self.run.cluster.workers[0], "large", self.run.clock.now)


class GivesAllBack(YieldsNumber):
    """Gives back every GPU."""

    def bind(self, run):
        super().bind(run)
        run.cluster.rent(run.cluster.gpus)

    def live(self):
        yield self.run.clock.timeout(60)
        for instance in range(self.run.cluster.gpus):
            self.run.cluster.give_back(instance, self.run.clock.now)


class Meddles:
    """Does ``act`` with each request that arrives."""

    def bind(self, run):
        self.run = run

    def arrived(self, request, now_s):
        self.act(request, now_s)


class SetsArrived(Meddles):
    """Counts arrivals twice."""

    def act(self, request, now_s):
        self.run.arrived += 1


class SetsHits(Meddles):
    """Counts hits that were none."""

    def act(self, request, now_s):
        self.run.hits += 1


class SetsDeadlines(Meddles):
    """Gives every request all the time of the world."""

    def act(self, request, now_s):
        self.run.workload.limit_s[request.row] = 1e9


class SetsModels(Meddles):
    """Removes a model."""

    def act(self, request, now_s):
        self.run.models["large"] = None


class Completes(Meddles):
    """Completes a request that it does not run."""

    def act(self, request, now_s):
        self.run.end(request)


class Requeues(Meddles):
    """Offers a request anew that was not lost."""

    def act(self, request, now_s):
        self.run.requeue(request)


class StopsClock(Meddles):
    """Stops the clock in mid-run."""

    def act(self, request, now_s):
        self.run.clock.stop()


class RecordsBusy(Meddles):
    """Records busy time of a GPU that another part uses."""

    def act(self, request, now_s):
        self.run.cluster.record_busy(self.run.cluster.workers[0], now_s, now_s, "serve")


class Releases(Meddles):
    """Releases a request of another part."""

    def act(self, request, now_s):
        self.run.cluster.release(self.run.cluster.workers[0])


class OrdersNobody(Meddles):
    """Orders a GPU to a role that no model has."""

    def act(self, request, now_s):
        self.run.cluster.change_role(self.run.cluster.workers[0], "nobody", now_s)


class GaugesText(Meddles):
    """Samples a word."""

    def bind(self, run):
        run.gauge("mood", lambda now_s: "good")

    def act(self, request, now_s):
        pass


class AssumesObject(GaugesText):
    """Assumes what no summary can hold."""

    def bind(self, run):
        run.assume("mood", object(), "a guess")


class WantsNan:
    """Wants no number of GPUs."""

    wish = nan

    def bind(self, run, instances):
        pass

    def arrived(self, request, now_s):
        pass

    def wanted(self, now_s):
        return self.wish


class WantsNegative(WantsNan):
    """Wants less than no GPU."""

    wish = -3.0


# -- backends --------------------------------------------------------------------------------------------------------


class NoneCost(Profiled):
    """A step costs nothing that could be said."""

    def steps(self, works, count=1):
        return None


class ZeroCost(Profiled):
    """A step takes no time."""

    def steps(self, works, count=1):
        super().steps(works, count)
        return Cost(0.0, 0.0)


class NegativeBegin(Profiled):
    """Encoding takes less than no time."""

    def begin(self, works):
        return Cost(-0.5)


class NanLoad(Profiled):
    """A model is loaded in no number of seconds."""

    def load(self, asset):
        return Cost(nan)


class HalfBytes(Profiled):
    """A model takes half a byte."""

    def bytes(self, asset):
        return 0.5


# -- executors of whole requests -------------------------------------------------------------------------------------


class Twice:
    """Serves two requests on a GPU at once, and forgets that it was busy."""

    max_batch = 2

    def bind(self, run):
        self.run = run

    def accept(self, worker, request):
        request.start_s = self.run.clock.now
        self.run.clock.at(request.start_s + 10, 0, self.done, (worker, request))

    def done(self, ended):
        worker, request = ended
        request.denoise_s = 10.0
        worker.busy_until_s = 0.0
        self.run.cluster.record_busy(worker, request.start_s, self.run.clock.now, "serve", None, 1, request.row)
        self.run.end(request)
        self.run.cluster.release(worker)


class Nanoseconds(Twice):
    """Runs all steps in a nanosecond."""

    max_batch = 1

    def accept(self, worker, request):
        request.start_s = self.run.clock.now
        self.run.clock.at(request.start_s + 1e-9, 0, self.done, (worker, request))

    def done(self, ended):
        worker, request = ended
        request.denoise_s = self.run.clock.now - request.start_s
        self.run.cluster.record_busy(worker, request.start_s, self.run.clock.now, "serve", None, 1, request.row)
        self.run.end(request)
        self.run.cluster.release(worker)
