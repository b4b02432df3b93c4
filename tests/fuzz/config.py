"""Configurations: every key of every choice with hostile values, on the command line and in a shared config.yaml."""

import json
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import yaml
from hypothesis import strategies as st

from mezzotint.sim.run.config.choices import choices, groups
from tests.fuzz.bytes_ import damaged
from tests.fuzz.fixtures import NEEDS_MORE, SMALL, TRACE, composed, config_file, recipes, runs, trace
from tests.fuzz.inputs import Input
from tests.fuzz.values import Hostile, hostile, only_yaml, texts

Path = tuple[str | int, ...]

OURS = ("defaults", "hydra", "run")
"""Sections of config.yaml beside the keys of a run."""

AGAIN = ("run", "--config-path", ".", "--config-name", "config", "run.dir=out")

HOLE = "a_hole_in_the_file"


def paths(tree: Any, at: Path = ()) -> Iterator[Path]:
    """Yield every key below ``tree``, of mappings and values; of a list its first and its last."""
    if isinstance(tree, dict):
        below: Sequence[tuple[Any, Any]] = list(tree.items())
    elif isinstance(tree, list):
        below = [(i, tree[i]) for i in sorted({0, len(tree) - 1}) if tree]
    else:
        return
    for key, value in below:
        yield (*at, key)
        yield from paths(value, (*at, key))


def value_at(tree: Any, path: Path) -> Any:
    """Return the value at ``path``."""
    for key in path:
        tree = tree[key]
    return tree


def replaced(tree: Any, path: Path, value: Any) -> Any:
    """Return ``tree`` with another value at ``path``; the original does not change."""
    if not path:
        return value
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    copy[path[0]] = replaced(tree[path[0]], path[1:], value)
    return copy


def written(tree: Any, values: Sequence[tuple[Path, Hostile]]) -> bytes:
    """Return ``tree`` as YAML, with the hostile value spelled as given."""
    for number, (path, _) in enumerate(values):
        tree = replaced(tree, path, f"{HOLE}_{number}_")
    text = yaml.dump(tree, Dumper=yaml.CSafeDumper, sort_keys=False, width=10_000)
    for number, (_, value) in enumerate(values):
        text = text.replace(f"{HOLE}_{number}_", value.yaml)
    return text.encode("utf-8", "surrogatepass")


def dotted(path: Path) -> str:
    """Return the key as the command line spells it."""
    return ".".join(str(part) for part in path)


def names_of(path: Path) -> tuple[str, ...]:
    """Return what a refusal of the value at ``path`` must name: the key, or one of its group that it contradicts."""
    # the refusal of an unmeasured size names the profile
    other = "profile of" if path[0] == "models" else f"{path[0]}."
    without = ("nothing in system=",) if len(path) == 1 else ()  # keys that a removed part leaves without use
    return next(str(part) for part in reversed(path) if isinstance(part, str)), other, *without


def covered(path: Path) -> str:
    """Return a key without its place in a list."""
    return ".".join("*" if isinstance(part, int | float) else str(part) for part in path)


def must_refuse(default: Any, value: Hostile) -> bool:
    """Return whether no setting can take ``value`` where ``default`` is the default."""
    return isinstance(default, int | float) and not isinstance(default, bool) and value.kind in ("boolean", "nan")


@cache
def _keys(words: tuple[str, ...]) -> dict[str, list[Path]]:
    """Return the keys below each top-level key of what ``words`` compose."""
    found: dict[str, list[Path]] = {}
    for path in paths(composed(words)):
        if path[0] not in OURS:
            found.setdefault(str(path[0]), []).append(path)
    return found


@st.composite
def _place(draw: st.DrawFn, words: tuple[str, ...]) -> Path:
    """Draw a key: half of the time below the group that ``words`` are about."""
    keys = _keys(words)
    about = words[-2].partition("=")[0]
    group = draw(st.sampled_from(sorted(keys)) | st.just(about if about in keys else "system"))
    return draw(st.sampled_from(keys[group]))


def _files(config: bytes | None = None) -> tuple[tuple[str, bytes], ...]:
    own = () if config is None else (("config.yaml", config),)
    return ((TRACE, trace()), *own)


@st.composite
def shared(draw: st.DrawFn, words: tuple[str, ...], quick: bool = True) -> Input:
    """Draw a shared config.yaml with one wrong key or, now and then, a few."""
    tree = config_file(composed(words))
    places = draw(st.lists(_place(words), min_size=1, max_size=draw(st.sampled_from([1, 1, 1, 3])), unique=True))
    places = [p for p in places if not any(p != q and p[: len(q)] == q for q in places)]
    values = [(place, draw(hostile | only_yaml)) for place in places]
    (first, value), alone = values[0], len(values) == 1
    key = names_of(first) if alone and value.yaml == value.word and runs(words) else ()
    refused = alone and "assumptions" not in first and must_refuse(value_at(tree, first), value)
    quick = quick and "${" not in "".join(value.yaml for _, value in values)
    files = _files(written(tree, values))
    return Input(files, (AGAIN,), ("out",), key, refused, covers=covered(first), quick=quick)


@st.composite
def typed(draw: st.DrawFn, words: tuple[str, ...]) -> Input:
    """Draw an override of one key."""
    place, value = draw(_place(words)), draw(hostile)
    sign = draw(st.sampled_from(["", "", "", "+", "++"]))
    default = value_at(composed(words), place)
    word = f"{sign}{dotted(place)}={value.word}"
    plain = "assumptions" not in place and not any(isinstance(part, int | float) for part in place)
    refused = plain and must_refuse(default, value)
    commands = (("run", *words, word, "run.dir=out"),)
    return Input(_files(), commands, ("out",), refused=refused, covers=covered(place))


@st.composite
def strange_words(draw: st.DrawFn) -> Input:
    """Draw words that are no overrides, unknown keys, and options of Hydra."""
    key = st.sampled_from([*groups(), "seed", "slo", "run", "run.dir", "hydra.run.dir", "hydra.mode", "nothing", ""])
    raw = texts.map(lambda text: str(json.loads(text.yaml))).filter(lambda text: "\0" not in text)
    options = st.sampled_from(["--config-dir=", "--config-name=", "--cfg=", "--info=", "--package="])
    word = draw(
        st.tuples(st.sampled_from(["", "+", "++", "~", "~~", "-", "--", "@", " "]), key, raw).map("".join)
        | st.tuples(key, st.sampled_from(["=", "@:", "@a:b=", ":=", "==", "=="]), raw).map("".join)
        | st.tuples(options, raw).map("".join)
        | raw
    )
    return Input(_files(), (("run", *SMALL, "run.dir=out", word),), ("*",), covers="words")


@st.composite
def folders(draw: st.DrawFn) -> Input:
    """Draw names of run directories, of traces and of sweeps."""
    name = draw(texts.filter(lambda text: "\\u0000" not in text.yaml and "/" not in text.yaml))
    key = draw(st.sampled_from(["run.dir", "run.dir", "trace.path", "backend.folder"]))
    raw = json.loads(name.yaml)
    spelled = draw(st.sampled_from([name.word, raw]))
    words = [word for word in SMALL if not word.startswith(key)]
    out = () if key == "run.dir" else ("run.dir=out",)
    return Input(_files(), (("run", *words, f"{key}={spelled}", *out),), ("*",), covers=key)


@st.composite
def crossed(draw: st.DrawFn) -> Input:
    """Draw untried combinations of choices."""
    names = [group for group in groups() if group not in ("trace", "experiment")]
    taken = draw(st.lists(st.sampled_from(names), min_size=1, max_size=4, unique=True))
    words = []
    for group in taken:
        can_be = [choice.name for choice in choices(group) if (group, choice.name) not in NEEDS_MORE]
        words.append(f"{group}={draw(st.sampled_from(can_be))}" if can_be else f"~{group}")
    dropped = draw(st.lists(st.sampled_from(names), max_size=1))
    words += [f"~{group}" for group in dropped if group not in taken]
    others = st.sampled_from(["shapes=trace", "addons=serve", "extrapolate=warn", "timeline=true"])
    extra = draw(st.lists(others, max_size=2))
    return Input(_files(), (("run", *SMALL, *words, *extra, "run.dir=out"),), ("out",), covers="choices")


MORE = (
    *(b"hydra: {%s: {_target_: os.mkdir, path: touched}}\n" % key for key in (b"launcher", b"sweeper")),
    b"hydra: {callbacks: {x: {_target_: os.mkdir, path: touched}}}\n",
    b"hydra: {run: {dir: touched}, output_subdir: x}\n",
    *(b"hydra: {searchpath: ['file:///tmp']}\n", b"hydra: {job: {chdir: true}}\n", b"hydra: 1\n"),
    *(b"hydra: {job: {env_set: {PATH: ''}}}\n", b"defaults: [{trace: nothing}]\n", b"defaults: 1\n"),
    *(b"defaults: [a, a]\n", b"more: {a: 1}\n", b"seed: 2\n", b"---\nseed: 1\n", b"a: &a [x, x]\nb: &b [*a, *a]\n"),
)
"""Lines after the end of a config.yaml."""


@st.composite
def damaged_file(draw: st.DrawFn, words: tuple[str, ...]) -> Input:
    """Draw a config.yaml that was cut, mixed up, or extended."""
    tree = config_file(composed(words))
    content = written(tree, [])
    more = draw(st.sampled_from([*MORE, bomb()]))
    key = more.partition(b":")[0].decode()
    once = written({name: value for name, value in tree.items() if name != key}, []) + more
    content = draw(damaged(content) | st.sampled_from([once, once, content + more, more]))
    return Input(_files(content), (AGAIN,), ("out",), covers="config.yaml")


def bomb(levels: int = 9) -> bytes:
    """Return a few lines of YAML that expand to billions of values: each line names the one before ten times."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, levels)]
    return ("\n".join(lines) + "\n").encode()


def inputs(about: Sequence[tuple[str, ...]] | None = None) -> st.SearchStrategy[Input]:
    """Draw any of the above; ``about`` lists the recipes whose keys are tried, None for all."""
    words = st.sampled_from(list(about or recipes()))
    trace()  # made here: a run during a draw would draw too
    for each in about or recipes():
        runs(each)
    whole, quick = words.flatmap(lambda each: shared(each, False)), words.flatmap(shared)
    others = (words.flatmap(typed), words.flatmap(damaged_file), strange_words(), folders(), crossed())
    return st.one_of(*(quick for _ in range(20)), whole, *others)
