"""Try every pair of parts, and write what works to parts.yaml: ``python -m docs.reference.parts``.

A pair is two choices of different groups of conf/, such as executor=stages and controller=autoscale-pending. It runs
with what each of the two needs (`NEEDS`), on a workload on which every part has something to do (`made_trace`), and
with made-up times (`PROFILES`), so that no pair is refused for want of measurements. ``docs.reference.make`` makes the
page parts.md of parts.yaml, and tests/sim/laws/test_matrix.py holds parts.yaml to what runs do.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import yaml
from omegaconf import DictConfig, OmegaConf

from mezzotint.backends.base import BackendError
from mezzotint.files.document import parse
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.run.config.choices import CONF, check_groups, choices, groups
from mezzotint.sim.run.config.compose import compose_config
from mezzotint.sim.run.simulate import Outcome, simulate, write
from mezzotint.traces.table.trace import Trace, make

DATA = Path(__file__).with_name("parts.yaml")

Chosen = dict[str, str]
"""Group -> choice."""


class Part(NamedTuple):
    """A choice of a group."""

    group: str
    choice: str

    def __str__(self) -> str:
        return f"{self.group}={self.choice}"


GROUPS = (
    "executor", "scheduler", "router", "discipline", "group_policy", "frontend", "feature_cache", "batching",
    "controlnet_placement", "lora_loading", "kernels", "allocation", "residency", "controller", "failures",
)  # fmt: skip
"""The groups of conf/ whose choices are paired."""

FLAGS: Mapping[Part, Mapping[str, Any]] = {
    Part("addons", "serve"): {"addons": "serve"},
    Part("handling", "held"): {"handling": {"before_s": 0.1, "after_s": 0.3, "overlap": False, "by_size": None}},
}
"""What is paired besides, and the keys of the configuration that it sets."""

ABSENT = ("none", "plain")
"""Choices that stand for no part."""

CACHED = {"index": "immediate", "store": "files", "match_predictor": "none"}
NIRVANA = {"cache": "nirvana", "similarity": "text-to-text", "selector": "nirvana", "admission": "misses"}
IMAGES = {"cache": "pinecone", "similarity": "text-to-text", "selector": "pinecone", "admission": "misses"}
MODM = {"cache": "modm", "similarity": "text-to-image", "selector": "modm", "admission": "cache-large"}
CASCADE = {"allocation": "cascade", "executor": "static-batch", "scheduler": "random-dispatch"}

BATCHING = ("dynamic-batching", "mlperf-batching", "random-dispatch")
"""Schedulers that need an executor of large batches."""

NEEDS: Mapping[str, Mapping[str, str]] = {
    "executor=continuous-batching": {"batching": "same-size"},
    "scheduler=stages": {"executor": "stages", "group_policy": "edf-best-fit"},
    "scheduler=central": {"discipline": "fifo"},
    "scheduler=per-worker": {"router": "least-requests", "discipline": "fifo"},
    "scheduler=hit-miss": {"frontend": "modm", "allocation": "last-small"},
    "scheduler=hit-miss-shared": {"frontend": "modm", "allocation": "last-small"},
    "scheduler=hit-miss-per-worker": {"frontend": "modm", "allocation": "last-small"},
    "scheduler=dynamic-batching": {"executor": "static-batch"},
    "scheduler=mlperf-batching": {"executor": "static-batch"},
    "scheduler=random-dispatch": {"frontend": "cascade-sd-turbo", "executor": "static-batch"},
    "scheduler=resident-first": {"frontend": "by-base-model"},
    "router=by-model": {"frontend": "by-base-model"},
    "allocation=pinned": {"frontend": "by-base-model", "scheduler": "resident-first"},
    "allocation=static-by-popularity": {"frontend": "by-base-model", "scheduler": "resident-first"},
    "residency=*": {"frontend": "by-base-model"},
    "router=by-addons": {"addons": "serve", "executor": "continuous-batching"},
    "discipline=shortest-remaining": {"executor": "continuous-batching", "latency_predictor": "known"},
    "discipline=slack": {"executor": "continuous-batching", "latency_predictor": "known"},
    "discipline=one-resolution": {"executor": "continuous-batching"},
    "discipline=pixel-budget": {"executor": "continuous-batching"},
    "group_policy=*": {"scheduler": "stages", "estimates": "perfect"},
    "frontend=nirvana": NIRVANA | CACHED | {"eviction": "lcbfu"},
    "frontend=pinecone": IMAGES | CACHED | {"eviction": "fifo"},
    "frontend=gpt-cache": IMAGES | CACHED | {"eviction": "fifo"},
    "frontend=modm": MODM | CACHED | {"eviction": "fifo", "scheduler": "hit-miss", "allocation": "last-small"},
    "frontend=cascade-sd-turbo": CASCADE,
    "frontend=cascade-sdxs": CASCADE,
    "controlnet_placement=*": {"addons": "serve"},
    "controlnet_placement=service": {"addons": "serve", "scheduler": "stages", "allocation": "controlnet-servers"},
    "controlnet_placement=shared": {"addons": "serve", "allocation": "controlnet-servers"},
    "lora_loading=*": {"addons": "serve"},
    "lora_loading=async": {"addons": "serve", "lora_fetch": "link"},
    "allocation=cascade": {"frontend": "cascade-sd-turbo"},
    "allocation=controlnet-servers": {"controlnet_placement": "shared"},
    "allocation=last-small": {"frontend": "modm"},
    "allocation=fixed-split": {"frontend": "modm"},
    "allocation=uniform-small": {"frontend": "direct-small"},
    "frontend=direct-small": {"allocation": "uniform-small"},
    "controller=diffserve": {"frontend": "cascade-sd-turbo"},
    "controller=modm-*": {"frontend": "modm", "scheduler": "hit-miss-shared", "allocation": "uniform-large"},
    "controller=timetable": {"frontend": "modm", "scheduler": "hit-miss-shared", "allocation": "uniform-large"},
}
"""Choice -> choices that it is tried with, unless the other of a pair says otherwise, besides ``with`` of its group."""

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "executor=static-batch": {"max_batch": 32},
    "discipline=fifo-limits": {"max_running": 2},
    "allocation=pinned": {"models": 1},
    "failures=outages": {"outages": {1: [[2.0, 30.0]], 3: [[1.0, 20.0]]}},
    "failures=crashes": {"crashes": {1: [2.0, 30.0], 3: [1.0]}},
    "failures=random": {"mean_up_s": 20.0, "mean_down_s": 20.0},
    "controller=autoscale-*": {"startup_s": 2.0, "period_s": 2.0, "start_gpus": 2},
    "controller=autoscale-foresight": {"startup_s": 2.0},
    "controller=modm-*": {"period_s": 10.0},
    "controller=timetable": {"at": {3.0: {"large": 5, "small": 3}}},
    "group_policy=pools": {"pools": {"text-encoder": 1, "denoiser": 6, "vae": 1}},
    "group_policy=rssp-*": {"degree_by_size": {"512x512": 1, "768x768": 4, "1024x1024": 4}},
    "controlnet_placement=shared": {"placement": [["net-0"], ["net-1"]]},
}

SIZES, STEPS = (512, 768, 1024), 50
DEGREES = {1: 1.0, 2: 0.6, 4: 0.4, 8: 0.3}
"""GPUs of a group -> seconds of a step on it over those on one GPU."""


def _profile(model: str, factor: float) -> dict[str, Any]:
    """Return made-up times of ``model``, ``factor`` times the large model's."""

    def points(seconds: float, **more: Any) -> list[dict[str, Any]]:
        batches = (1,) if "gpus" in more else (1, 32)
        return [
            {"width": side, "height": side, "batch": batch, **more}
            | {"seconds": round(factor * seconds * (side / 1024) ** 1.5 * (0.5 + 0.5 * batch), 6)}
            for side, batch in product(SIZES, batches)
        ]

    return {
        "schema": 1, "model": model, "gpu": "h100", "source": "made up, for every pair of parts", "basis": "assumed",
        "step": points(0.08),
        "gang_step": [
            point for gpus, share in DEGREES.items() if gpus > 1 for point in points(0.08 * share, gpus=gpus)
        ],
        "text_encode": [{"batch": 1, "seconds": 0.03}],
        "vae_encode": points(0.07),
        "vae_decode": points(0.1),
        "controlnet_step": [point for nets in (1, 2) for point in points(0.03 * nets, nets=nets)],
        "apart": [
            {"gpus": gpus, "width": side, "height": side}
            | {"encoder_s": 0.03 * share, "controlnet_s": 0.04 * share, "receive_s": 0.001}
            for (gpus, share), side in product(DEGREES.items(), SIZES)
        ],
        "kernels": {"cuda-graphs": 1.06, "geglu": 1.06, "groupnorm-silu": 1.07},
        "controlnet": {"bytes": 2_500_000_000, "load_s": 0.3},
        "lora": {"bytes": 340_000_000, "read_s": 0.4, "attach_s": 1.0, "fuse_s": 0.1, "unfuse_s": 0.3}
        | {"patch_s": 0.1, "copy_s": 0.05},
        "load_s": 1.0, "weights_bytes": 7_000_000_000,
        "patched": {"side": 256, "base_s": 0.03 * factor, "patch_s": 0.002 * factor, "size_s": 0.01, "halo_s": 3e-5}
        | {"source": "made up"},
    }  # fmt: skip


PROFILES = (_profile("sdxl", 1.0), _profile("sd3-medium", 0.5))
MODELS = {
    role: {"_target_": "mezzotint.sim.core.model.Model", "name": name, "steps": STEPS, "width": 1024, "height": 1024}
    for role, name in (("large", "sdxl"), ("small", "sd3-medium"), ("heavy", "sdxl"), ("light", "sd3-medium"))
}
OTHER_MODELS = {"cascade": ("heavy", "light"), "": ("large", "small")}
"""The beginning of a front end's name -> the roles of the models that it takes."""


PRELOAD = 8
"""First requests, which fill caches and are not served."""


def _new_prompt(row: int) -> str:
    return hashlib.sha256(str(row).encode()).hexdigest()


@cache
def made_trace() -> Trace:
    """Return requests of three sizes with prompts that return, ControlNets and a LoRA: a burst, a pause, a trickle."""
    arrivals_s = [0.0] * PRELOAD + [0.05 * row for row in range(36)] + [60.0 + row for row in range(12)]
    rows = range(len(arrivals_s))
    words = ("a red fox in snow", "a city at night", "a bowl of fruit", "portrait of a sailor")
    sides = [SIZES[row * 2 % 3] for row in rows]
    return make(
        {
            "request_id": [f"r{row}" for row in rows], "arrival_s": arrivals_s,
            "prompt": [words[row % 4] if row % 3 or row < PRELOAD else _new_prompt(row) for row in rows],
            "width": sides, "height": sides, "steps": [STEPS] * len(rows),
            "controlnets": [[f"net-{row % 2}"] if row % 3 else [] for row in rows],
            "loras": [["lora"] for row in rows],
            "priority": [row % 2 for row in rows],
            "user_id": [f"u{row % 5}" for row in rows],
            "base_model": [f"base-{row % 7 % 3}" for row in rows],
        },
        name="made up", source="made up, for every pair of parts", notes={"synthetic": True},
    )  # fmt: skip


@cache
def scratch() -> TemporaryDirectory[str]:
    """Return a folder with the made-up profiles, removed at the end of the process."""
    folder = TemporaryDirectory()
    for profile in PROFILES:
        (Path(folder.name) / f"{profile['model']}.yaml").write_text(yaml.safe_dump(profile, sort_keys=False))
    return folder


@cache
def base() -> dict[str, Any]:
    """Return the configuration that the parts are set in: vanilla on eight GPUs, with the made-up times."""
    words = ("run.dir=unused", "models=sdxl", "cluster=h100", "cluster.count=8", "arrivals=trace", "trace.requests=9")
    plain = OmegaConf.to_container(compose_config([*words, f"backend.folder={scratch().name}"]), resolve=True)
    return plain | {"shapes": "trace", "sample_s": 1.0, "slo": ["2x"], "preload": PRELOAD}  # type: ignore[operator,no-any-return]


@cache
def parts() -> tuple[Part, ...]:
    """Return every choice that is paired, by group."""
    chosen = (Part(group, choice.name) for group in GROUPS for choice in choices(group) if choice.name not in ABSENT)
    return (*chosen, *FLAGS)


def _of(table: Mapping[str, Mapping[str, Any]], part: Part) -> Mapping[str, Any]:
    """Return what ``table`` says of ``part``: its own row, else that of a name whose end is *."""
    if str(part) in table:
        return table[str(part)]
    return next((row for name, row in table.items() if name[-1] == "*" and str(part).startswith(name[:-1])), {})


def with_needs(*pair: Part) -> Chosen:
    """Return the choices of a run of ``pair``: these, and what each needs, the first before the others."""
    chosen = {part.group: part.choice for part in pair}
    allowed = {part: {} if part in FLAGS else groups()[part.group].needs for part in pair}
    todo = list(pair)
    while todo:
        part = todo.pop(0)
        needed = dict(_of(NEEDS, part))
        for other, names in ({} if part in FLAGS else groups()[part.group].needs).items():
            common = [name for name in names if all(name in rows.get(other, names) for rows in allowed.values())]
            needed.setdefault(other, (common or names)[0])
        for group, choice in needed.items():
            if group not in chosen:
                chosen[group] = choice
                todo.append(Part(group, choice))
    return chosen


@cache
def _recorded() -> str:
    """Return the folder of a finished run with MoDM's monitor, from which hindsight plans."""
    folder = Path(scratch().name) / "recorded"
    write(run(with_needs(Part("controller", "modm-quality"))), folder)
    return str(folder)


@cache
def _whole() -> DictConfig:
    """Return `base` for interpolations; building it takes most of the time of a run."""
    return OmegaConf.create(base())


@cache
def _node(group: str, choice: str) -> dict[str, Any]:
    """Return the content of a choice's file with what it begins from."""
    content: dict[str, Any] = parse((CONF / group / f"{choice}.yaml").read_bytes()) or {}
    node: dict[str, Any] = {}
    for entry in content.pop("defaults", ["_self_"]):
        node |= content if entry == "_self_" else _node(group, entry)
    node = node | content
    if node.get("folder") == "???":
        node["folder"] = _recorded()
    whole = _whole()
    whole[group] = node | _of(SETTINGS, Part(group, choice))
    resolved = OmegaConf.to_container(whole[group], resolve=True)
    if group in base():
        whole[group] = base()[group]
    else:
        del whole[group]
    return resolved  # type: ignore[return-value]


def configuration(chosen: Chosen) -> dict[str, Any]:
    """Return the configuration of a run of ``chosen``. Raises ConfigError for a choice without what it applies with."""
    flags = [part for part in FLAGS if chosen.get(part.group) == part.choice]
    named = {group: choice for group, choice in chosen.items() if group in groups()}
    check_groups({"frontend": "direct-large", "scheduler": "fcfs", "executor": "sequential"} | named)
    config = base() | {group: _node(group, choice) for group, choice in named.items()}
    roles = next(row for name, row in OTHER_MODELS.items() if chosen.get("frontend", "").startswith(name))
    config["models"] = {role: MODELS[role] for role in roles}
    if chosen.get("group_policy") in ("pools", "colocated", "tridentserve"):
        config["executor"] = config["executor"] | {"stages": "disaggregated"}
    if chosen.get("executor") == "stages" and chosen.get("batching") == "patched":  # with batches to cut
        if chosen.get("group_policy") == "tetriserve":
            config["group_policy"] = config["group_policy"] | {"max_batch": 4}
        elif chosen.get("group_policy") in ("pools", "colocated"):
            names = {"text-encoder": 1, "denoiser": 4, "vae": 1}
            stages = [{"component": component, "max_batch": count} for component, count in names.items()]
            config["executor"] = config["executor"] | {"stages": stages}
    if chosen.get("executor") == "continuous-batching" and chosen.get("scheduler") not in BATCHING:
        config["executor"] = config["executor"] | {"max_batch": 2}  # so that requests queue
    for part in flags:
        config |= FLAGS[part]
    return deepcopy(config)


def run(chosen: Chosen) -> Outcome:
    """Run ``chosen``. Raises ConfigError or BackendError if it is refused."""
    return simulate(configuration(chosen), trace=made_trace())


class Tried(NamedTuple):
    """What became of a run: the words that refused it, or "" and the digest of each column of its results."""

    refusal: str
    results: Mapping[str, str] = {}


CONSTANT = "constant"


def _digest(values: list[Any]) -> str:
    """Return a digest of ``values``, or `CONSTANT` if all are equal."""
    return hashlib.sha256(repr(values).encode()).hexdigest() if len(set(map(str, values))) > 1 else CONSTANT


def _digests(outcome: Outcome) -> dict[str, str]:
    tables = {"requests": outcome.requests, "cluster": outcome.cluster}
    return {
        f"{name}.{column}": _digest(table[column].to_pylist())
        for name, table in tables.items()
        for column in table.column_names
    }


_tried: dict[tuple[tuple[str, str], ...], Tried] = {}


def try_chosen(chosen: Chosen) -> Tried:
    """Run ``chosen``, once in a process.

    Raises AssertionError if a request was lost: it failed, or has no outcome. Errors of another kind than a refusal
    pass.
    """
    key = tuple(sorted(chosen.items()))
    if key not in _tried:
        try:
            outcome = run(chosen)
        except (ConfigError, BackendError) as error:
            _tried[key] = Tried(str(error))
        else:
            ended = Counter(outcome.requests["outcome"].to_pylist())
            assert ended["completed"] + ended["discarded"] == len(made_trace()) - PRELOAD, (chosen, ended)
            _tried[key] = Tried("", _digests(outcome))
    return _tried[key]


def try_pair(*pair: Part) -> tuple[Chosen, Tried]:
    """Run ``pair`` with what the first needs before what the second needs; if that is refused, the other way round.

    Returns:
        The choices of the run that was not refused, else of the first, and what became of it.
    """
    ways = [with_needs(*pair), with_needs(*reversed(pair))]
    return next(
        ((chosen, tried) for chosen in ways if not (tried := try_chosen(chosen)).refusal),
        (ways[0], try_chosen(ways[0])),
    )


def pairs() -> Iterator[tuple[Part, Part]]:
    """Yield every pair of choices of different groups, in the order of `parts`."""
    return ((a, b) for a, b in combinations(parts(), 2) if a.group != b.group)


def differ(one: Tried, other: Tried) -> bool:
    """Return True if requests of ``one`` went otherwise than in ``other``, or a gauge that only it has moved."""
    mine, theirs = one.results, other.results
    moved = any(name not in theirs and mine[name] != CONSTANT for name in mine if name.startswith("cluster."))
    return moved or any(mine[name] != theirs[name] for name in mine.keys() & theirs.keys() if name.startswith("req"))


_NAMES = (
    (r"^(\w+)=[\w-]+:", r"\1:"),
    (r"\b(mezzotint\.[\w.]+|[A-Z][a-z]+[A-Z]\w+|Fcfs|Pools|Rounds|Direct|Cascade|Hindsight|Autoscaler)\b", "X"),
    (r"(found|lacks|role|needs an?|policy) ('?[\w-]+(=[\w-]+)?'?|\[.*?\])", r"\1 …"),
    (r"it lacks .*|\d+(\.\d+)?", "…"),
)


def kind_of(words: str) -> str:
    """Return the words of a refusal without the names of classes and choices and the numbers in them."""
    for pattern, plain in _NAMES:
        words = re.sub(pattern, plain, words)
    return words


@dataclass(slots=True)
class Refusal:
    """Words that refuse pairs, as of the first of them."""

    words: str
    pairs: list[tuple[Part, Part]] = field(default_factory=list)


def try_all() -> list[Refusal]:
    """Run every pair, and return those that are refused by their words."""
    refusals: dict[str, Refusal] = {}
    for pair in pairs():
        words = try_pair(*pair)[1].refusal
        if words:
            refusals.setdefault(kind_of(words), Refusal(words)).pairs.append(pair)
    return list(refusals.values())


def read_refusals() -> list[Refusal]:
    """Return what parts.yaml says."""
    rows = parse(DATA.read_bytes())
    return [
        Refusal(
            row["words"],
            [
                (Part(*one.split("=", 1)), Part(group, choice))
                for one, others in row["pairs"].items()
                for group, names in others.items()
                for choice in names.split()
            ],
        )
        for row in rows
    ]


def write_refusals(refusals: Iterable[Refusal]) -> None:
    """Write parts.yaml."""
    rows = []
    for refusal in refusals:
        of_part: dict[str, dict[str, str]] = {}
        for one, other in refusal.pairs:
            row = of_part.setdefault(str(one), {})
            row[other.group] = f"{row[other.group]} {other.choice}" if other.group in row else other.choice
        rows.append({"words": refusal.words, "pairs": of_part})
    head = "# The pairs of parts that are refused, and with which words: python -m docs.reference.parts\n"
    DATA.write_text(head + yaml.safe_dump(rows, sort_keys=False, width=120, allow_unicode=True), encoding="utf-8")


if __name__ == "__main__":
    write_refusals(try_all())
