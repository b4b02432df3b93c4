"""The profiled backend: seconds looked up in measured tables."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from backends.base import Asked, BackendError, Cost, Work
from backends.profile import Profile, find, shipped
from conf.assumption import Assumption


@dataclass(slots=True)
class Profiled:
    """Looks up what work costs on ``gpu`` in profile files named ``<gpu>_<model>.yaml``.

    Args:
        gpu: the kind of GPU, as the profile files spell it (``mi210``).
        extrapolate: ``error`` refuses a shape outside the measured grid; ``warn`` scales the nearest edge of
            the grid by pixels (and by batch), and says so in the summary.
        unpublished_load_s: seconds to load a model whose profile has no ``load_s``.
        folder: a folder of further profiles, which replace the shipped ones of the same model.

    Raises:
        BackendError: no profile for the GPU, or a folder or profile that cannot be read.
    """

    gpu: str
    extrapolate: Literal["error", "warn"] = "error"
    unpublished_load_s: float = 20.0
    folder: str | None = None
    live: bool = field(init=False, default=False)
    quality_basis: str | None = field(init=False, default=None)
    profiles: dict[str, Profile] = field(init=False)
    _costs: dict[tuple[str, int, int, int, int, bool], Cost] = field(init=False, default_factory=dict)
    _extrapolated: set[tuple[str, int, int]] = field(init=False, default_factory=set)
    _loads: set[str] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        if not self.unpublished_load_s >= 0:
            raise BackendError(f"unpublished_load_s: found {self.unpublished_load_s}, expected 0 or more seconds")
        folders = [shipped()]
        if self.folder is not None:
            if not Path(self.folder).is_dir():
                raise BackendError(f"{self.folder}: not a folder of profiles; name one or leave backend.folder null")
            folders.append(Path(self.folder))
        self.profiles = find(self.gpu, folders)

    def open(self, asked: Asked) -> None:
        """See Backend.open. A profile does not depend on the prompt."""

    def require(self, model: str) -> None:
        """See Backend.require."""
        if model in self.profiles:
            return
        there = ", ".join(sorted(self.profiles)) or "none yet"
        raise BackendError(
            f"no profile of {model} on {self.gpu} (profiles of {self.gpu}: {there}); choose another "
            "models= or cluster=, or measure one and name its folder with backend.folder"
        )

    def whole(self, work: Work) -> Cost:
        """See Backend.whole. N - K steps at batch 1, plus the text encoder, the VAE and post-processing."""
        key = (work.model, work.width, work.height, work.steps, work.skipped, work.refine)
        cost = self._costs.get(key)
        if cost is None:
            cost = self._costs[key] = self._whole(work)
        return cost

    def _whole(self, work: Work) -> Cost:
        step_s = self.seconds("step", work.model, work.width, work.height)
        other_s = self.seconds("text_encode", work.model, work.width, work.height)
        other_s += self.seconds("vae_decode", work.model, work.width, work.height)
        if work.refine:
            other_s += self.seconds("vae_encode", work.model, work.width, work.height)
        return Cost(denoise_s=step_s * (work.steps - work.skipped), other_s=other_s)

    def seconds(self, operation: str, model: str, width: int, height: int, batch: int = 1) -> float:
        """Seconds of one ``operation`` (step, text_encode, vae_encode, vae_decode) of a batch of one shape.

        An operation that the profile did not measure apart costs nothing here: profiles quoted from papers
        hold it inside the step time. Raises BackendError outside the grid unless ``extrapolate`` is ``warn``.
        """
        self.require(model)
        table = self.profiles[model].tables.get(operation)
        if table is None:
            return 0.0
        pixels = 1 if operation == "text_encode" else width * height
        if not table.covers(pixels, batch):
            if self.extrapolate == "error":
                raise BackendError(
                    f"profile of {model} on {self.gpu}: {operation} at {width}x{height} ({pixels} pixels), "
                    f"batch {batch} is outside the measured grid ({table.grid()}); use shapes=model, measure "
                    "that size, or allow it with extrapolate=warn"
                )
            self._extrapolated.add((model, width, height))
        return table.seconds(pixels, batch)

    def load_s(self, model: str) -> float:
        """See Backend.load_s."""
        self.require(model)
        measured = self.profiles[model].load_s
        if measured is not None:
            return measured
        self._loads.add(model)
        return self.unpublished_load_s

    def assumptions(self) -> list[Assumption]:
        """See Backend.assumptions."""
        said = [
            Assumption(f"step time of {name} on {self.gpu}", _range(self.profiles[name]), self.profiles[name].source)
            for name in sorted({key[0] for key in self._costs})
        ]
        said += [
            Assumption(
                f"load time of {model} on {self.gpu} [s]",
                self.unpublished_load_s,
                "nobody published it; a setting",
            )
            for model in sorted(self._loads)
        ]
        said += [
            Assumption(
                f"sizes whose step time of {model} on {self.gpu} is extrapolated",
                sum(name == model for name, _, _ in self._extrapolated),
                "outside the measured grid; the grid's edge scaled by pixels (extrapolate=warn)",
            )
            for model in sorted({name for name, _, _ in self._extrapolated})
        ]
        return said


def _range(profile: Profile) -> str:
    seconds = [point.seconds for point in profile.step]
    low, high = min(seconds), max(seconds)
    return f"{low:g} s" if low == high else f"{low:g} to {high:g} s over {len(seconds)} shapes"
