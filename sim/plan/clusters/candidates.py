"""Candidates of a plan: every design on every kind of GPU that has the measured times for it."""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
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


class PriceRow(BaseModel):
    """Price of a kind of GPU, as in conf/data/gpu-prices.yaml."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    usd_per_gpu_h: Annotated[float, Field(ge=0, le=1e6)]
    date: Any = None
    source: str = "given"


_PRICES = TypeAdapter(dict[str, PriceRow | Annotated[float, Field(ge=0, le=1e6)]])


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A design on a kind of GPU, of which the plan looks for the number.

    Attributes:
        design: the choice of ``system=``, with its settings.
        gpu: the kind of GPU; ``price`` is that of one for an hour.
        models: the choice of ``models=``.
        words: the overrides of its runs, without the number of GPUs, the load and the seed.
    """

    design: str
    gpu: str
    models: str
    words: tuple[str, ...]
    price: Price
    _kind: Gpu = field(repr=False)
    _services: Mapping[str, PaidService] = field(repr=False)
    _config: DictConfig = field(repr=False)
    _rate_key: str = field(repr=False)
    _rate: float = field(repr=False)
    _service: float = field(repr=False)

    @property
    def name(self) -> str:
        """The candidate in a few words."""
        return f"{self.design} with {self.models} on {self.gpu}"

    def usd_per_h(self, count: int) -> float:
        """Return the US$ of an hour of ``count`` GPUs, in whole instances, and of the design's services."""
        return sum(rate or 0.0 for rate in rate_usd_h({self._kind: count}, self._services).values())

    def config(self, count: int, seed: int, load: float, service: float) -> dict[str, Any]:
        """Return the resolved configuration of a run.

        Args:
            load: factor on the arrival rate.
            service: factor on the service time.
        """
        values = {"cluster.count": count, "seed": seed, "backend.service_factor": service * self._service}
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
class Wanted:
    """What a plan may choose from.

    Attributes:
        model: name of the model that makes an image in full, or a choice of ``models=``.
        gpus: kinds of GPUs, or the beginning of their names up to a hyphen (``h100``); empty for all.
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


def candidates(wanted: Wanted) -> tuple[list[Candidate], list[str]]:
    """Return the candidates, and a line for each combination that is left out, with the reason.

    Raises ConfigError: no model or kind of GPU has that name, or nothing is left.
    """
    kinds, notes = _kinds(wanted.gpus), []
    folders = [shipped(), *([] if wanted.profiles is None else [wanted.profiles])]
    measured = {kind: set(find(kind, folders)) for kind in kinds}
    family, note = _family(wanted, measured)
    notes += [note] if note else []
    found: list[Candidate] = []
    left_out: dict[str, dict[str, list[str]]] = {}
    for design, settings in itertools.chain.from_iterable(map(_expanded, wanted.designs)):
        for kind in kinds:
            made, why = _made(wanted, design, settings, kind, family, measured[kind])
            found += made
            if why:
                left_out.setdefault(why, {}).setdefault(kind, []).append(" ".join([design, *settings]))
    notes += [f"left out: {_listed(kinds_of, len(wanted.designs))}: {why}" for why, kinds_of in left_out.items()]
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


def _kinds(asked: Sequence[str]) -> list[str]:
    if not asked:
        return list(gpus())
    found = []
    for each in asked:
        own = [kind for kind in gpus() if kind == each or kind.startswith(f"{each}-")]
        if not own:
            raise ConfigError(
                f"--gpu {each}: is no kind of GPU; `mezzotint list cluster` shows them: {', '.join(gpus())}"
            )
        found += own
    return list(dict.fromkeys(found))


def _choices() -> dict[str, dict[str, str]]:
    """Return the choices of ``models=``: the name of each role's model."""
    folder = CONF / "models"
    read = {each.name.removesuffix(".yaml"): yaml.safe_load(each.read_text("utf-8")) for each in folder.iterdir()}
    return {
        name: {role: model["name"] for role, model in roles.items() if isinstance(model, dict)}
        for name, roles in sorted(read.items())
    }


def _family(wanted: Wanted, measured: Mapping[str, set[str]]) -> tuple[dict[str, dict[str, str]], str]:
    """Return the choices of ``models=`` that serve the model, all with the same large one, and what to say of it.

    Where the model itself has no profile on some kind that was asked for, and a variant of it (``sdxl-mlperf``) has one
    on more of them, the variant is taken for all, so that the kinds are compared at the same work.
    """
    every = _choices()
    larges = {next(iter(roles.values())) for roles in every.values()}
    if wanted.model in every and wanted.model not in larges:
        return {wanted.model: every[wanted.model]}, ""
    names = [large for large in sorted(larges) if large == wanted.model or large.startswith(f"{wanted.model}-")]
    if not names:
        raise ConfigError(
            f"--model {wanted.model}: is no model that can be planned for; expected one of {', '.join(sorted(larges))}"
        )

    def covered(name: str) -> int:
        asked = wanted.gpus or list(measured)
        return sum(
            any(name in measured[kind] for kind in measured if kind == each or kind.startswith(f"{each}-"))
            for each in asked
        )

    best = max(names, key=lambda name: (covered(name), name == wanted.model))
    note = (
        ""
        if best == wanted.model
        else (f"{wanted.model} is planned as {best}, which was measured on more of the GPUs; its steps are its own")
    )
    return {name: roles for name, roles in every.items() if next(iter(roles.values())) == best}, note


def _made(
    wanted: Wanted,
    design: str,
    settings: Sequence[str],
    kind: str,
    family: Mapping[str, Mapping[str, str]],
    profiled: set[str],
) -> tuple[list[Candidate], str]:
    """Return the candidates of a design on a kind of GPU, or why there are none."""
    if not any(set(roles.values()) <= profiled for roles in family.values()):
        return [], f"no profile of {next(iter(next(iter(family.values())).values()))}"
    words = [f"system={design}", f"cluster={kind}", *settings, *wanted.overrides]
    plain = resolved(_composed([*words, f"models={next(iter(family))}"], wanted.files))
    needed = _roles(plain) | {"large"}
    fits = [name for name, roles in family.items() if needed <= set(roles)]
    if not fits:
        return [], f"no models= has a {' and a '.join(sorted(needed))} model"
    fewest = min(len(family[name]) for name in fits)
    fits = [name for name in fits if len(family[name]) == fewest]
    ready = [name for name in fits if set(family[name].values()) <= profiled]
    if not ready:
        return [], f"no profile of {' or '.join(' and '.join(family[name].values()) for name in fits)}"
    gpu: Gpu = build(plain["cluster"]["gpu"], "cluster.gpu", Gpu)
    price = wanted.prices.get(kind) or gpu_price(gpu)
    if price is None:
        return [], "no price is known; give one with --prices"
    made = []
    for name in ready:
        own = (*words, f"models={name}", f"++cluster.gpu.usd_per_gpu_h={price.usd_per_gpu_h!r}")
        config = _composed(own, wanted.files)
        paid: dict[str, dict[str, Any]] = resolved(config)["system"].get("services") or {}
        services = {key: PaidService(**value) for key, value in paid.items()}
        if any(service.usd_per_h is None for service in services.values()):
            return [], "the price of one of its services is not known"
        with open_dict(config):
            config.run = {"dir": "unnamed"}
        named = " ".join([design, *settings])
        service = float(OmegaConf.select(config, "backend.service_factor"))
        priced = replace(gpu, usd_per_gpu_h=price.usd_per_gpu_h)
        made.append(Candidate(named, kind, name, own, price, priced, services, config, *_rate(config), service))
    return made, ""


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
