"""Candidates of a plan: every design on every kind of GPU that has the measured times for it."""

import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
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
from mezzotint.sim.metrics.cost import PaidService, Price, gpu_price, rate_usd_h, read_prices
from mezzotint.sim.plan.options import Options
from mezzotint.sim.plan.rate import rate_key
from mezzotint.sim.run.config.build import build
from mezzotint.sim.run.config.choices import CONF, choices, engine_models, gpus
from mezzotint.sim.run.config.compose import compose_config
from mezzotint.sim.run.config.options import files_of, prepare_overrides, resolve_config

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
        prices: price of each kind for an hour, of those that have one.
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

    @property
    def unpriced(self) -> set[str]:
        """The kinds of GPUs and services of which no price is known."""
        services = {name for name, service in self._services.items() if service.usd_per_h is None}
        return services | (set(self._kinds) - set(self.prices))

    def usd_per_h(self, count: int) -> float | None:
        """Return the US$ of an hour of the cluster, in whole instances, and of the design's services.

        None if the price of a part is not known.
        """
        counts = {self._kinds[kind]: number for kind, number in self.counts(count).items()}
        rates = rate_usd_h(counts, self._services).values()
        known = [rate for rate in rates if rate is not None]
        return sum(known) if len(known) == len(rates) else None

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
        return resolve_config(self._config)


SET = ("cluster", "cluster.count", "seed", "slo", "models", "system", "run.dir")
"""Settings that a plan makes itself."""


def check_free(words: Iterable[str], where: str = "") -> None:
    """Raise ConfigError if one of the overrides ``words`` sets or takes away what the plan sets."""
    for word in words:
        if word.lstrip("+~").partition("=")[0].partition("@")[0] in SET:
            raise ConfigError(f"{where}{word}: the plan sets it; use --gpu, --design, --model, --rate-rpm or -o")


class _LeftOut(Exception):
    """The reason why a design is not planned on a kind of GPU."""


def find_candidates(options: Options, words: Sequence[str]) -> tuple[list[Candidate], list[str]]:
    """Return the candidates, and a line for each combination that is left out, with the reason.

    Args:
        words: overrides of every run.

    Raises ConfigError: no model or kind of GPU has that name, or nothing is left.
    """
    catalogue, designs = _Catalogue(options, words), options.design or DESIGNS
    candidates: list[Candidate] = []
    left_out: dict[str, dict[str, list[str]]] = {}  # reason -> kinds of GPUs -> designs
    for design in itertools.chain.from_iterable(map(_expand, designs)):
        for kinds in catalogue.clusters:
            try:
                candidates += catalogue.combine(design, kinds)
            except _LeftOut as reason:
                left_out.setdefault(str(reason), {}).setdefault("+".join(kinds), []).append(design)
    notes = list(catalogue.notes)
    for why, designs_of in left_out.items():
        kinds_of: dict[str, list[str]] = {}
        for cluster, names in designs_of.items():
            kinds_of.setdefault("" if len(names) == len(designs) else f"{', '.join(names)} on ", []).append(cluster)
        listed = "; ".join(f"{named}{', '.join(kinds)}" for named, kinds in kinds_of.items())
        notes.append(f"left out: {listed}: {why}")
    if not candidates:
        raise ConfigError(f"plan: nothing is left to compare: {'; '.join(notes) or 'no design or GPU was named'}")
    return candidates, notes


def _expand(text: str) -> list[str]:
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


class _Catalogue:
    """The kinds of GPUs, prices, profiles and models that candidates are made of.

    Attributes:
        clusters: the kinds of each cluster: one, or two of which the first is the few.
        notes: what to say of the choice of the model.
    """

    def __init__(self, options: Options, words: Sequence[str]) -> None:
        self._files, self._words = files_of(options.config_dir, None, "config"), list(words)
        folders = [shipped()]
        if options.profiles is not None:
            folders.append(options.profiles)
            self._words.append(f"backend.folder={options.profiles}")
        self._gpus = self._known_gpus()
        self._prices: dict[str, Price | None] = {kind: gpu_price(gpu) for kind, gpu in self._gpus.items()}
        self._prices |= self._own_prices(options.prices)
        self.clusters = _clusters(options.gpu, self._gpus)
        self._measured = {kind: set(find(self._gpus[kind].name, folders)) for kinds in self.clusters for kind in kinds}
        asked = [name for option in options.gpu for name in option.split("+")] or list(self._measured)
        self._family, self.notes = self._models(options.model, asked)
        self._large = _large(next(iter(self._family.values())))

    def combine(self, design: str, kinds: Sequence[str]) -> list[Candidate]:
        """Return the candidates of a design on a kind of GPU or two. Raises _LeftOut if there are none."""
        family, profiled = self._family, [self._measured[kind] for kind in kinds]
        if not any(set(roles.values()) & models for roles in family.values() for models in profiled):
            raise _LeftOut(f"no profile of {self._large}")
        prices = {kind: price for kind in kinds if (price := self._prices[kind]) is not None}
        system, *settings = design.split()
        words = [f"system={system}", *settings, *self._words]
        first, *others = kinds
        plain = resolve_config(self._compose(*words, f"cluster={first}", f"models={next(iter(family))}"))
        names = _with_profiles(_roles(plain) | {"large"}, family, profiled)
        usd = {kind: prices[kind].usd_per_gpu_h if kind in prices else None for kind in kinds}
        priced = {kind: replace(self._gpus[kind], usd_per_gpu_h=usd[kind]) for kind in kinds}
        services = {key: PaidService(**value) for key, value in (plain["system"].get("services") or {}).items()}
        rents = "startup_s" in (plain.get("controller") or {})  # of a controller that orders GPUs while a run goes on
        candidates = []
        for name, few in itertools.product(names, FEW if others else (0,)):
            config = self._compose(*words, f"cluster={'pools' if few else first}", f"models={name}")
            with open_dict(config):
                config.run = {"dir": "unnamed"}
                if few:
                    roles = list(family[name]) if len(family[name]) > 1 else [None, None]
                    config.cluster.pools = [
                        {"gpu": asdict(gpu), "count": few, "role": role}
                        for gpu, role in zip(priced.values(), roles, strict=False)
                    ]
                else:
                    config.cluster.gpu.usd_per_gpu_h = usd[first]
            service = float(OmegaConf.select(config, "backend.service_factor"))
            candidates.append(
                Candidate(
                    design, kinds[-1], name, (first, few) if few else None, prices, rents, priced, services, config,
                    *rate_key(config), service,
                )
            )  # fmt: skip
        return candidates

    def _compose(self, *words: str) -> DictConfig:
        """Compose ``words`` with the user's files. Raises ConfigError if they do not compose."""
        try:
            return compose_config(prepare_overrides([*words, "run.dir=unnamed"]), self._files)
        except (HydraException, OmegaConfBaseException) as error:
            raise ConfigError(f"plan: {' '.join(words)}: {' '.join(str(error).split())}") from None

    def _own(self, group: str) -> list[str]:
        """Return the user's own choices of a group."""
        return [choice.name for choice in choices(group, self._files.groups) if choice.own]

    def _known_gpus(self) -> dict[str, Gpu]:
        """Return every kind of GPU: the shipped ones, and those of the user's own choices of ``cluster=``."""
        nodes = {kind: settings["cluster"]["gpu"] for kind, settings in gpus().items()}
        for kind in self._own("cluster"):
            gpu = OmegaConf.select(self._compose(f"cluster={kind}"), "cluster.gpu")
            if gpu is not None:  # else its pools may be of several kinds
                nodes[kind] = OmegaConf.to_container(gpu, resolve=True)
        return {kind: build(node, "cluster.gpu", Gpu) for kind, node in nodes.items()}

    def _own_prices(self, path: Path | None) -> dict[str, Price]:
        """Return the prices of the user's file. Raises ConfigError for one of a kind of GPU that does not exist."""
        rows = {} if path is None else read_prices(path, f"--prices {path}")
        name, known = "" if path is None else path.name, {kind.lower(): kind for kind in self._gpus}
        prices: dict[str, Price] = {}
        for kind, row in rows.items():
            if kind.lower() not in known:
                raise _unknown_kind(f"--prices {path}: {kind}", kind, self._gpus)
            if known[kind.lower()] in prices:
                raise ConfigError(f"--prices {path}: found {kind} twice, since case does not matter; keep one")
            source = f"{name}, {row.date}" if row.date else name
            prices[known[kind.lower()]] = Price(row.usd_per_gpu_h, f"{source}: {row.source}" if row.source else source)
        return prices

    def _models(self, model: str, asked: Sequence[str]) -> tuple[dict[str, dict[str, str]], list[str]]:
        """Return the choices of ``models=`` that serve ``model``, all with the same large one, and notes on it.

        A choice gives the name of each role's model. If a variant of the model (``sdxl-mlperf``) has profiles on more
        of the kinds ``asked`` for, all kinds are planned with the variant, so that they are compared at the same work.
        A model on an engine is planned if it is named in full.
        """
        models: dict[str, Any] = {
            name: resolve_config(self._compose(f"models={name}"))["models"] for name in self._own("models")
        }
        models |= engine_models()
        for file in (CONF / "models").iterdir():
            models[file.name.removesuffix(".yaml")] = parse(file.read_text("utf-8"))
        named = {
            name: {role: value["name"] for role, value in roles.items() if isinstance(value, dict) and "name" in value}
            for name, roles in sorted(models.items())
        }
        every = {name: roles for name, roles in named.items() if roles}
        larges = sorted({_large(roles) for roles in every.values()})
        model = next((name for name in (*every, *larges) if name.lower() == model.lower()), model)
        if model in every and model not in larges:
            return {model: every[model]}, []

        def covered(name: str) -> int:
            measured = self._measured
            return sum(any(name in measured[kind] for kind in _forms(gpu, measured)) for gpu in asked)

        variants = [name for name in _forms(model, larges) if name == model or name not in engine_models()]
        best = max(variants, key=lambda name: (covered(name), name == model), default=None)
        if best is None:
            raise ConfigError(
                f"--model {model}: is no model that can be planned for; expected one of {', '.join(larges)}"
            )
        note = f"{model} is planned as {best}, which was measured on more of the GPUs; its steps are its own"
        family = {name: roles for name, roles in every.items() if _large(roles) == best}
        return family, [] if best == model else [note]


def _clusters(asked: Sequence[str], known: Collection[str]) -> list[tuple[str, ...]]:
    """Return the kinds of each cluster: one, or two of which the first is the few."""
    if not asked:
        return [(kind,) for kind in known]
    clusters = []
    for option in asked:
        names = option.split("+")
        if len(names) > 2 or len({name.lower() for name in names}) < len(names):
            raise ConfigError(
                f"--gpu {option}: found {len(names)} kinds, expected one, or two different ones joined by +"
            )
        forms = [_forms(name, known) for name in names]
        for name, kinds in zip(names, forms, strict=True):
            if not kinds:
                raise _unknown_kind(f"--gpu {name}:", name, known)
        clusters += [kinds for kinds in itertools.product(*forms) if len(set(kinds)) == len(kinds)]
    return list(dict.fromkeys(clusters))


def _unknown_kind(subject: str, name: str, known: Collection[str]) -> ConfigError:
    near = get_close_matches(name.lower(), known, 1)
    hint = f"did you mean {near[0]}?" if near else f"`mezzotint list cluster` shows them: {', '.join(known)}"
    return ConfigError(f"{subject} is no kind of GPU; {hint}")


def _forms(name: str, known: Iterable[str]) -> list[str]:
    """Return the names that are ``name`` or a form of it, such as ``h100-sxm`` of ``H100``."""
    wanted = name.lower()
    return [name for name in known if name.lower() == wanted or name.lower().startswith(f"{wanted}-")]


def _large(roles: Mapping[str, str]) -> str:
    """Return the model that makes an image in full: the first role's."""
    return next(iter(roles.values()))


def _with_profiles(
    needed: set[str], family: Mapping[str, Mapping[str, str]], profiled: Sequence[set[str]]
) -> list[str]:
    """Return the choices of ``family`` with the needed roles, and the fewest, whose models have profiles.

    On two kinds of GPU, the first needs one of the first role's model, and the second those of the others.
    Raises _LeftOut if there are none.
    """
    fits = {name: list(roles.values()) for name, roles in family.items() if needed <= set(roles)}
    if not fits:
        raise _LeftOut(f"no models= has a {' and a '.join(sorted(needed))} model")
    fewest = min(map(len, fits.values()))
    models = {name: fit for name, fit in fits.items() if len(fit) == fewest}
    ready = []
    for name, (large, *rest) in models.items():
        wanted = [{large}, set(rest)] if len(profiled) > 1 and rest else [{large, *rest}] * len(profiled)
        if all(names <= known for names, known in zip(wanted, profiled, strict=True)):
            ready.append(name)
    if not ready:
        raise _LeftOut(f"no profile of {' or '.join(' and '.join(names) for names in models.values())}")
    return ready


def _roles(config: Mapping[str, Any]) -> set[str]:
    """Return the roles that the parts of ``config`` name."""
    roles = set()
    for key, value in config.items():
        if isinstance(value, Mapping) and key != "models":
            roles |= _roles(value)
        elif isinstance(value, str) and (key == "role" or key.endswith("_role")):
            roles.add(value)
    return roles
