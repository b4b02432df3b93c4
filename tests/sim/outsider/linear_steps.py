"""A step cost model of an outsider, from mezzotint.sim.protocols alone: a step takes time by its pixels."""

from collections.abc import Callable, Sequence

from mezzotint.sim.protocols import FREE, Cost, Request, Run, Steps, Worker


class LinearSteps(Steps):
    """Every step takes ``base_s`` and ``s_per_megapixel`` for each megapixel of the batch; decoding takes ``decode_s``.

    Args:
        watts: power of the GPU in a step; None takes that of the cluster's kind of GPU.
    """

    def __init__(
        self, base_s: float = 0.1, s_per_megapixel: float = 0.5, decode_s: float = 2.0, watts: float | None = None
    ) -> None:
        self.base_s, self.s_per_megapixel, self.decode_s, self.watts = base_s, s_per_megapixel, decode_s, watts

    def bind(self, run: Run, interrupt: Callable[[Worker], None]) -> None:
        run.assume("seconds of a step", self.s_per_megapixel, "linear in pixels; made up")

    def prepare(self, worker: Worker, request: Request, now_s: float) -> Cost:
        return FREE

    def step(self, worker: Worker, active: Sequence[Request], now_s: float) -> Cost:
        megapixels = sum(request.width * request.height for request in active) / 2**20
        seconds = self.base_s + self.s_per_megapixel * megapixels
        return Cost(seconds, None if self.watts is None else self.watts * seconds)

    def finish(self, worker: Worker, request: Request, now_s: float) -> tuple[Cost, Cost]:
        return Cost(self.decode_s), FREE
