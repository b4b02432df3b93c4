"""Candidates of a plan: every design on every kind of GPU that has the measured times for it."""

import itertools
import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from mezzotint.backends.base import BackendError, size_text
from mezzotint.backends.profile import Profile, find, shipped
from mezzotint.backends.scaling import Scaled, Scaling, scale, way_on
from mezzotint.backends.scaling import parse as parse_scalings
from mezzotint.files.document import parse
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.gpu import Gpu
from mezzotint.sim.metrics.cost import PaidService, Price, gpu_price, read_prices
from mezzotint.sim.plan.candidate import BASELINES, Candidate, Start
from mezzotint.sim.plan.options import Options
from mezzotint.sim.plan.rate import rate_key
from mezzotint.sim.plan.traffic import Traffic, find_starts
from mezzotint.sim.run.config.build import build
from mezzotint.sim.run.config.choices import CONF, choices, engine_models, gpus
from mezzotint.sim.run.config.compose import compose_config, resolve_config
from mezzotint.sim.run.config.options import files_of, prepare_overrides
from mezzotint.sim.run.config.plugins import TARGET
from mezzotint.sim.run.config.settings import check
from mezzotint.sim.run.gpus import check_assumed
from mezzotint.sim.run.simulate import assemble

CACHES = ("nirvana", "modm-quality", "modm-throughput")
"""Designs with a cache of a plan that names none, for images of requests with prompts."""

ADDONS = ("diffusers", "swiftdiffusion")
"""Designs of a plan that names none, for requests with ControlNets or LoRAs and profiles with their times."""

DEGREES = ("xdit group_policy.degree={}", "edf-best-fit")
"""Designs of GPUs in groups of a plan that names none, for profiles with times of groups; {} is a number of GPUs."""

MAX_BATCH = 8
"""Largest batch of the batch server of a plan that names no design: NVIDIA's setting."""

BITS = {"bfloat16": 16, "float16": 16, "float32": 32}
"""Bits of a number of a precision whose name does not say them."""

FEW = (1, 2, 3, 4, 6, 8)
"""Numbers of the first kind of GPU in clusters of two kinds."""


SET = ("assume", "cluster", "cluster.count", "seed", "slo", "models", "system", "run.dir")
"""Settings that a plan makes itself."""


def check_free(words: Iterable[str], where: str = "") -> None:
    """Raise ConfigError if one of the overrides ``words`` sets or takes away what the plan sets."""
    for word in words:
        if word.lstrip("+~").partition("=")[0].partition("@")[0] in SET:
            raise ConfigError(
                f"{where}{word}: the plan sets it; use --gpu, --design, --model, --rate-rpm, --assume or -o"
            )


class _LeftOut(Exception):
    """The reason why a design is not planned on a kind of GPU."""


def find_candidates(options: Options, traffic: Traffic, words: Sequence[str]) -> tuple[list[Candidate], list[str]]:
    """Return the candidates, and a line for each choice that the plan made and for what is left out, with the reason.

    The baseline is planned on every kind of GPU, for each work that another candidate does.

    Args:
        words: overrides of every run.

    Raises ConfigError: no model or kind of GPU has that name, or nothing is left.
    """
    catalogue = _Catalogue(options, traffic, words)
    notes = [*catalogue.notes, *catalogue.use_own_shapes()]
    found: list[_Composed] = []
    left_out: dict[str, dict[str, list[str]]] = {}  # reason -> kinds of GPUs -> designs
    named = [name for design in options.design or () for name in _expand(design)]
    for kinds in catalogue.clusters:
        designs = named or catalogue.designs(kinds)
        baselines: list[_Composed] = []
        for design in [*designs, *([] if set(designs) & set(BASELINES) else [catalogue.baseline])]:
            try:
                (baselines if design in BASELINES else found).extend(catalogue.combine(design, kinds))
            except _LeftOut as reason:
                left_out.setdefault(str(reason), {}).setdefault("+".join(kinds), []).append(design)
        works = {composed.candidate.work for composed in found}
        # One of each design and work: several choices of models= may have the same large model.
        of_works: dict[tuple[str, str], _Composed] = {}
        for composed in baselines:
            if composed.is_usual or composed.candidate.work in works:
                of_works.setdefault((composed.candidate.design, composed.candidate.work), composed)
        found += of_works.values()
    notes += _explain(left_out)
    if not found:
        raise ConfigError(f"plan: nothing is left to compare: {'; '.join(notes) or 'no design or GPU was named'}")
    candidates, same = _distinct(found)
    starts, earlier, said = find_starts(
        traffic,
        max(candidate.period_s for candidate in candidates),
        has_cache=options.cache != "empty" and any(candidate.cache for candidate in candidates),
    )
    if options.cache == "empty":
        starts = dict.fromkeys(starts, starts["empty"])
    return [replace(candidate, warmed_by=earlier, _starts=starts) for candidate in candidates], [*notes, *same, *said]


def _explain(left_out: Mapping[str, Mapping[str, Sequence[str]]]) -> list[str]:
    """Return a line for each reason why designs are left out on kinds of GPUs."""
    lines = []
    for why, designs_of in left_out.items():
        kinds_of: dict[tuple[str, ...], list[str]] = {}
        for cluster, names in designs_of.items():
            kinds_of.setdefault(tuple(names), []).append(cluster)
        named = []
        for names, kinds in kinds_of.items():
            is_all = set(BASELINES) & set(names)  # a kind without the baseline has nothing
            designs = "" if is_all else f"{', '.join(names)} on "
            named.append(f"{designs}{', '.join(kinds)}")
        lines.append(f"left out: {'; '.join(named)}: {why}")
    return lines


@dataclass(frozen=True, slots=True)
class _Composed:
    """A candidate, what makes it differ from others, and True if its model's steps and size are the usual ones."""

    candidate: Candidate
    key: str
    is_usual: bool


def _distinct(found: Sequence[_Composed]) -> tuple[list[Candidate], list[str]]:
    """Return the candidates without those that are composed as an earlier one, and a line for each design of these."""
    kept: dict[str, Candidate] = {}
    same: dict[str, None] = {}
    for composed in found:
        first = kept.setdefault(composed.key, composed.candidate)
        if first.design != composed.candidate.design:
            same[f"{composed.candidate.design} is the same as {first.design}, and planned once"] = None
    return list(kept.values()), list(same)


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

    def __init__(self, options: Options, traffic: Traffic, words: Sequence[str]) -> None:
        self._files, self._words = files_of(options.config_dir, None, "config"), list(words)
        self._traffic, self._wants_all, self._cache = traffic, not options.gpu, options.cache
        folders = [shipped()]
        if options.profiles is not None:
            folders.append(options.profiles)
            self._words.append(f"backend.folder={options.profiles}")
        self._gpus = self._known_gpus()
        self._prices: dict[str, Price | None] = {kind: gpu_price(gpu) for kind, gpu in self._gpus.items()}
        own_prices = self._own_prices(options.prices)
        self._prices |= own_prices
        self.clusters = _clusters(options.gpu, self._gpus)
        self._folders = folders
        self._scalings = self._declare_scalings(options.assume)
        self._made: list[Scaled] = []
        self._profiles = {kind: self._find_profiles(kind) for kinds in self.clusters for kind in kinds}
        self._measured = {kind: set(profiles) for kind, profiles in self._profiles.items()}
        asked = [name for option in options.gpu for name in option.split("+")] or list(self._measured)
        self._family, self.notes = self._models(options.model, asked)
        self.notes += [
            f"--prices: {kind} is the price of {kind} alone, and {form} is a kind of its own; give it a line"
            for kind in own_prices
            for form in _forms(kind, self._measured)
            if form not in own_prices and self._measured[form] & {_large(roles) for roles in self._family.values()}
        ]
        self._large = _large(next(iter(self._family.values())))
        rests = itertools.chain.from_iterable(made.assumptions([self._large]) for made in self._made)
        self.notes += [f"{one.what}: {one.value}; {one.source}" for one in rests]
        self._plain: dict[tuple[str, ...], dict[str, Any]] = {}
        self._coverage: dict[str, str | None] = {}
        self._takes_own_shapes = False

    def _declare_scalings(self, assume: Sequence[str]) -> list[Scaling]:
        """Return the declared scalings, and have all runs take them. Raises ConfigError for a wrong one."""
        if not assume:
            return []
        text = ",".join(assume)
        check_assumed(text, {gpu.name for gpu in self._gpus.values()}, self._folders)
        self._words.append(f"assume={text}")
        return parse_scalings(text)

    def _find_profiles(self, kind: str) -> dict[str, Profile]:
        """Return the profiles of a kind of GPU by model, the scaled ones among them."""
        name = self._gpus[kind].name
        profiles = find(name, self._folders)
        for scaling in self._scalings:
            if scaling.gpu == name:
                self._made.append(scale(scaling, profiles, self._folders))
                profiles |= self._made[-1].profiles
        return profiles

    def _explain_no_profile(self, kind: str) -> str:
        """Return that no profile is known on a kind of GPU; if that was asked for, also the nearest kinds with one."""
        family = f"no profile of {self._large}"
        if self._wants_all:
            return family
        if there := [name for name in self._variants if name in self._profiles[kind]]:
            return f"{family} on {kind}, which has one of {', '.join(there)}: give --gpu {kind} alone to plan that"
        way = way_on(self._gpus[kind].name, self._variants, self._folders, "--assume ")
        return f"{family} on {kind}; {way}"

    @property
    def baseline(self) -> str:
        """The design that savings refer to: add-ons are served if the requests ask for some and a profile has times."""
        return ADDONS[0] if self._serves_addons(itertools.chain.from_iterable(self.clusters)) else BASELINES[0]

    def designs(self, kinds: Sequence[str]) -> list[str]:
        """Return the designs of a plan that names none, on a kind of GPU or two."""
        if self._serves_addons(kinds):
            return list(ADDONS)
        profile = self._profiles[kinds[0]].get(self._large)
        makes_videos = profile is not None and any(point.frames > 1 for point in profile.step)
        designs = [BASELINES[0], *(CACHES if self._traffic.has_prompts and not makes_videos else ())]
        if len(kinds) == 1 and profile is not None:
            cap = min(max((point.batch for point in profile.step), default=1), MAX_BATCH)
            if cap > 1:
                designs.insert(1, "batch-server" + ("" if cap == MAX_BATCH else f" scheduler.max_batch={cap}"))
            degrees = sorted(profile.group_tables)
            designs += dict.fromkeys(design.format(degree) for design in DEGREES for degree in degrees)
        return designs

    def use_own_shapes(self) -> list[str]:
        """Run the requests at the log's own sizes and steps if a profile covers them; return a line on it.

        Kinds of GPUs whose profiles do not cover them are then left out, since they would do other work.
        """
        columns = self._traffic.own_shapes
        if not columns or any(word.lstrip("+").startswith("shapes=") for word in self._words):
            return []
        names, where = ", ".join(columns), self._traffic.name
        self._words.append("shapes=trace")
        self._takes_own_shapes = True
        reasons = [
            self._explain_no_coverage(kind)
            for kinds in self.clusters
            for kind in kinds
            if self._large in self._measured[kind]
        ]
        if not reasons or None in reasons:
            return [f"{where}: its own {names} are used; shapes=model takes those of {self._large} for every request"]
        self._words[-1], self._takes_own_shapes = "shapes=model", False
        return [
            f"{where}: its own {names} are not used, but those of {self._large}, since no profile covers them: "
            f"{reasons[0]}"
        ]

    def combine(self, design: str, kinds: Sequence[str]) -> list[_Composed]:
        """Return the candidates of a design on a kind of GPU or two. Raises _LeftOut if there are none."""
        family, profiled = self._family, [self._measured[kind] for kind in kinds]
        if not any(set(roles.values()) & models for roles in family.values() for models in profiled):
            raise _LeftOut(self._explain_no_profile(kinds[0]))
        prices = {kind: price for kind in kinds if (price := self._prices[kind]) is not None}
        if len(prices) < len(kinds) and self._wants_all:
            raise _LeftOut("no price is known; name the kind with --gpu for a count without one, or give --prices")
        if self._takes_own_shapes and (reason := self._explain_no_coverage(kinds[0])) is not None:
            raise _LeftOut(f"{reason}; shapes=model plans all requests at the size and the steps of the model")
        system, *settings = design.split()
        words = [f"system={system}", *settings, *self._words]
        first, *others = kinds
        plain = self._design(tuple(words))
        has_cache = plain.get("cache") is not None and plain.get("hits") is None
        if has_cache and not self._traffic.has_prompts:
            raise _LeftOut(
                f"{self._traffic.name} has no prompts to find in a cache; hits=declared hits.hit_rate=0.4 declares a "
                "hit rate"
            )
        needed = _roles(plain) | {"large"}
        names = _with_profiles(needed, family, profiled, every_work=design in BASELINES)
        gpus = {kind: self._gpus[kind] for kind in kinds}
        gpus |= {kind: replace(gpus[kind], usd_per_gpu_h=price.usd_per_gpu_h) for kind, price in prices.items()}
        services = {key: PaidService(**value) for key, value in (plain["system"].get("services") or {}).items()}
        controller = plain.get("controller") or {}
        rents = "startup_s" in controller  # of a controller that orders GPUs while a run goes on
        cache: Start | None = None if not has_cache else "empty" if self._cache == "empty" else "warm"
        is_plain = plain.get("cache") is None and str(plain["executor"][TARGET]).endswith(".Sequential")
        can_repeat = not has_cache and plain.get("group_policy") is None
        composed = []
        for name, few in itertools.product(names, FEW if others else (0,)):
            config = self._compose(*words, f"cluster={'pools' if few else first}", f"models={name}")
            with open_dict(config):
                config.run = {"dir": "unnamed"}
                if few:
                    roles = list(family[name]) if len(family[name]) > 1 else [None, None]
                    config.cluster.pools = [
                        {"gpu": asdict(gpu), "count": few, "role": role}
                        for gpu, role in zip(gpus.values(), roles, strict=False)
                    ]
                elif first in prices:
                    config.cluster.gpu.usd_per_gpu_h = prices[first].usd_per_gpu_h
            service = float(OmegaConf.select(config, "backend.service_factor"))
            candidate = Candidate(
                design, kinds[-1], name, (first, few) if few else None, prices, rents, gpus, services, config,
                *rate_key(config), service, is_plain, can_repeat, self._work(config, first), cache,
                step=_group_size(plain),
                period_s=_longest_period_s(controller), scaled=self._scaled_kinds(kinds, family[name]),
            )  # fmt: skip
            composed.append(_Composed(candidate, _key(config, needed), name == names[0]))
        return composed

    def _scaled_kinds(self, kinds: Sequence[str], roles: Mapping[str, str]) -> frozenset[str]:
        """Return the kinds of GPUs on which a model of ``roles`` has scaled times."""
        bases = {
            kind: {of.basis for name, of in self._profiles[kind].items() if name in roles.values()} for kind in kinds
        }
        return frozenset(kind for kind, known in bases.items() if "scaled" in known)

    def _design(self, words: tuple[str, ...]) -> dict[str, Any]:
        """Return the resolved configuration of a design, on any kind of GPU."""
        if words not in self._plain:
            first, family = self.clusters[0][0], next(iter(self._family))
            self._plain[words] = resolve_config(self._compose(*words, f"cluster={first}", f"models={family}"))
        return self._plain[words]

    def _serves_addons(self, kinds: Iterable[str]) -> bool:
        """Return True if requests ask for add-ons, and a profile of one of ``kinds`` has times of them."""
        profiles = (self._profiles[kind].get(self._large) for kind in kinds)
        return self._traffic.has_addons and any(
            profile is not None and (profile.lora is not None or profile.controlnet is not None) for profile in profiles
        )

    def _explain_no_coverage(self, kind: str) -> str | None:
        """Return why the profile of the large model on ``kind`` does not cover the requests; None if it does."""
        if kind not in self._coverage:
            config = resolve_config(
                self._compose(*self._words, f"cluster={kind}", f"models={next(iter(self._family))}")
            )
            try:
                assemble(check(config), trace=self._traffic.trace)
            except (BackendError, ConfigError) as error:
                self._coverage[kind] = " ".join(str(error).split())
            else:
                self._coverage[kind] = None
        return self._coverage[kind]

    def _work(self, config: DictConfig, kind: str) -> str:
        """Return what a request asks of the cluster, in words."""
        model = OmegaConf.to_container(config.models.large if "large" in config.models else config.models)
        assert isinstance(model, dict)
        name = str(model["name"])
        shape = f"{size_text(model['width'], model['height'], model.get('frames', 1))}, {model['steps']} steps"
        if config.shapes == "trace":
            shape = self._traffic.shapes_text({str(key): value for key, value in model.items()})
        profile = self._profiles[kind].get(name)
        addons = ", without its add-ons" if self._traffic.has_addons and _addons(config) == "ignore" else ""
        return f"{name}, {shape}, {_precision(None if profile is None else profile.dtype)}{addons}"

    def _compose(self, *words: str) -> DictConfig:
        """Compose ``words`` with the user's files. Raises ConfigError if they do not compose."""
        try:
            return compose_config(prepare_overrides([*words, "run.dir=unnamed"]), self._files)
        except (HydraException, OmegaConfBaseException) as error:
            raise ConfigError(f"plan: {' '.join(words)}: {' '.join(str(error).split())}") from None

    def _users_choices(self, group: str) -> list[str]:
        """Return the user's own choices of a group."""
        return [choice.name for choice in choices(group, self._files.groups) if choice.is_users]

    def _known_gpus(self) -> dict[str, Gpu]:
        """Return every kind of GPU: the shipped ones, and those of the user's own choices of ``cluster=``."""
        nodes = {kind: settings["cluster"]["gpu"] for kind, settings in gpus().items()}
        for kind in self._users_choices("cluster"):
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
            name: resolve_config(self._compose(f"models={name}"))["models"] for name in self._users_choices("models")
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
            self._variants = [_large(every[model])]
            return {model: every[model]}, []

        def count_measured(name: str) -> int:
            measured = self._measured
            return sum(any(name in measured[kind] for kind in _forms(gpu, measured)) for gpu in asked)

        variants = [name for name in _forms(model, larges) if name == model or name not in engine_models()]
        self._variants = variants
        best = max(variants, key=lambda name: (count_measured(name), name == model), default=None)
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
    needed: set[str], family: Mapping[str, Mapping[str, str]], profiled: Sequence[set[str]], *, every_work: bool
) -> list[str]:
    """Return the choices of ``family`` with the needed roles, and the fewest, whose models have profiles.

    On two kinds of GPU, the first needs one of the first role's model, and the second those of the others.

    Args:
        every_work: return those with more roles too, after the fewest, if the first role alone is needed.

    Raises _LeftOut if there are none.
    """
    fits = {name: list(roles.values()) for name, roles in family.items() if needed <= set(roles)}
    if not fits:
        raise _LeftOut(f"no models= has a {' and a '.join(sorted(needed))} model")
    fewest = min(map(len, fits.values()))
    models = {name: fit for name, fit in fits.items() if len(fit) == fewest}
    if every_work:
        models |= {name: fit[:1] for name, fit in fits.items() if name not in models}
    ready = []
    for name, (large, *rest) in models.items():
        wanted = [{large}, set(rest)] if len(profiled) > 1 and rest else [{large, *rest}] * len(profiled)
        if all(names <= known for names, known in zip(wanted, profiled, strict=True)):
            ready.append(name)
    if not ready:
        raise _LeftOut(f"no profile of {' or '.join(dict.fromkeys(' and '.join(names) for names in models.values()))}")
    return ready


def _group_size(config: Mapping[str, Any]) -> int:
    """Return the number of GPUs that numbers of GPUs of a design are multiples of."""
    policy, controller = (config.get(part) or {} for part in ("group_policy", "controller"))
    degrees = [policy.get("degree"), *(policy.get("degree_by_size") or {}).values(), controller.get("degree")]
    if groups := re.fullmatch(r"(\d*)x(\d+)", str(policy.get("groups"))):
        degrees.append(int(groups[1] or 1) * int(groups[2]))
    return math.lcm(*(degree for degree in degrees if isinstance(degree, int) and degree > 0))


def _longest_period_s(controller: Mapping[str, Any]) -> float:
    """Return the longest time between two decisions of a controller, seconds; 0 if it has none."""
    own = controller.get("period_s")
    return float(own) if isinstance(own, int | float) else 0.0


def _key(config: DictConfig, roles: set[str]) -> str:
    """Return what is equal for candidates whose runs are equal: the configuration with the models that it uses."""
    plain = resolve_config(config)
    plain["models"] = {role: model for role, model in plain["models"].items() if role in roles}
    plain["system"] = {key: value for key, value in plain["system"].items() if key in ("addons", "services")}
    return json.dumps(plain, sort_keys=True, default=str)


def _addons(config: DictConfig) -> str:
    return str(OmegaConf.select(config, "addons"))


def _precision(dtype: str | None) -> str:
    """Return the bits of the smallest numbers of ``dtype``, such as ``8 bit`` for fp8 and int8."""
    bits = [BITS.get(name, int(re.sub(r"\D", "", name) or 0)) for name in re.findall(r"[a-z]+\d+", dtype or "")]
    return f"{min(bits)} bit" if bits else "precision not stated"


def _roles(config: Mapping[str, Any]) -> set[str]:
    """Return the roles that the parts of ``config`` name."""
    roles = set()
    for key, value in config.items():
        if isinstance(value, Mapping) and key != "models":
            roles |= _roles(value)
        elif isinstance(value, str) and (key == "role" or key.endswith("_role")):
            roles.add(value)
    return roles
