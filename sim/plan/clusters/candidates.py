"""Candidates of a plan: every design on every kind of GPU that has the measured times for it."""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from mezzotint.backends.profile import find, shipped
from mezzotint.files.document import parse
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.gpu import Gpu
from mezzotint.sim.metrics.cost import PaidService, Price, gpu_price, rate_usd_h
from mezzotint.sim.run.config.build import build
from mezzotint.sim.run.config.choices import CONF, choices, gpus
from mezzotint.sim.run.config.compose import Files, composed
from mezzotint.sim.run.config.options import arranged, resolved

DESIGNS = ("vanilla", "batch-server", "nirvana", "modm-quality", "modm-throughput")
"""The designs of a plan that names none: each in full, in batches, from cached latents, from cached images."""

FEW = (1, 2, 3, 4, 6, 8)
"""Numbers of the first kind of GPU in clusters of two kinds."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A design on one kind of GPU, or on a few GPUs of one kind beside another; the plan looks for the number.

    Attributes:
        design: the choice of ``system=``, with its settings.
        gpu: the kind of GPU whose number is looked for.
        models: the choice of ``models=``.
        beside: another kind of GPU and its number, which stays; None without one.
        prices: price of each kind for an hour.
        rents: True if a controller orders and gives back GPUs. Then the cost is known from a run alone.
    """

    design: str
    gpu: str
    models: str
    beside: tuple[str, int] | None
    prices: Mapping[str, Price]
    rents: bool
    _kinds: Mapping[str, Gpu] = field(repr=False)
    _services: Mapping[str, PaidService] = field(repr=False)
    _config: DictConfig = field(repr=False)
    _rate_key: str = field(repr=False)
    _rate: float = field(repr=False)
    _service: float = field(repr=False)

    @property
    def gpus(self) -> str:
        """The kinds of GPUs in words, without the number that is looked for."""
        return self.gpu if self.beside is None else f"{self.beside[1]} x {self.beside[0]} + {self.gpu}"

    @property
    def name(self) -> str:
        """The candidate in a few words."""
        return f"{self.design} with {self.models} on {self.gpus}"

    def counts(self, count: int) -> dict[str, int]:
        """Return the number of GPUs by kind, if ``count`` are of the kind that is looked for."""
        return ({} if self.beside is None else dict([self.beside])) | {self.gpu: count}

    def devices(self, count: int) -> int:
        """Return the number of GPUs of all kinds, if ``count`` are of the kind that is looked for."""
        return sum(self.counts(count).values())

    def cluster(self, count: int) -> str:
        """Return the GPUs in words, such as ``2 x h100-sxm + 3 x l40s``, if ``count`` are of the kind looked for."""
        bound = "up to " if self.rents else ""
        return bound + " + ".join(f"{number} x {kind}" for kind, number in self.counts(count).items())

    def usd_per_h(self, count: int) -> float:
        """Return the US$ of an hour of the cluster, in whole instances, and of the design's services."""
        counts = {self._kinds[kind]: number for kind, number in self.counts(count).items()}
        return sum(rate or 0.0 for rate in rate_usd_h(counts, self._services).values())

    def config(self, count: int, seed: int, load: float, service: float) -> dict[str, Any]:
        """Return the resolved configuration of a run.

        Args:
            load: factor on the arrival rate.
            service: factor on the service time.
        """
        where = "cluster.count" if self.beside is None else "cluster.pools[1].count"
        values = {where: count, "seed": seed, "backend.service_factor": service * self._service}
        values[self._rate_key] = float(f"{self._rate * load:.9g}") if load != 1.0 else self._rate
        for key, value in values.items():  # on the one composition: a copy takes longer than all else
            OmegaConf.update(self._config, key, value)
        return resolved(self._config)


def _rate(config: DictConfig) -> tuple[str, float]:
    """Return the key and the value that scale the arrivals of ``config``. Raises ConfigError if they have none."""
    for key in ("arrivals.rate_rpm", "arrivals.speedup"):
        value = OmegaConf.select(config, key)
        if isinstance(value, int | float):
            return key, value
    raise ConfigError(
        f"arrivals: {OmegaConf.select(config, 'arrivals._target_')} has no rate to scale; choose arrivals=poisson, "
        "day, fluctuating or trace"
    )


@dataclass(frozen=True, slots=True)
class Scope:
    """The model, the kinds of GPUs and the designs that a plan compares.

    Attributes:
        model: name of the model that makes an image in full, or a choice of ``models=``.
        gpus: kinds of GPUs, or the beginning of their names up to a hyphen (``h100``); empty for all. ``h100-sxm+l40s``
            stands for clusters of both: a few of the first kind, and as many as needed of the second.
        designs: choices of ``system=``, each with settings (``nirvana cache.capacity=1000,10000``).
        prices: kind of GPU -> its price, before conf/data/gpu-prices.yaml.
        overrides: settings of every run.
        files: the user's folder of models, GPUs and other choices.
        profiles: a folder of profiles, which replace shipped ones of the same model and GPU.
    """

    model: str
    gpus: Sequence[str] = ()
    designs: Sequence[str] = DESIGNS
    prices: Mapping[str, Price] = field(default_factory=dict)
    overrides: Sequence[str] = ()
    files: Files = field(default_factory=Files)
    profiles: Path | None = None

    def composed(self, *words: str) -> DictConfig:
        """Compose ``words`` with the user's files. Raises ConfigError if they do not compose."""
        try:
            return composed(arranged([*words, "run.dir=unnamed"]), self.files)
        except (HydraException, OmegaConfBaseException) as error:
            raise ConfigError(f"plan: {' '.join(words)}: {' '.join(str(error).split())}") from None

    def own(self, group: str) -> list[str]:
        """Return the user's own choices of a group."""
        return [each.name for each in choices(group, self.files.groups) if each.own]


SET = ("cluster", "cluster.count", "seed", "slo", "models", "system", "run.dir")
"""Settings that a plan makes itself."""


def check_free(words: Iterable[str], where: str = "") -> None:
    """Raise ConfigError if one of the overrides ``words`` sets or takes away what the plan sets."""
    for word in words:
        if word.lstrip("+~").partition("=")[0].partition("@")[0] in SET:
            raise ConfigError(f"{where}{word}: the plan sets it; use --gpu, --design, --model, --rate-rpm or -o")


class _LeftOut(Exception):
    """The reason why a design is not planned on a kind of GPU."""


def candidates(scope: Scope) -> tuple[list[Candidate], list[str]]:
    """Return the candidates, and a line for each combination that is left out, with the reason.

    Raises ConfigError: no model or kind of GPU has that name, or nothing is left.
    """
    known = _gpus(scope)
    _check_prices(scope.prices, list(known))
    clusters, notes = _clusters(scope.gpus, list(known)), []
    folders = [shipped(), *([] if scope.profiles is None else [scope.profiles])]
    measured = {kind: set(find(known[kind].name, folders)) for kinds in clusters for kind in kinds}
    family, note = _family(scope, measured)
    notes += [note] if note else []
    found: list[Candidate] = []
    left_out: dict[str, dict[str, list[str]]] = {}
    for design in itertools.chain.from_iterable(map(_expanded, scope.designs)):
        for kinds in clusters:
            try:
                found += _made(scope, design, {kind: known[kind] for kind in kinds}, family, measured)
            except _LeftOut as reason:
                left_out.setdefault(str(reason), {}).setdefault("+".join(kinds), []).append(design)
    notes += [f"left out: {_listed(designs, len(scope.designs))}: {why}" for why, designs in left_out.items()]
    if not found:
        raise ConfigError(f"plan: nothing is left to compare: {'; '.join(notes) or 'no design or GPU was named'}")
    return found, notes


def _listed(designs_of: Mapping[str, Sequence[str]], every: int) -> str:
    """Return the kinds of GPUs that are left out, grouped by the designs."""
    kinds_of: dict[str, list[str]] = {}
    for kind, designs in designs_of.items():
        kinds_of.setdefault("" if len(designs) == every else ", ".join(designs), []).append(kind)
    return "; ".join(
        f"{designs} on {', '.join(kinds)}" if designs else ", ".join(kinds) for designs, kinds in kinds_of.items()
    )


def _expanded(text: str) -> list[str]:
    """Return a design with its settings, once for every combination of comma-separated values."""
    if not text.strip():
        raise ConfigError("--design: found nothing, expected a choice of system=; `mezzotint list system` shows them")
    design, *settings = text.split()
    check_free(settings, f"--design {text}: ")
    keys = [word.partition("=")[0] for word in settings]
    values = [re.split(r",(?![^\[{]*[\]}])", word.partition("=")[2]) for word in settings]
    return [
        " ".join([design, *(f"{key}={value}" for key, value in zip(keys, chosen, strict=True))])
        for chosen in itertools.product(*values)
    ]


def _gpus(scope: Scope) -> dict[str, Gpu]:
    """Return every kind of GPU: the shipped ones, and those of the user's own choices of ``cluster=``."""
    nodes = {kind: settings["cluster"]["gpu"] for kind, settings in gpus().items()}
    for kind in scope.own("cluster"):
        gpu = OmegaConf.select(scope.composed(f"cluster={kind}"), "cluster.gpu")
        if gpu is not None:  # else its pools may be of several kinds
            nodes[kind] = OmegaConf.to_container(gpu, resolve=True)
    return {kind: build(node, "cluster.gpu", Gpu) for kind, node in nodes.items()}


def _clusters(asked: Sequence[str], known: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the kinds of each cluster: one, or two of which the first is the few."""
    if not asked:
        return [(kind,) for kind in known]
    found = []
    for each in asked:
        names = each.split("+")
        if len(names) > 2 or len(set(names)) < len(names):
            raise ConfigError(
                f"--gpu {each}: found {len(names)} kinds, expected one, or two different ones joined by +"
            )
        parts = [_kinds(name, known) for name in names]
        found += [kinds for kinds in itertools.product(*parts) if len(set(kinds)) == len(kinds)]
    return list(dict.fromkeys(found))


def _kinds(name: str, known: Sequence[str]) -> list[str]:
    own = _forms(name, known)
    if not own:
        raise ConfigError(f"--gpu {name}: is no kind of GPU; {_hint(name, known)}")
    return own


def _check_prices(prices: Iterable[str], known: Sequence[str]) -> None:
    """Raise ConfigError for a price of a kind of GPU that does not exist."""
    for kind in prices:
        if kind not in known:
            raise ConfigError(f"--prices: {kind} is no kind of GPU; {_hint(kind, known)}")


def _hint(name: str, known: Sequence[str]) -> str:
    """Return the kind of GPU that ``name`` may stand for, or where to look."""
    near = get_close_matches(name.lower(), known, 1)
    shown = f"`mezzotint list cluster` shows them: {', '.join(known)}"
    return f"did you mean {near[0]}?" if near else shown


def _forms(name: str, known: Iterable[str]) -> list[str]:
    """Return the names that are ``name`` or a form of it, such as ``h100-sxm`` of ``h100``."""
    return [each for each in known if each == name or each.startswith(f"{name}-")]


def _choices(scope: Scope) -> dict[str, dict[str, str]]:
    """Return the choices of ``models=``, shipped and the user's own: the name of each role's model."""
    found: dict[str, Any] = {name: resolved(scope.composed(f"models={name}"))["models"] for name in scope.own("models")}
    for file in (CONF / "models").iterdir():
        found[file.name.removesuffix(".yaml")] = parse(file.read_text("utf-8"))
    named = {
        name: {role: model["name"] for role, model in roles.items() if isinstance(model, dict) and "name" in model}
        for name, roles in sorted(found.items())
    }
    return {name: roles for name, roles in named.items() if roles}


def _family(scope: Scope, measured: Mapping[str, set[str]]) -> tuple[dict[str, dict[str, str]], str]:
    """Return the choices of ``models=`` that serve the model, all with the same large one, and what to say of it.

    If a variant of the model (``sdxl-mlperf``) has profiles on more of the kinds that were asked for, all kinds are
    planned with the variant, so that they are compared at the same work.
    """
    every = _choices(scope)
    larges = {_large(roles) for roles in every.values()}
    if scope.model in every and scope.model not in larges:
        return {scope.model: every[scope.model]}, ""
    names = _forms(scope.model, sorted(larges))
    if not names:
        raise ConfigError(
            f"--model {scope.model}: is no model that can be planned for; expected one of {', '.join(sorted(larges))}"
        )

    asked = [part for each in scope.gpus for part in each.split("+")] or list(measured)

    def covered(name: str) -> int:
        return sum(any(name in measured[kind] for kind in _forms(each, measured)) for each in asked)

    best = max(names, key=lambda name: (covered(name), name == scope.model))
    planned = f"{scope.model} is planned as {best}, which was measured on more of the GPUs; its steps are its own"
    note = "" if best == scope.model else planned
    return {name: roles for name, roles in every.items() if _large(roles) == best}, note


def _large(roles: Mapping[str, str]) -> str:
    """Return the model that makes an image in full: the first role's."""
    return next(iter(roles.values()))


def _made(
    scope: Scope,
    design: str,
    kinds: Mapping[str, Gpu],
    family: Mapping[str, Mapping[str, str]],
    measured: Mapping[str, set[str]],
) -> list[Candidate]:
    """Return the candidates of a design on a kind of GPU or two. Raises _LeftOut if there are none."""
    profiled = [measured[kind] for kind in kinds]
    if not any(set(roles.values()) & own for roles in family.values() for own in profiled):
        raise _LeftOut(f"no profile of {_large(next(iter(family.values())))}")
    prices = {kind: _price(scope, kind, gpu) for kind, gpu in kinds.items()}
    system, *settings = design.split()
    words = [f"system={system}", *settings, *scope.overrides]
    words += [] if scope.profiles is None else [f"backend.folder={scope.profiles}"]
    first, *others = kinds
    plain = resolved(scope.composed(*words, f"cluster={first}", f"models={next(iter(family))}"))
    ready = _ready(_roles(plain) | {"large"}, family, profiled)
    priced = {kind: replace(gpu, usd_per_gpu_h=prices[kind].usd_per_gpu_h) for kind, gpu in kinds.items()}
    paid: dict[str, dict[str, Any]] = plain["system"].get("services") or {}
    services = {key: PaidService(**value) for key, value in paid.items()}
    if any(service.usd_per_h is None for service in services.values()):
        raise _LeftOut("the price of one of its services is not known")
    rents = "startup_s" in (plain.get("controller") or {})  # of a controller that orders GPUs while a run goes on
    made = []
    for name in ready:
        for few in FEW if others else (0,):
            config = scope.composed(*words, f"cluster={'pools' if few else first}", f"models={name}")
            with open_dict(config):
                config.run = {"dir": "unnamed"}
                if few:
                    roles = list(family[name]) if len(family[name]) > 1 else [None, None]
                    config.cluster.pools = [
                        {"gpu": asdict(gpu), "count": few, "role": role}
                        for gpu, role in zip(priced.values(), roles, strict=False)
                    ]
                else:
                    config.cluster.gpu.usd_per_gpu_h = prices[first].usd_per_gpu_h
            service = float(OmegaConf.select(config, "backend.service_factor"))
            made.append(
                Candidate(
                    design, list(kinds)[-1], name, (first, few) if few else None, prices, rents, priced, services,
                    config, *_rate(config), service,
                )
            )  # fmt: skip
    return made


def _ready(needed: set[str], family: Mapping[str, Mapping[str, str]], profiled: Sequence[set[str]]) -> list[str]:
    """Return the choices of ``family`` with the needed roles, and the fewest, whose models have profiles.

    On two kinds of GPU, the first needs one of the first role's model, and the second those of the others.
    Raises _LeftOut if there are none.
    """
    fits = [name for name, roles in family.items() if needed <= set(roles)]
    if not fits:
        raise _LeftOut(f"no models= has a {' and a '.join(sorted(needed))} model")
    fewest = min(len(family[name]) for name in fits)
    models = {name: list(family[name].values()) for name in fits if len(family[name]) == fewest}
    split = len(profiled) > 1 and fewest > 1
    ready = [
        name
        for name, (large, *rest) in models.items()
        if (
            large in profiled[0] and set(rest) <= profiled[1]
            if split
            else all({large, *rest} <= own for own in profiled)
        )
    ]
    if not ready:
        raise _LeftOut(f"no profile of {' or '.join(' and '.join(names) for names in models.values())}")
    return ready


def _price(scope: Scope, kind: str, gpu: Gpu) -> Price:
    price = scope.prices.get(kind) or gpu_price(gpu)
    if price is None:
        raise _LeftOut("no price is known; give one with --prices")
    return price


def _roles(config: Mapping[str, Any]) -> set[str]:
    """Return the roles that the parts of ``config`` name."""
    found = set()
    for key, value in config.items():
        if key == "models":
            continue
        if isinstance(value, Mapping):
            found |= _roles(value)
        elif isinstance(value, str) and (key == "role" or key.endswith("_role")):
            found.add(value)
    return found
