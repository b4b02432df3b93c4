"""The backend protocol: shapes in, seconds (and, if live, tensors) out."""

from dataclasses import dataclass
from typing import Any, Protocol


class BackendError(ValueError):
    """A profile or a live pipeline cannot answer: the message names the file, the key and the remedy."""


@dataclass(slots=True)
class Work:
    """One request as a worker runs it: which model, which shape, from which step.

    ``steps`` is the full number N and ``skipped`` is K, so that N - K steps are run. ``row`` and
    ``source_row`` are rows of the trace: the request itself and the one whose artifact it starts from
    (-1 for none). ``refine`` says that the artifact is a final image, which must be encoded and noised
    before the remaining steps (MoDM, 5), rather than a latent, which is used as it is (NIRVANA, 4).
    """

    model: str
    width: int
    height: int
    steps: int
    skipped: int = 0
    row: int = -1
    source_row: int = -1
    refine: bool = False


@dataclass(slots=True)
class Cost:
    """What the work took.

    ``denoise_s`` is the N - K steps; ``other_s`` is everything else on the GPU: text encoding, VAE encoding
    of an artifact, VAE decoding and post-processing. ``energy_j`` is None where the backend measures no
    power. ``artifact`` is what the live backend made (tensors), None elsewhere.
    """

    denoise_s: float
    other_s: float
    energy_j: float | None = None
    artifact: Any = None


@dataclass(frozen=True, slots=True)
class Assumption:
    """Something that a result rests on and that nobody measured: shown in every summary."""

    what: str
    value: Any
    source: str


class Backend(Protocol):
    """What a step costs on one kind of GPU."""

    def require(self, model: str) -> None:
        """Say now, before a long run starts, whether ``model`` can be served.

        Raises BackendError naming the GPU, the model and the models that are there.
        """

    def whole(self, work: Work) -> Cost:
        """Run one request from step K to the image, alone on the GPU.

        Raises BackendError when the shape is outside what was measured.
        """

    def load_s(self, model: str) -> float:
        """Seconds to put ``model`` on a GPU in place of another."""

    def assumptions(self) -> list[Assumption]:
        """What the answers given so far rest on besides the measured tables."""
