"""Declared scaling: seconds of a model on a kind of GPU that nobody measured, from those on another kind.

``assume=a10g=l40s*1.9`` gives the A10G 1.9 times the seconds of the L40S, for every model that was measured or
published on the L40S and not on the A10G. ``assume=a10g=l40s`` takes the factor from the datasheets
(conf/data/gpu-datasheets.yaml): seconds are inverse to TFLOP/s ** w x bandwidth ** (1 - w). `WEIGHT` and `ERROR` are
those of results/scaling.md, where the rule is held against all pairs of kinds that were both measured.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from itertools import chain
from math import exp, log
from pathlib import Path
from typing import Any

from mezzotint.backends.base import BackendError
from mezzotint.backends.cells import TIMED
from mezzotint.backends.profile import Profile, find, within
from mezzotint.files.document import parse as parse_yaml
from mezzotint.settings.assumption import UNMEASURED, Assumption
from mezzotint.settings.suggest import suggest

WEIGHT = 0.65
"""Exponent of the ratio of TFLOP/s; that of the bandwidths is 1 less this."""

ERROR = 0.63
"""Known relative error of scaled seconds: 90th percentile over the pairs, the scaled-to kind left out of the fit."""

KNOWN = (None, "measured", "published")
"""Bases of profiles that others may be scaled from."""

_TERMS = {
    "apart": ("encoder_s", "controlnet_s", "receive_s"),
    "patched": ("base_s", "patch_s", "size_s", "halo_s"),
}
"""Seconds of a profile besides those of the lists in TIMED."""

NEAREST = 3
"""Number of kinds that an error suggests."""

_FORM = re.compile(r"\s*([\w.-]+)\s*=\s*([\w.-]+?)\s*(?:\*\s*([^\s*]+))?\s*")

_FORMATS = {"fp8": "fp8", "int8": "int8", "fp16": "fp16", "float16": "fp16", "bf16": "fp16", "bfloat16": "fp16"}
"""Beginning of a profile's ``dtype`` -> number format in the datasheets."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """A declaration that ``gpu`` takes ``factor`` times the seconds of ``like``; by datasheet if None."""

    gpu: str
    like: str
    factor: float | None = None

    @property
    def how(self) -> str:
        """The origin of the factor, in words."""
        return "by the datasheets' TFLOP/s and bandwidth" if self.factor is None else "a factor of your own"

    def __str__(self) -> str:
        return f"{self.gpu}={self.like}" + ("" if self.factor is None else f"*{self.factor:g}")


def parse(text: str | None) -> list[Scaling]:
    """Return the declarations of ``assume=``, separated by commas.

    Raises:
        BackendError: one is not of the form GPU=GPU or GPU=GPU*FACTOR, or two are for one kind.
    """
    scalings: dict[str, Scaling] = {}
    for word in [] if text is None else text.split(","):
        match = _FORM.fullmatch(word)
        try:
            factor = None if match is None or match[3] is None else float(match[3])
        except ValueError:
            match = None
        if match is None or not (factor is None or 0.01 <= factor <= 100):
            expected = "expected KIND=KIND or KIND=KIND*FACTOR, such as a10g=l40s*1.9, with a factor of .01 to 100"
            raise BackendError(f"assume: found {word.strip()!r}, {expected}")
        if match[1] in scalings:
            raise BackendError(f"assume: found {scalings[match[1]]} and {word.strip()}; keep one for each kind of GPU")
        if match[1] == match[2]:
            raise BackendError(f"assume: {word.strip()}: scales a kind from itself; name another one after the =")
        scalings[match[1]] = Scaling(match[1], match[2], factor)
    return list(scalings.values())


@dataclass(frozen=True, slots=True)
class Scaled:
    """The profiles that a declaration makes, and what it does not replace.

    Attributes:
        profiles: model -> its profile on ``scaling.gpu``.
        factors: model -> seconds over those on ``scaling.like``.
        kept: models whose own profiles on ``scaling.gpu`` stay, though ``scaling.like`` has them too.
    """

    scaling: Scaling
    profiles: Mapping[str, Profile]
    factors: Mapping[str, float]
    kept: frozenset[str]

    def assumptions(self, models: Iterable[str]) -> Iterator[Assumption]:
        """Yield what the seconds of ``models`` rest on."""
        gpu, like = self.scaling.gpu, self.scaling.like
        for name in models:
            if name in self.factors:
                known = f"such scaling is known to {100 * ERROR:.0f} % (results/scaling.md)"
                how = f"{self.scaling.how}, assume={self.scaling}; {known} {UNMEASURED}"
                yield Assumption(f"seconds of {name} on {gpu} over those on {like}", round(self.factors[name], 4), how)
            elif name in self.kept:
                yield Assumption(f"assume={self.scaling} for {name}", "not used", f"{name} is known on {gpu}")


def scale(scaling: Scaling, known: Mapping[str, Profile], folders: Sequence[Path | Traversable]) -> Scaled:
    """Scale all models that ``scaling.like`` has and ``known``, the profiles of ``scaling.gpu``, has not.

    Raises:
        BackendError: no profile of ``like`` can be scaled from, or the datasheets have no factor.
    """
    sources = {name: of for name, of in find(scaling.like, folders).items() if of.step and of.basis in KNOWN}
    if not sources:
        said = f"assume: {scaling}: nothing was measured on {scaling.like}"
        raise BackendError(f"{said}; {suggest(scaling.like, measured_kinds(folders))}")
    kept = frozenset(name for name in sources if name in known and known[name].step)
    made = {name: _scaled(of, scaling) for name, of in sources.items() if name not in kept}
    profiles = {name: profile for name, (profile, _) in made.items()}
    return Scaled(scaling, profiles, {name: factor for name, (_, factor) in made.items()}, kept)


def _scaled(profile: Profile, scaling: Scaling) -> tuple[Profile, float]:
    """Return ``profile`` with all seconds of its GPU times the factor of ``scaling``, and the factor.

    Loads, bytes and LoRAs stay, as they do not depend on the rates of the GPU alone. Watts, joules and the scatter are
    left out.
    """
    factor, dtype = scaling.factor, profile.dtype
    if factor is None:
        factor, dtype = datasheet_factor(scaling.like, scaling.gpu, profile.dtype)
    content = profile.model_dump(by_alias=True)  # a copy of the model would keep its tables, which are cached
    for point in chain.from_iterable(content[name] for name in TIMED):
        point["seconds"] *= factor
    for name, terms in _TERMS.items():
        for part in filter(None, content[name] if isinstance(content[name], list) else [content[name]]):
            part |= {term: part[term] * factor for term in terms}
    where = f"{factor:.3g} times those on {scaling.like} ({scaling.how}, assume={scaling})"
    stated = {
        "gpu": scaling.gpu,
        "basis": "scaled",
        "service_error": max(ERROR, profile.service_error or 0.0),
        "dtype": dtype,
        "source": f"assumed: {where}, which are of {profile.source}",
        "validation": "service_error: what 90 % of such scalings stay within, where both kinds were measured "
        "(results/scaling.md)",
    }
    absent: dict[str, Any] = {"device": None, "energy": [], "power_w": None, "scatter": None}
    return Profile.model_validate(content | stated | absent), factor


def datasheet_factor(like: str, gpu: str, dtype: str | None) -> tuple[float, str | None]:
    """Return the seconds on ``gpu`` over those on ``like`` by their datasheets, and the number format on ``gpu``.

    A kind without the format of ``like`` (fp8 on an A10G) computes in fp16.

    Raises:
        BackendError: a datasheet is not known, or the two serve a request on different numbers of GPUs.
    """
    (one, count), (other, others) = datasheet(like), datasheet(gpu)
    if count != others:
        said = f"a request is served by {count} GPUs on {like} and by {others} on {gpu}"
        raise BackendError(f"assume: {said}; give a factor of your own, as in {gpu}={like}*1.5")
    form = number_format(dtype)
    here, there = (form if form in sheet else "fp16" for sheet in (one, other))
    ratio = seconds_ratio(one[here] / other[there], one["bandwidth"] / other["bandwidth"])
    return ratio, dtype if there == form else there


def seconds_ratio(compute: float, bandwidth: float, weight: float = WEIGHT) -> float:
    """Return the seconds on a kind of GPU over those on one with ``compute`` and ``bandwidth`` times its rates."""
    return exp(weight * log(compute) + (1 - weight) * log(bandwidth))


def number_format(dtype: str | None) -> str:
    """Return the number format of a profile's ``dtype`` in the datasheets; fp16 if it is not stated."""
    first = re.split(r"[\s,]", (dtype or "fp16").lower())[0]
    return _FORMATS.get(first, "fp16")


@cache
def datasheets() -> Mapping[str, Mapping[str, float]]:
    """Return TFLOP/s by number format and ``bandwidth`` in GB/s, by kind of GPU."""
    path = resources.files("mezzotint.conf") / "data" / "gpu-datasheets.yaml"
    rows = parse_yaml(path.read_bytes())
    return {kind: {name: value for name, value in row.items() if name != "source"} for kind, row in rows.items()}


def datasheet(gpu: str) -> tuple[Mapping[str, float], int]:
    """Return the datasheet of ``gpu``, and the number of GPUs in it: 2 in ``h100-x2``."""
    sheets, match = datasheets(), re.fullmatch(r"(.+)-x(\d+)", gpu)
    kind, count = (gpu, 1) if match is None else (match[1], int(match[2]))
    if kind not in sheets:
        give = f"give a factor of your own, as in KIND={gpu}*1.5 or {gpu}=KIND*1.5"
        raise BackendError(f"assume: the datasheet of {gpu} is not known; {give}")
    return sheets[kind], count


def measured_kinds(folders: Sequence[Path | Traversable], model: str | None = None) -> list[str]:
    """Return the kinds of GPUs on which ``model``, or any, was measured or published."""
    profiles = [of for folder in folders for of in within(folder) if of.step and of.basis in KNOWN]
    return sorted({of.gpu for of in profiles if model in (None, of.model)})


def way_on(gpu: str, models: Sequence[str], folders: Sequence[Path | Traversable], flag: str = "") -> str:
    """Return, for an error, the kinds nearest to ``gpu`` on which a model was measured, and how to scale from one.

    Args:
        models: the model that was asked for, and variants that may stand for it.
        flag: what stands before ``KIND=KIND``, such as ``assume=``.
    """
    known = {model: [kind for kind in measured_kinds(folders, model) if kind != gpu] for model in models}

    def distance(kind: str) -> float:
        try:
            return abs(log(datasheet_factor(kind, gpu, None)[0]))
        except BackendError:
            return float("inf")

    nearest = {model: sorted(kinds, key=distance)[:NEAREST] for model, kinds in known.items() if kinds}
    if not nearest:
        return f"{models[0]} was measured on no kind of GPU"
    said = "; ".join(f"{model} was measured on {', '.join(kinds)}" for model, kinds in nearest.items())
    best = min((kinds[0] for kinds in nearest.values()), key=distance)
    factor = "" if distance(best) < float("inf") else "*FACTOR"
    return f"{said}: {flag}{gpu}={best}{factor} scales, with a mark"
