"""Candidates of a plan: every design on every kind of GPU that has the measured times for it."""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import yaml
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from backends.profile import find, shipped
from conf.document import DocumentError, parse
from sim.core.errors import ConfigError
from sim.core.gpu import Gpu
from sim.metrics.cost import PaidService, Price, gpu_price, rate_usd_h
from sim.run.config.build import build
from sim.run.config.choices import CONF, gpus
from sim.run.config.compose import Files, composed
from sim.run.config.options import arranged, resolved

DESIGNS = ("vanilla", "batch-server", "nirvana", "modm-quality", "modm-throughput")
"""The designs of a plan that names none: each in full, in batches, from cached latents, from cached images."""

FEW = (1, 2, 3, 4, 6, 8)
"""Numbers of the first kind of GPU in clusters of two kinds."""

RENTING = ("sim.control.autoscaler.Autoscaler", "sim.control.foresight.Foresight")
"""Controllers that order and give back GPUs while a run goes on."""


class PriceRow(BaseModel):
    """Price of a kind of GPU, as in conf/data/gpu-prices.yaml."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    usd_per_gpu_h: Annotated[float, Field(ge=0, le=1e6)]
    date: Any = None
    source: str = "given"


_PRICES = TypeAdapter(dict[str, PriceRow | Annotated[float, Field(ge=0, le=1e6)]])


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
    """

    model: str
    gpus: Sequence[str] = ()
    designs: Sequence[str] = DESIGNS
    prices: Mapping[str, Price] = field(default_factory=dict)
    overrides: Sequence[str] = ()
    files: Files = field(default_factory=Files)
    profiles: Path | None = None


def candidates(scope: Scope) -> tuple[list[Candidate], list[str]]:
    """Return the candidates, and a line for each combination that is left out, with the reason.

    Raises ConfigError: no model or kind of GPU has that name, or nothing is left.
    """
    clusters, notes = _clusters(scope.gpus), []
    folders = [shipped(), *([] if scope.profiles is None else [scope.profiles])]
    measured = {kind: set(find(kind, folders)) for kinds in clusters for kind in kinds}
    family, note = _family(scope, measured)
    notes += [note] if note else []
    found: list[Candidate] = []
    left_out: dict[str, dict[str, list[str]]] = {}
    for design, settings in itertools.chain.from_iterable(map(_expanded, scope.designs)):
        for kinds in clusters:
            made, why = _made(scope, design, settings, kinds, family, [measured[kind] for kind in kinds])
            found += made
            if why:
                left_out.setdefault(why, {}).setdefault("+".join(kinds), []).append(" ".join([design, *settings]))
    notes += [f"left out: {_listed(kinds_of, len(scope.designs))}: {why}" for why, kinds_of in left_out.items()]
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


def read_prices(path: Path) -> dict[str, Price]:
    """Read a YAML file of prices, in the form of conf/data/gpu-prices.yaml or ``KIND: USD``.

    Raises ConfigError: it cannot be read, or a row is no price.
    """
    try:
        rows = _PRICES.validate_python(parse(path.read_text(encoding="utf-8")) or {})
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--prices {path}: cannot be read ({error})") from None
    except DocumentError as error:
        raise ConfigError(f"--prices {path}: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(
            f"--prices {path}: {'.'.join(map(str, first['loc']))}: {first['msg']}; expected KIND: USD per GPU and "
            "hour, or KIND: {usd_per_gpu_h, date, source}"
        ) from None
    return {
        kind: Price(row, f"{path.name}")
        if isinstance(row, float)
        else Price(row.usd_per_gpu_h, f"{path.name}: {row.source}")
        for kind, row in rows.items()
    }


def _expanded(text: str) -> list[tuple[str, list[str]]]:
    """Return a design and its settings for every combination of comma-separated values."""
    design, *settings = text.split()
    keys = [word.partition("=")[0] for word in settings]
    values = [re.split(r",(?![^\[{]*[\]}])", word.partition("=")[2]) for word in settings]
    return [
        (design, [f"{key}={value}" for key, value in zip(keys, chosen, strict=True)])
        for chosen in itertools.product(*values)
    ]


def _clusters(asked: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the kinds of each cluster: one, or two of which the first is the few."""
    if not asked:
        return [(kind,) for kind in gpus()]
    found = []
    for each in asked:
        parts = [_kinds(part) for part in each.split("+")]
        if len(parts) > 2:
            raise ConfigError(f"--gpu {each}: found {len(parts)} kinds, expected one, or two joined by +")
        found += [kinds for kinds in itertools.product(*parts) if len(set(kinds)) == len(kinds)]
    return list(dict.fromkeys(found))


def _kinds(name: str) -> list[str]:
    own = [kind for kind in gpus() if kind == name or kind.startswith(f"{name}-")]
    if not own:
        raise ConfigError(f"--gpu {name}: is no kind of GPU; `mezzotint list cluster` shows them: {', '.join(gpus())}")
    return own


def _choices() -> dict[str, dict[str, str]]:
    """Return the choices of ``models=``: the name of each role's model."""
    folder = CONF / "models"
    read = {each.name.removesuffix(".yaml"): yaml.safe_load(each.read_text("utf-8")) for each in folder.iterdir()}
    return {
        name: {role: model["name"] for role, model in roles.items() if isinstance(model, dict)}
        for name, roles in sorted(read.items())
    }


def _family(scope: Scope, measured: Mapping[str, set[str]]) -> tuple[dict[str, dict[str, str]], str]:
    """Return the choices of ``models=`` that serve the model, all with the same large one, and what to say of it.

    If a variant of the model (``sdxl-mlperf``) has profiles on more of the kinds that were asked for, all kinds are
    planned with the variant, so that they are compared at the same work.
    """
    every = _choices()
    larges = {next(iter(roles.values())) for roles in every.values()}
    if scope.model in every and scope.model not in larges:
        return {scope.model: every[scope.model]}, ""
    names = [large for large in sorted(larges) if large == scope.model or large.startswith(f"{scope.model}-")]
    if not names:
        raise ConfigError(
            f"--model {scope.model}: is no model that can be planned for; expected one of {', '.join(sorted(larges))}"
        )

    asked = [part for each in scope.gpus for part in each.split("+")] or list(measured)

    def covered(name: str) -> int:
        return sum(
            any(name in measured[kind] for kind in measured if kind == each or kind.startswith(f"{each}-"))
            for each in asked
        )

    best = max(names, key=lambda name: (covered(name), name == scope.model))
    planned = f"{scope.model} is planned as {best}, which was measured on more of the GPUs; its steps are its own"
    note = "" if best == scope.model else planned
    return {name: roles for name, roles in every.items() if next(iter(roles.values())) == best}, note


def _made(
    scope: Scope,
    design: str,
    settings: Sequence[str],
    kinds: Sequence[str],
    family: Mapping[str, Mapping[str, str]],
    profiled: Sequence[set[str]],
) -> tuple[list[Candidate], str]:
    """Return the candidates of a design on a kind of GPU or two, or why there are none."""
    if not any(set(roles.values()) & own for roles in family.values() for own in profiled):
        return [], f"no profile of {next(iter(next(iter(family.values())).values()))}"
    words = [f"system={design}", *settings, *scope.overrides]
    plain = resolved(_composed([*words, f"cluster={kinds[0]}", f"models={next(iter(family))}"], scope.files))
    needed = _roles(plain) | {"large"}
    fits = [name for name, roles in family.items() if needed <= set(roles)]
    if not fits:
        return [], f"no models= has a {' and a '.join(sorted(needed))} model"
    fewest = min(len(family[name]) for name in fits)
    fits = [name for name in fits if len(family[name]) == fewest]
    split = len(kinds) > 1 and fewest > 1
    ready = [name for name in fits if _are_profiled(list(family[name].values()), profiled, split)]
    if not ready:
        return [], f"no profile of {' or '.join(' and '.join(family[name].values()) for name in fits)}"
    prices, priced = {}, {}
    for kind in kinds:
        gpu: Gpu = build(gpus()[kind]["cluster"]["gpu"], "cluster.gpu", Gpu)
        price = scope.prices.get(kind) or gpu_price(gpu)
        if price is None:
            return [], "no price is known; give one with --prices"
        prices[kind], priced[kind] = price, replace(gpu, usd_per_gpu_h=price.usd_per_gpu_h)
    paid: dict[str, dict[str, Any]] = plain["system"].get("services") or {}
    services = {key: PaidService(**value) for key, value in paid.items()}
    if any(service.usd_per_h is None for service in services.values()):
        return [], "the price of one of its services is not known"
    rents = (plain.get("controller") or {}).get("_target_") in RENTING
    made = []
    for name in ready:
        for few in FEW if len(kinds) > 1 else (0,):
            config = _composed([*words, f"cluster={kinds[0] if not few else 'pools'}", f"models={name}"], scope.files)
            with open_dict(config):
                config.run = {"dir": "unnamed"}
                if few:
                    roles = list(family[name]) if split else [None, None]
                    config.cluster.pools = [
                        {"gpu": asdict(priced[kind]), "count": few, "role": role}
                        for kind, role in zip(kinds, roles, strict=False)
                    ]
                else:
                    config.cluster.gpu.usd_per_gpu_h = prices[kinds[0]].usd_per_gpu_h
            beside = (kinds[0], few) if few else None
            service = float(OmegaConf.select(config, "backend.service_factor"))
            shown = " ".join([design, *settings])
            made.append(
                Candidate(
                    shown, kinds[-1], name, beside, prices, rents, priced, services, config, *_rate(config), service
                )
            )
    return made, ""


def _are_profiled(models: Sequence[str], profiled: Sequence[set[str]], split: bool) -> bool:
    """Return True if each kind has a profile of its models: of all, or if ``split`` of the first and of the others."""
    if split:
        return models[0] in profiled[0] and set(models[1:]) <= profiled[1]
    return all(set(models) <= own for own in profiled)


def _composed(words: Sequence[str], files: Files) -> DictConfig:
    try:
        return composed(arranged([*words, "run.dir=unnamed"]), files)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(f"plan: {' '.join(words)}: {' '.join(str(error).split())}") from None


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
