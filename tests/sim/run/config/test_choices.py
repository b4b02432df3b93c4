"""A run's composition: groups, their choices, precedence, and how parts find each other."""

import inspect
import json
import os
import pickle
import subprocess
import sys
import typing
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import pytest
import yaml
from hydra import compose, initialize_config_module
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from mezzotint.backends.base import Backend
from mezzotint.sim.cache.cache import ArtifactCache
from mezzotint.sim.cache.eviction import Fifo, Lru
from mezzotint.sim.cli import main
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.gpu import Gpu
from mezzotint.sim.core.model import Model
from mezzotint.sim.frontend.cached import CachedFrontEnd
from mezzotint.sim.metrics.quality import Quality
from mezzotint.sim.protocols import Eviction, Scheduler
from mezzotint.sim.run.config.build import Parts, build
from mezzotint.sim.run.config.choices import CONF, choices, engine_models, gpus, groups
from mezzotint.sim.run.config.compose import Files, _choices, compose_config, compose_resolved, resolve_config
from mezzotint.sim.run.config.settings import PARTS, check
from mezzotint.sim.run.config.target import locate_class
from mezzotint.sim.run.gpus import pools
from mezzotint.traces.arrivals.base import Arrivals
from mezzotint.traces.similarity.search import Search
from mezzotint.traces.similarity.similarity_map import SimilarityMap
from mezzotint.traces.sources import Source
from tests.conftest import REPOSITORY
from tests.sim.lab import configured, simulated

KINDS: dict[str, Any] = {
    "trace": Source,
    "encoder": None,  # a name and a width may ask for files
    "similarity_map": SimilarityMap,
    "search": Search,
    "arrivals": Arrivals,
    "backend": Backend,
    "quality": Quality,
}
DESIGNS = [(group, choice.name) for group in ("system", "experiment") for choice in choices(group)]
OF_ENGINES = [*engine_models()]
"""Choices of models= that are all made from one table, not from files."""
SINGLE = {
    group: [choice.name for choice in choices(group) if choice.name not in OF_ENGINES[1:]]
    for group in groups()
    if group not in dict(DESIGNS)
}
NEEDED = {
    "trace=file": ["trace.path=t.parquet"],
    "controller=timetable": ["controller.at={0:{large:8,small:8}}"],
    "controller=modm-hindsight": ["controller.folder=f"],
    "failures=outages": ["failures.outages={0:[[600,900]]}"],
    "failures=crashes": ["failures.crashes={0:[600]}"],
    "hits=declared": ["hits.hit_rate=0.5"],
    "encoder=clip": ["encoder.weights=f"],
    "encoder=precomputed": ["encoder.path=v.npy", "encoder.prompts=p.parquet"],
    "arrivals=rates": ["arrivals.path=f"],
    "cluster=pools": ["backend.gpu=mi210"],
    "scheduler=per-worker": ["router=random"],
    "controller=diffserve": ["frontend=cascade-sd-turbo", "scheduler=random-dispatch", "scheduler.max_batch={}"],
    "controlnet_placement=service": ["controlnet_placement=inline"],  # built by the tests of its systems
    "controlnet_placement=shared": ["feature_cache=none"],
    **{
        f"discipline={name}": ["executor=continuous-batching"]
        for name in ("pixel-budget", "one-resolution", "shortest-remaining", "slack")
    },
    "similarity=text-to-clip-images": ["similarity.images.folder=f", "similarity.images.weights=f"],
    "similarity=text-to-given-images": ["similarity.images.path=v.npy"],
    "similarity=text-to-made-images": ["similarity.folder=f", "similarity.weights=f"],
}
"""The required groups, and the combinations of choices that are refused."""


def test_every_folder_of_choices_is_a_group() -> None:
    folders = {entry.name for entry in CONF.iterdir() if entry.is_dir() and not entry.name.startswith("_")}
    assert folders | {"cluster"} == {*groups(), "data"}
    config = yaml.safe_load((CONF / "config.yaml").read_text())
    chosen = [next(iter(entry)) for entry in config["defaults"] if isinstance(entry, dict)]
    assert [group for group in chosen if not group.startswith("override")] == [*groups()]


def test_needs_of_a_group_match_the_classes_that_take_it() -> None:
    """conf/groups.yaml states it once; the classes of our choices have the parameter."""
    for group, settings in groups().items():
        for other, allowed in settings.needs.items():
            takers = {choice.name for choice in choices(other) if group in _taken(_file_of(other, choice.name))}
            direct = takers or {
                "gpt-cache",
                "modm",
                "nirvana",
                "pinecone",
            }  # through the cache, with these front ends alone
            assert direct == set(allowed), group


def _file_of(group: str, choice: str) -> Any:
    """Return the file of a choice that names a class: its own, or the one that it builds on."""
    node = yaml.safe_load((CONF / group / f"{choice}.yaml").read_text(encoding="utf-8"))
    if node and "_target_" not in node and "defaults" in node:
        return _file_of(group, node["defaults"][0])
    return node


def _taken(node: Any) -> set[str]:
    """Return the groups for which the class of ``node`` has a parameter."""
    return set(inspect.signature(locate_class(node["_target_"], "it")).parameters) & {*PARTS} if node else set()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["router=random"], "router=random: applies only with scheduler=per-worker, found scheduler=fcfs"),
        (["eviction=lru"], "eviction=lru: applies only with frontend=gpt-cache or frontend=modm"),
        (
            ["lora_fetch=katz", "executor=continuous-batching", "lora_loading=sync"],
            "lora_fetch=katz: applies only with lora_loading=async",
        ),
        (
            ["batching=patched"],
            "batching=patched: applies only with executor=continuous-batching or executor=stages",
        ),
    ],
)
def test_group_without_the_choice_it_needs_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compose_config(words)


@pytest.mark.parametrize("turn", range(max(len(names) for group, names in SINGLE.items() if group != "cluster")))
def test_every_choice_composes_and_builds(turn: int) -> None:
    """Each composes, and its parts can be built: the first of every group, then the second of every group..."""
    words = [f"{group}={names[turn % len(names)]}" for group, names in SINGLE.items()]
    if "cluster=pools" in words:
        words[words.index(f"backend={SINGLE['backend'][turn % len(SINGLE['backend'])]}")] = "backend=profiled"
    if "backend=live" in words:
        pytest.importorskip("diffusers")
    words += [add for word in words for add in NEEDED.get(word, ())]
    if "scheduler=stages" in words:
        words += ["executor=stages", "discipline=fifo"]
    compose_config([])  # registers the kinds of GPUs with Hydra
    with initialize_config_module("mezzotint.conf", version_base="1.3"):  # as composed would refuse most combinations
        config = compose("config", overrides=["run.dir=unused", "system=modm-throughput", *words])
    settings = check(OmegaConf.to_container(config, resolve=True))
    assert all(build(node, f"models.{role}", Model) for role, node in settings.models.items())
    assert all(isinstance(pool.gpu, Gpu) for pool in pools(settings.cluster))
    for group, kind in KINDS.items():
        assert build(getattr(settings, group), group, kind)
    nodes = {group: getattr(settings, group) for group in PARTS}
    images = check(configured("system=pinecone")).cache
    for group in PARTS:
        # final images go with every frontend; latents do not
        parts = Parts(nodes if group == "cache" else {**nodes, "cache": images})
        empty = f"{group}=none" in words and group in ("controller", "failures", "feature_cache")
        empty = empty or (group == "scheduler" and "scheduler=stages" in words)
        assert (parts.get(group) is None) == empty


def test_every_kind_of_gpu_and_model_on_an_engine_builds() -> None:
    """The choices that tables make; `test_every_choice_composes_and_builds` composes some of them."""
    known = {choice.name for choice in choices("models")}
    for name, node in gpus().items():
        assert build(node["cluster"]["gpu"], name, Gpu).name == name
        ((_, models),) = node["defaults"][0].items()
        assert models in known
    for name, node in engine_models().items():
        assert build(node["large"], name, Model).name == name


@pytest.mark.parametrize(("group", "choice"), DESIGNS)
def test_every_system_and_experiment_has_its_parts_and_reads_all_of_them(group: str, choice: str) -> None:
    """A system holds no part of another group inside its own parts."""
    config = configured(f"{group}={choice}")
    settings = check(config)
    parts = settings.parts()
    for part in ("frontend", "scheduler", "executor", "allocation"):
        is_own = part == "scheduler" and isinstance(parts.get("executor"), Scheduler)
        assert is_own or parts.get(part) is not None
    for part in ("controller", "failures"):  # taken by the run where one exists
        parts.get(part)
    parts.refuse_unread(settings.system.name)
    assert config["system"].keys() <= {"name", "addons", "services", "assumptions"}
    for part in PARTS if group == "system" else ():
        inside = {key for key, value in (config.get(part) or {}).items() if isinstance(value, dict)}
        assert not inside & {*groups()}  # a part that is no group, such as a delay, is a setting of its owner


def test_list_shows_every_group_and_choice_with_a_description(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    listed = dict(line.split("=", 1) for line in capsys.readouterr().out.splitlines()[: len(groups())])
    assert list(listed) == list(groups())
    assert all(line.strip() for line in listed.values())
    for group in groups():
        assert main(["list", group]) == 0
        lines = [line for line in capsys.readouterr().out.splitlines() if not line.lstrip().startswith("with it: ")]
        assert [line.split()[0] for line in lines] == [choice.name for choice in choices(group)]
        assert all(len(line.split()) > 1 for line in lines)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["evicton"], "no group 'evicton'; did you mean eviction?"),
        (["data"], "no group 'data'"),
        (["eviction", "--config-dir", "nowhere"], "nowhere is not a folder"),
        (["profiles", "--config-dir", "."], "takes no --config-dir; name the folder of your profiles with --folder"),
        (["eviction", "--folder", "."], "--folder: applies only to `mezzotint list profiles`"),
    ],
)
def test_list_of_an_unknown_group_or_folder_is_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["list", *words]) == 2
    assert message in capsys.readouterr().err


def test_user_choices_are_listed_and_marked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "eviction").mkdir()
    (tmp_path / "eviction/second-chance.yaml").write_text("# Another look.\n_target_: mine.SecondChance\n")
    assert main(["list", "eviction", "--config-dir", str(tmp_path)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["second-chance", "*", "Another", "look."] in lines
    assert ["*", "from", str(tmp_path)] in lines
    (tmp_path / "eviction/nothing.yaml").write_text("# @package _global_\n")
    assert main(["list", "eviction", "-cd", str(tmp_path)]) == 0
    assert "nothing *" in capsys.readouterr().out.splitlines(), "of which nothing is said"


GLOBAL = "# @package _global_\nseed: 3\n"


@pytest.mark.parametrize(
    ("name", "content", "word", "message"),
    [
        ("eviction/lru.yaml", "_target_: mine.Lru\n", "eviction=lru", "lru.yaml: has the name of a choice of ours"),
        ("cluster/h100.yaml", "count: 3\n", "cluster=h100", "h100.yaml: has the name of a choice of ours"),
        ("config.yaml", "seed: 3\n", "seed=1", "config.yaml: is not read"),
        ("experiment/mine.yml", GLOBAL, "experiment=mine", "mine.yml: is not read, as a choice is a file NAME.yaml"),
        ("experiment/mine.yaml", "seed: 3\n", "experiment=mine", "found a file without its package"),
        ("experiment/mine.yaml", f"\ufeff{GLOBAL}", "experiment=mine", "without a byte order mark"),
        ("experiment/mine.yaml", f"{GLOBAL}# caf\xe9".encode("latin-1"), "experiment=mine", "mine.yaml: is not UTF-8"),
        ("eviction/mine.yaml", "defaults: [mine]\n", "eviction=mine", "names itself in its defaults"),
    ],
)
def test_file_of_the_user_that_would_not_be_read_is_refused(
    name: str, content: str | bytes, word: str, message: str, tmp_path: Path
) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError, match=message):
        compose_config(["system=nirvana", word], Files(groups=tmp_path))


def test_copies_of_our_files_in_the_users_folder_are_taken_as_ours(tmp_path: Path) -> None:
    (tmp_path / "eviction").mkdir()
    for name in ("config.yaml", "eviction/lru.yaml"):
        (tmp_path / name).write_bytes((CONF / name).read_bytes())
    words = ["system=nirvana", "eviction=lru"]
    assert compose_config(words, Files(groups=tmp_path)) == compose_config(words)


@pytest.mark.parametrize(
    "words", [("scheduler=per-worker", "router=least-work-left"), ("controller=autoscale-utilisation",)]
)
def test_part_without_defaults_is_its_file_in_every_system(words: tuple[str, ...]) -> None:
    """`tests.sim.lab.simulated_with` relies on it."""
    group, choice = words[-1].split("=")
    assert configured("system=nirvana", *words)[group] == _file_of(group, choice)


def test_command_line_overrides_experiment_overrides_system() -> None:
    assert configured("system=nirvana")["eviction"]["_target_"].endswith("Lcbfu")
    assert configured("system=nirvana", "eviction=lru")["eviction"]["_target_"].endswith("Lru")
    assert configured("eviction=lru", "experiment=nirvana-table3")["eviction"]["_target_"].endswith("Lru")
    assert configured("experiment=nirvana-table2")["cluster"]["gpu"]["name"] == "a10g"
    assert configured("cluster=h800", "experiment=nirvana-table2")["cluster"]["gpu"]["name"] == "h800"
    assert configured("system=gpt-cache")["similarity_map"] == configured("similarity_map=identity")["similarity_map"]
    assert (
        configured("system=gpt-cache", "encoder=ngram", "similarity_map=ngram")["similarity_map"]
        == configured()["similarity_map"]
    )


def test_child_system_replaces_a_part_as_a_whole(tmp_path: Path) -> None:
    """The child inherits what it does not name, and nothing else of the parent's part stays."""
    (tmp_path / "system").mkdir()
    (tmp_path / "cache").mkdir()
    few = {"_target_": "mezzotint.sim.cache.cache.ArtifactCache", "capacity": 7}
    (tmp_path / "cache/few.yaml").write_text(yaml.safe_dump(few))
    (tmp_path / "system/child.yaml").write_text(
        "# @package _global_\ndefaults:\n  - nirvana\n  - override /cache: few\n  - override /eviction: fifo\n"
        "  - override /match_predictor: null\n  - _self_\nsystem: {name: child}\n"
    )
    own = (f"hydra.searchpath=[file://{tmp_path}]", "system=child")
    child, parent = configured(*own), configured("system=nirvana")
    assert child["cache"] == few
    assert child["eviction"] == {"_target_": "mezzotint.sim.cache.eviction.Fifo"}
    assert child.get("match_predictor") is None
    assert child["selector"] == parent["selector"]
    assert child["system"]["services"] == parent["system"]["services"]
    assert configured(*own, "cache=modm")["cache"] == configured("system=modm-throughput")["cache"]


def test_cached_composition_equals_hydras_and_is_independent_of_its_caller() -> None:
    """The same words compose the same configuration after a caller changed an earlier one."""
    words = ["run.dir=unused", "experiment=nirvana-table3", "seed=7"]
    with initialize_config_module("mezzotint.conf", version_base="1.3"):
        expected = compose("config", overrides=words)
    for _ in range(2):
        got = compose_config(words)
        assert got == expected
        got.seed, got.cluster.count = 999, 1
        assert compose_config([*words, "preload=3"]).preload == 3


@pytest.mark.parametrize(
    "values",
    [
        ["trace.requests=9", "slo=[2x,9x]", "++frontend.x.y={a: 1}", "++frontend.x.z=2", "++cache.key=[]"],
        ["cluster.count=2", "++cluster={count: 3}", "system.services.file_store.usd_per_h=7", "cluster.count=4"],
        ["nokey=3"],
        ["run.dir=x", "trace.nokey=1"],
        ["seed=4", "frontend.fetch_s=3"],  # references of other groups name both
        ["cluster.count=4", "preload=${cluster.count}"],
    ],
)
def test_point_that_shares_a_composition_equals_one_composed_alone(values: list[str]) -> None:
    def said(words: list[str], shared: bool) -> str:
        try:
            return json.dumps(compose_resolved(words) if shared else resolve_config(compose_config(words)))
        except (HydraException, ConfigError, OmegaConfBaseException) as error:
            return str(error)

    words = ["system=nirvana", "run.dir=y"]
    plain = said(words, False)
    assert said([*words, *values], True) == said([*words, *values], False) != plain
    assert said(words, True) == plain


class Harm:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


@pytest.mark.invariant(12)
@pytest.mark.parametrize("laid", ["damage", "another composition", "another cache folder", "a pickle"])
def test_composition_from_elsewhere_is_reported_and_made_again(
    laid: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def composed_text(word: str, cache: str = "cache") -> tuple[str, str]:
        monkeypatch.setenv("MEZZOTINT_CACHE", str(tmp_path / cache))
        _choices.cache_clear()  # as in a new process
        assert main(["run", "--cfg", "job", word, "seed=3", "run.dir=x"]) == 0
        return tuple(capsys.readouterr())

    made = composed_text("system=nirvana")
    assert made == (OmegaConf.to_yaml(compose_config(["system=nirvana", "seed=3", "run.dir=x"])), "")
    (kept,) = tmp_path.glob("cache/compositions/*/*")
    whole = kept.read_bytes()
    assert composed_text("system=nirvana") == made
    if laid == "damage":
        foreign = whole[:-2] + bytes([whole[-2] ^ 1]) + whole[-1:]
    elif laid == "a pickle":
        foreign = zlib.compress(pickle.dumps(Harm(tmp_path / "harmed")))
    else:
        other = ("system=vanilla", "cache") if laid == "another composition" else ("system=nirvana", "other")
        composed_text(*other)
        (file,) = set(tmp_path.glob(f"{other[1]}/compositions/*/*")) - {kept}
        foreign = file.read_bytes()
    kept.write_bytes(foreign)
    note = f"mezzotint: note: {kept}: is damaged or from elsewhere; composed again\n"
    assert composed_text("system=nirvana") == (made[0], note)
    assert kept.read_bytes() == whole
    assert not (tmp_path / "harmed").exists()


def test_composition_read_from_the_cache_equals_the_one_that_was_kept(tmp_path: Path) -> None:
    """Also in Hydra's settings, and in keys of a mapping that are numbers."""
    code = (
        "from pprint import pprint; from omegaconf import OmegaConf\n"
        "from mezzotint.sim.run.config.compose import OURS, compose_config, hydra_settings\n"
        "words = ['experiment=nirvana-table3', 'hydra.launcher.n_jobs=3']; found = compose_config(words)\n"
        "pprint([hydra_settings(words, OURS), OmegaConf.is_struct(found), OmegaConf.to_container(found)])"
    )
    environment = {**os.environ, "MEZZOTINT_CACHE": str(tmp_path), "PYTHONPATH": str(REPOSITORY)}
    made, found = (
        subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, check=True, env=environment).stdout
        for _ in range(2)
    )
    assert list(tmp_path.glob("compositions/*/*"))
    assert found == made


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["system=nirvana", "frontend=direct-large"],
            "cache=nirvana: applies only with frontend=gpt-cache or frontend=modm",
        ),
        (
            ["frontend=nirvana"],
            r"frontend \(mezzotint.sim.frontend.cached.\w+\) needs a cache and none is chosen; add cache=modm",
        ),
        (["system=nirvana", "~eviction"], r"cache \(.*\) needs an eviction and none is chosen; add eviction=fifo"),
        (
            ["+controller._target_=mezzotint.sim.cache.store.ArtifactStore"],
            "controller: .* is no Controller: it lacks bind",
        ),
    ],
)
def test_unread_or_missing_part_is_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        simulated("trace.requests=20", *overrides)


def test_omitted_part_equals_its_default_choice() -> None:
    """A front end without index, store and match predictor finds at once, fetches always and searches for all."""
    at_once = ("index=immediate", "match_predictor=none")
    common = ("system=nirvana", "trace.requests=200")
    requests = simulated(*common, *at_once).requests
    assert simulated(*common, "~index", "~store", "~match_predictor").requests.equals(requests)


def test_parts_are_shared_and_checked_against_their_protocol() -> None:
    parts = check(configured("system=nirvana")).parts()
    frontend = parts.get("frontend", CachedFrontEnd)
    assert frontend.cache is parts.get("cache", ArtifactCache)
    assert frontend.cache.similarity is parts.get("similarity")
    assert parts.get("eviction", Eviction) is parts.get("eviction")
    with pytest.raises(ConfigError, match=r"eviction: .*Lcbfu is no Scheduler: it lacks .*offer"):
        parts.get("eviction", Scheduler)
    assert check(configured()).parts().get("selector") is None


@dataclass
class Needy:
    """Needs a part that its own node may set."""

    eviction: Any
    cache: Any = None


@dataclass
class Needed:
    """Needs a part that needs another."""

    cache: Any


def _node(name: str, **settings: Any) -> dict[str, Any]:
    return {"_target_": f"{__name__}.{name}", **settings}


def test_part_in_a_node_overrides_the_chosen_part() -> None:
    own = {"_target_": "mezzotint.sim.cache.eviction.Fifo"}
    parts = Parts({"eviction": {"_target_": "mezzotint.sim.cache.eviction.Lru"}})
    assert isinstance(build(_node("Needy"), "it", parts=parts).eviction, Lru)
    assert isinstance(build(_node("Needy", eviction=own), "it", parts=parts).eviction, Fifo)
    with pytest.raises(ConfigError, match="cache needs eviction needs cache: parts cannot be built"):
        Parts({"cache": _node("Needy"), "eviction": _node("Needed")}).get("cache")


class Half(Scheduler):
    """Inherits from the protocol, and has only one of the required methods."""

    def bind(self, run: Any) -> None: ...


class Alone:
    """Has the methods required of a scheduler, and inherits nothing."""

    def bind(self, run: Any) -> None: ...
    def offer(self, request: Any, now_s: float) -> None: ...
    def next(self, worker: Any, now_s: float) -> None: ...
    def __len__(self) -> int:
        return 0


def test_optional_hooks_have_default_bodies_and_missing_methods_are_named() -> None:
    for target, kind, lacks in (
        (f"{__name__}.Half", Scheduler, "Half is no Scheduler: it lacks __len__, next, offer$"),
        (
            "mezzotint.sim.cache.store.ArtifactStore",
            Scheduler,
            "ArtifactStore is no Scheduler: it lacks __len__, bind, next, offer$",
        ),
        ("mezzotint.sim.cache.eviction.Lru", CachedFrontEnd, "Lru is no CachedFrontEnd$"),
    ):
        with pytest.raises(ConfigError, match=lacks):
            build({"_target_": target}, "it", kind)
    alone = build(_node("Alone"), "scheduler", Scheduler)
    assert not alone.has_backlog(None)
    alone.worker_changed(None, 0.0)


class Named(Protocol):
    """Has no attribute that can be asked about during the run."""

    def name(self) -> str: ...


class Loose:
    """Takes an optional part, one of two words, an unannotated argument and a strangely annotated one."""

    def __init__(
        self,
        part: Eviction | None = None,
        named: Named | None = None,
        needed: Named = Lru(),  # type: ignore[assignment]  # noqa: B008
        word: Literal["a", "b"] = "a",
        anything=None,  # type: ignore[no-untyped-def]
        several: typing.List = [],  # type: ignore[type-arg]  # noqa: B006, UP006
    ) -> None:
        self.part, self.named, self.word, self.anything, self.several = part, named, word, anything, several


def test_setting_value_is_checked_against_its_annotation() -> None:
    fifo = {"_target_": "mezzotint.sim.cache.eviction.Fifo"}
    loose = build(_node("Loose", part=None, named=None, word="b", anything={"x": [1]}, several=[1]), "it")
    assert (loose.part, loose.named, loose.word, loose.anything, loose.several) == (None, None, "b", {"x": [1]}, [1])
    loose = build(_node("Loose", part=fifo), "it")
    assert isinstance(loose.part, Fifo)
    for key, value, expected in (
        ("part", 5, "found 5, expected Eviction or null"),
        ("named", 5, "found 5, expected a mapping with _target_"),
        ("named", fifo, r"mezzotint\.sim\.cache\.eviction\.fifo\.Fifo is no Named: it lacks name"),
        ("needed", None, "found None, expected a mapping with _target_"),
        ("word", fifo, r"found \{'_target_': .*\}, expected a or b"),
        ("several", 5, r"found 5, expected typing\.List"),
    ):
        with pytest.raises(ConfigError, match=rf"^it\.{key}: {expected}$"):
            build(_node("Loose", **{key: value}), "it")
