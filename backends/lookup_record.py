"""A record of the look-ups in profiles, and the assumptions that a summary states for them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from mezzotint.backends.base import size_text
from mezzotint.backends.profile import Profile
from mezzotint.settings.assumption import EXTRAPOLATED, UNMEASURED, Assumption

CFG_EVALUATIONS = 2.0
"""Evaluations of the denoiser in a step with classifier-free guidance, over those without it."""


class Where(NamedTuple):
    """A batch of one model and size in a table; ``frames`` are those of a video."""

    model: str
    width: int
    height: int
    batch: int = 1
    frames: int = 1


@dataclass(slots=True)
class LookupRecord:
    """Look-ups so far that rest on an assumption or a source.

    Attributes:
        stepped: models that ran a step.
        components: (model, component) of other stages that ran.
        patched: models that ran a step of patches.
        unpublished_loads: models loaded without a published load time.
        between: (model, number of inline ControlNets) that were interpolated.
        extrapolated: batches outside the measured grid.
        near: batches whose pixels are just outside the measured grid.
        grouped: (model, GPUs, largest batch measured on them) of larger batches on groups.
        in_turn: (model, stage, largest measured batch) of batches beyond that.
        guided: models and ``Work.cfg`` of requests with other guidance than the seconds are for.
        unencoded: models whose input images took no time to encode.
        untimed: (model, stage) of stages without a time, which cost nothing.
        mixed: True if a batch had works of several shapes.
    """

    stepped: set[str] = field(default_factory=set)
    components: set[tuple[str, str]] = field(default_factory=set)
    patched: set[str] = field(default_factory=set)
    unpublished_loads: set[str] = field(default_factory=set)
    between: set[tuple[str, int]] = field(default_factory=set)
    extrapolated: set[Where] = field(default_factory=set)
    near: set[Where] = field(default_factory=set)
    grouped: set[tuple[str, int, int]] = field(default_factory=set)
    in_turn: set[tuple[str, str, int]] = field(default_factory=set)
    guided: set[tuple[str, bool]] = field(default_factory=set)
    unencoded: set[str] = field(default_factory=set)
    untimed: set[tuple[str, str]] = field(default_factory=set)
    mixed: bool = False

    def of_profiles(self, profiles: Mapping[str, Profile]) -> "LookupRecord":
        """Return this record with the profile's own model in place of each that costs as it (Backend.alias)."""

        def own(entry: Any) -> Any:
            if isinstance(entry, str):
                return profiles[entry].model
            return entry._replace(model=own(entry.model)) if isinstance(entry, Where) else (own(entry[0]), *entry[1:])

        named: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        for name, found in named.items():
            if isinstance(found, set):
                named[name] = set(map(own, found))
        return LookupRecord(**named)

    def assumptions(  # noqa: C901 - one sentence after another, in the order of the summary
        self, gpu: str, profiles: Mapping[str, Profile], service_factor: float, unpublished_load_s: float
    ) -> Iterator[Assumption]:
        used = {name: profiles[name] for name in sorted(self.stepped)}
        for name, profile in used.items():
            yield Assumption(f"step time of {name} on {gpu}", _range(profile), profile.source)
        for name, profile in used.items():
            for point in profile.step:
                if point.source is not None:
                    what = f"step time of {name} on {gpu} at {size_text(*point.size)} in batches of {point.batch} [s]"
                    yield Assumption(what, point.seconds, point.source)
        for name, component in sorted(self.components):
            for point in profiles[name].component:
                if point.component == component and point.source is not None:
                    size, batch = size_text(*point.size), point.batch
                    what = f"{component} step of {name} on {gpu} at {size} in batches of {batch} [s]"
                    yield Assumption(what, point.seconds, point.source)
        for name, profile in used.items():
            if (basis := _energy(profile)) is not None:
                yield Assumption(f"energy of {name} on {gpu}", basis, profile.source)
        for name in sorted(self.patched):
            timing = profiles[name].patched
            assert timing is not None
            patches = f"{timing.base_s:g} s + {timing.patch_s:g} s a patch of {timing.side} px"
            basis = f"{patches} + {timing.size_s:g} s a further size + {timing.halo_s:g} s a border"
            yield Assumption(f"step of a batch of patches of {name} on {gpu}", basis, timing.source)
        if service_factor != 1.0 and used:
            yield Assumption("seconds of all stages, times", service_factor, "backend.service_factor")
        for name in sorted(self.unpublished_loads):
            what = f"load time of {name} on {gpu} [s]"
            yield Assumption(what, unpublished_load_s, "nobody published it; a setting")
        for name, nets in sorted(self.between):
            beyond = f" {EXTRAPOLATED}" if nets > max(profiles[name].controlnet_tables) else ""
            source = f"this number was not measured; as many ControlNets in line take as many times as long{beyond}"
            value = "between those of fewer and of more, or in proportion"
            yield Assumption(f"extra time of {nets} ControlNets in line of {name} on {gpu}", value, source)
        for name, profile in used.items():
            if profile.scatter is not None:
                one = "one factor for each request, drawn from the run's seed"
                yield Assumption(f"scatter of the seconds of {name} on {gpu}", one, profile.source)
        for name, gpus, largest in sorted(self.grouped):
            what = f"step of {name} on {gpus} GPUs of {gpu} in batches above {largest}, the largest measured"
            yield Assumption(what, f"as much faster than on one GPU as in batches of {largest}", "assumed")
        for name, stage, largest in sorted(self.in_turn):
            what = f"seconds of {stage} of {name} on {gpu} in batches above {largest}, the largest measured"
            source = "not measured; the images one after another, an upper bound"
            if stage == "step":
                source = f"the images of a request one after another, an upper bound {UNMEASURED}"
            yield Assumption(what, "in proportion to the images", source)
        for name, cfg in sorted(self.guided):
            guidance = profiles[name].guidance
            what = f"seconds of a step of {name} on {gpu} with classifier-free guidance over those without"
            if guidance is not None and guidance.factor is not None:
                yield Assumption(what, guidance.factor, guidance.source or profiles[name].source)
            else:
                source = f"evaluations of the denoiser; its profile gives no factor {UNMEASURED}"
                yield Assumption(what, CFG_EVALUATIONS, source)
            if guidance is None:
                what = f"what the seconds of {name} on {gpu} are for"
                value = f"{'without' if cfg else 'with'} classifier-free guidance"
                yield Assumption(what, value, f"its profile does not say so (guidance.cfg) {UNMEASURED}")
        for name in sorted(self.unencoded):
            what = f"seconds to encode an input image of {name} on {gpu}"
            yield Assumption(what, 0, f"its profile has no vae_encode {UNMEASURED}")
        for name in used:
            if stages := sorted(stage for model, stage in self.untimed if model == name):
                source = "its profile has no times of them; what is not inside its step is counted as 0 s"
                yield Assumption(f"stages of {name} on {gpu} without a time of their own", stages, source)
        if self.mixed:
            what = "a batch of several sizes or numbers of ControlNets"
            yield Assumption(what, "a batch for each, one after another", "images of different sizes share no tensor")
        outside = "outside the measured grid; the grid's edge scaled by pixels"
        for name in sorted({where.model for where in self.near}):
            sizes = sorted({size_text(at.width, at.height, at.frames) for at in self.near if at.model == name})
            yield Assumption(f"sizes at the edge of the measured times of {name} on {gpu}", sizes, f"just {outside}")
        for name in sorted({where.model for where in self.extrapolated}):
            batches = [where.batch for where in self.extrapolated if where.model == name]
            if alone := batches.count(1):
                what = f"sizes whose step time of {name} on {gpu} is extrapolated"
                yield Assumption(what, alone, f"{outside} {EXTRAPOLATED}")
            if batched := len(batches) - alone:
                what = f"batched shapes whose time of {name} on {gpu} is extrapolated"
                yield Assumption(what, batched, f"{outside} and batch {EXTRAPOLATED}")


def _range(profile: Profile) -> str:
    seconds = [point.seconds for point in profile.step]
    low, high = min(seconds), max(seconds)
    return f"{low:g} s" if low == high else f"{low:g} to {high:g} s over {len(seconds)} shapes"


def _energy(profile: Profile) -> str | None:
    power = None if profile.power_w is None else f"{profile.power_w:g} W while it works"
    if profile.energy:
        joules = [point.joules for point in profile.energy]
        measured = f"{min(joules):g} to {max(joules):g} J a step"
        return measured if power is None else f"{measured}; all else {power}"
    return power
