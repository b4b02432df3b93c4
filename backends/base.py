"""The backend protocol: shapes in, seconds (and, if live, tensors) out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from conf.assumption import Assumption


class BackendError(ValueError):
    """A profile or a live pipeline cannot answer: the message names the file, the key and the remedy."""


class WorkFailed(RuntimeError):
    """One piece of work could not be done (memory ran out, say); others may be. The text is the reason."""


@dataclass(slots=True)
class Work:
    """One request as a worker runs it: which model, which shape, from which step.

    ``steps`` is the full number N and ``skipped`` is K, so that N - K steps are run. ``row`` is the request's
    row in the trace. ``refine`` says that the artifact it starts from is a final image, which must be encoded
    and noised before the remaining steps (MoDM, 5), rather than a latent, which is used as it is (NIRVANA, 4).
    A live backend starts from ``artifact`` and keeps, by name, the latents after the steps in ``capture``;
    with ``capture`` None it keeps the final image.
    """

    model: str
    width: int
    height: int
    steps: int
    skipped: int = 0
    row: int = -1
    refine: bool = False
    artifact: Any = None
    capture: Mapping[int, int] | None = None


@dataclass(slots=True)
class Cost:
    """What the work took.

    ``denoise_s`` is the N - K steps; ``other_s`` is everything else on the GPU: text encoding, VAE encoding
    of an artifact, VAE decoding and post-processing. ``energy_j`` is None where the backend measures no
    power. ``artifact`` is what a live backend kept (see Work.capture), ``quality`` the factor by which the
    image falls short of the full run's, if it measures that.
    """

    denoise_s: float
    other_s: float
    energy_j: float | None = None
    artifact: Any = None
    quality: float | None = None


class Asked(Protocol):
    """What the rows of the trace ask for, for a backend that really makes the images."""

    def prompt(self, row: int) -> str: ...

    def seed(self, row: int) -> int: ...


@runtime_checkable
class Backend(Protocol):
    """What a step costs on one kind of GPU.

    ``live`` says that artifacts are made, and so must be there before they can be reused; ``quality_basis``
    names what ``Cost.quality`` is measured by, None where it is not.
    """

    live: bool
    quality_basis: str | None

    def open(self, asked: Asked) -> None:
        """Take what the rows ask for, once, before anything runs."""

    def require(self, model: str) -> None:
        """Say now, before a long run starts, whether ``model`` can be served.

        Raises BackendError naming the GPU, the model and the models that are there.
        """

    def whole(self, work: Work) -> Cost:
        """Run one request from step K to the image, alone on the GPU.

        Raises BackendError when the shape is outside what was measured, WorkFailed when this one could not
        be done.
        """

    def load_s(self, model: str) -> float:
        """Seconds to put ``model`` on a GPU in place of another."""

    def assumptions(self) -> list[Assumption]:
        """What the answers given so far rest on besides the measured tables."""
