"""Write the generated pages of the reference: ``python -m docs.reference.make FOLDER``. `make docs` does so.

configuration.md comes from conf/, from the annotations and docstrings of the classes that it names, and from
conf/config.yaml; command-line.md from the help of the commands; matrix.md from the shipped profiles; parts.md from
parts.yaml. The pages of this folder have their introductions.
"""

import dataclasses
import inspect
import io
import re
import sys
import typing
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from importlib import import_module, resources
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic.fields import FieldInfo

from docs.reference.parts import Part, parts, read_refusals
from mezzotint.sim.core.gpu import Gpu
from mezzotint.sim.core.model import Model
from mezzotint.sim.metrics.cost import list_prices
from mezzotint.sim.run.commands import BY_NEXT_WORD, COMMANDS, overview, run_command
from mezzotint.sim.run.config.choices import choices, gpus, groups
from mezzotint.sim.run.config.settings import PooledSettings, PoolSettings, Settings, System
from mezzotint.sim.run.config.typed import spell_type
from mezzotint.sim.run.profiles import matrix
from mezzotint.traces.sources.command import sources

FOLDER = Path(__file__).parent
CONF = resources.files("mezzotint.conf")
TARGET = "_target_"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's, where PyYAML has it: ten times as fast."""

LONGEST_VALUE = 90
"""Characters of a value that is printed; a longer one is cut."""


MARK = "<!-- generated"
"""Begins the line of a page after which the generated part stands."""


@dataclass(slots=True)
class Key:
    """A key of a choice's file.

    Attributes:
        value: as the file spells it.
        comment: what the file says beside it or right above.
        nested: the keys of a mapping.
    """

    value: str
    comment: str
    nested: dict[str, "Key"] = field(default_factory=dict)


@dataclass(slots=True)
class File:
    """A choice.

    Attributes:
        notes: the comment at its head without the first line.
        keys: its keys, and those of the choice that it begins from.
        target: the class that it names.
        parts: what it chooses in other groups, and what it sweeps.
        base: the choice of its group that it begins from.
    """

    notes: str
    keys: dict[str, Key]
    target: str | None
    parts: list[str]
    base: str | None = None


@dataclass(slots=True)
class Setting:
    """A key of a class, with its type, its default, its meaning, and the value and comment of each choice."""

    kind: str
    default: str
    meaning: str
    by_choice: dict[str, Key] = field(default_factory=dict)


# -- configuration -----------------------------------------------------------------------------------------------


def configuration() -> str:
    """Return all groups, choices and keys."""
    chosen = {group: name for row in _config()["defaults"] if isinstance(row, dict) for group, name in row.items()}
    sections = [_group(name, chosen.get(name)) for name in groups()]
    return "\n\n".join([_own_keys(), *sections]) + "\n"


def _config() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CONF / "config.yaml").read_text(encoding="utf-8"))
    return found


def _own_keys() -> str:
    keys = _keys((CONF / "config.yaml").read_text(encoding="utf-8"))
    lines = ["## Keys of a run", "", "These belong to no group.", ""]
    for name, info in Settings.model_fields.items():
        if name in groups() or name == "run":
            continue
        lines.append(_line(name, _field_type(info), f"`{keys[name].value}`", keys[name].comment))
    lines.append(_line("run.dir", "`str`", f"`{keys['run'].nested['dir'].value}`", "the run folder"))
    return "\n".join(lines)


def _group(name: str, default: str | None) -> str:
    group = groups()[name]
    lines = [f"## {name}", "", f"{_sentence(group.line)} {_standing(name, default)}", ""]
    files = {choice.name: _file(name, choice.name) for choice in choices(name) if _exists(name, choice.name)}
    if name == "cluster":
        return "\n".join([*lines, *_clusters()])
    for choice in choices(name):
        said = files.get(choice.name)
        if said is None:  # of a table, with a line alone
            lines.append(f"- **`{choice.name}`**: {_prose(choice.line)}")
            continue
        extra = f" {said.notes}" if said.notes else ""
        parts = f" Parts: {', '.join(f'`{part}`' for part in said.parts)}." if said.parts else ""
        begins = f" Begins from `{said.base}`." if said.base is not None else ""
        lines.append(f"- **`{choice.name}`**: {_prose(choice.line)}{_prose(extra)}{begins}{parts}")
    if name == "models":
        lines += ["", "Keys of a role, such as `models.large.steps`:", "", *_of_class(Model, {})]
    elif name == "system":
        lines += ["", "Keys of a system:", ""]
        lines += [
            _line(
                key,
                _field_type(info),
                "" if info.is_required() else f"`{_yaml(info.get_default(call_default_factory=True))}`",
                _SYSTEM[key],
            )
            for key, info in System.model_fields.items()
        ]
    elif name != "experiment":
        lines += _classes(name, files)
    return "\n".join(lines)


_SYSTEM = {
    "name": "its name in reports",
    "addons": "serve: run the trace's ControlNets and LoRAs, unless `addons=` says otherwise",
    "services": "services beside the GPUs that are paid by the hour, by name: `usd_per_h` and `source`",
    "assumptions": "what the system rests on and nobody measured: `what`, `value` and `source`, for the summary",
}


def _standing(name: str, default: str | None) -> str:
    """Return when the group applies, and what a run has without a choice."""
    group = groups()[name]
    said = []
    if group.part is not None:
        said.append("Every run needs one." if group.part == "needed" else "Optional.")
    for other, allowed in group.needs.items():
        said.append(f"Applies with {other}={', '.join(f'`{each}`' for each in allowed)}.")
    if default is not None:
        said.append(f"Without a choice: `{name}={default}`.")
    return " ".join(said)


def _classes(group: str, files: Mapping[str, File]) -> list[str]:
    """Return the keys of every class of a group, with the value and the comment of each choice."""
    by_class: dict[str, dict[str, File]] = {}
    for name, said in files.items():
        if said.target is not None:
            by_class.setdefault(said.target, {})[name] = said
    lines = []
    for target, chosen in by_class.items():
        made = _located(target)
        settings, wired = _settings(made, {name: said.keys for name, said in chosen.items()})
        if not settings and not wired:
            continue
        named = ", ".join(f"`{group}={name}`" for name in chosen)
        lines += ["", f"Keys of {named} (`{target}`):", ""]
        bases = {name: said.base for name, said in chosen.items() if said.base in chosen}
        lines += [_of(key, setting, len(chosen), bases) for key, setting in settings.items()]
        if wired:
            lines += [f"- It takes what is chosen in {', '.join(f'`{each}=`' for each in wired)}."]
    return lines


def _settings(
    made: Any, by_choice: Mapping[str, Mapping[str, Key]], prefix: str = ""
) -> tuple[dict[str, Setting], list[str]]:
    """Return the settings of a class by key, those of nested classes as KEY.SUBKEY, and the groups it takes."""
    found: dict[str, Setting] = {}
    wired: list[str] = []
    hints, meanings = _hints(made), _meanings(made)
    for name, parameter in inspect.signature(made).parameters.items():
        given = {choice: keys[name] for choice, keys in by_choice.items() if name in keys}
        if not prefix and name in groups() and not given:
            wired.append(name)
            continue
        setting = Setting(_spelled(hints.get(name)), _default(parameter), meanings.get(name, ""), given)
        inner: dict[str, dict[str, Mapping[str, Key]]] = {}
        for choice, key in given.items():
            if TARGET in key.nested:
                inner.setdefault(key.nested[TARGET].value, {})[choice] = key.nested
            elif key.nested and (kind := _dataclass_of(hints.get(name), key.nested)) is not None:
                inner.setdefault(f"{kind.__module__}.{kind.__qualname__}", {})[choice] = key.nested
        found[prefix + name] = setting
        for target, each in inner.items():
            for choice in each:
                setting.by_choice.pop(choice)
            nested, _ = _settings(_located(target), each, f"{prefix}{name}.")
            for key, value in nested.items():
                if key in found:
                    found[key].by_choice |= value.by_choice
                else:
                    found[key] = value
        if inner and not setting.by_choice and parameter.default is parameter.empty:
            setting.kind, setting.default = " or ".join(f"`{target.rpartition('.')[2]}`" for target in inner), ""
    return found, wired


def _dataclass_of(hint: Any, keys: Mapping[str, Key]) -> type | None:
    """Return the dataclass in ``hint`` that has all of ``keys``."""
    for part in (hint, *typing.get_args(hint)):
        is_class = inspect.isclass(part) and dataclasses.is_dataclass(part)
        if is_class and set(keys) <= {each.name for each in dataclasses.fields(part)}:
            return part
    return None


def _of_class(made: Any, by_choice: Mapping[str, Mapping[str, Key]], prefix: str = "") -> list[str]:
    settings, _ = _settings(made, by_choice, prefix)
    return [_of(key, setting, 1, {}) for key, setting in settings.items()]


def _of(key: str, setting: Setting, choices: int, bases: Mapping[str, str | None]) -> str:
    """Return the entry of a key: its default where all ``choices`` have the same, else a line for each value.

    Args:
        bases: choice -> the one that it begins from; a value that it takes over is not repeated.
    """
    said: dict[tuple[str, str], list[str]] = {}
    for choice, at in setting.by_choice.items():
        base = bases.get(choice)
        if base is None or at is not setting.by_choice.get(base):
            said.setdefault((at.value, at.comment), []).append(choice)
    if not said:
        return _line(key, setting.kind, setting.default, setting.meaning)
    if len(said) == 1 and len(setting.by_choice) == choices:
        ((value, comment),) = said
        return _line(key, setting.kind, _shown(value), setting.meaning, comment)
    covered = len(setting.by_choice) == choices
    lines = [_line(key, setting.kind, "" if covered else setting.default, setting.meaning)]
    for (value, comment), names in said.items():
        lines.append(f"    - {', '.join(names)}: {_shown(value)}{f' ({_prose(comment)})' if comment else ''}")
    return "\n".join(lines)


def _shown(value: str) -> str:
    return "to be given" if value == "???" else f"`{_cut(value)}`"


def _line(key: str, kind: str, default: str, meaning: str, comment: str = "") -> str:
    """Return the entry of one key: its type, its meaning, its default, and what the file says of that."""
    if comment.lower().startswith(meaning.rstrip(".").lower()):
        meaning, comment = comment, ""
    told = f"Default: {default}{f' ({_prose(comment)})' if comment else ''}." if default else _prose(comment)
    described = " ".join(each for each in (_sentence(_prose(meaning)), told) if each)
    return f"- **`{key}`**{f' ({kind})' if kind else ''}{f': {described}' if described else ''}"


def _clusters() -> list[str]:
    """Return the section of ``cluster=``: kinds of GPUs, pools, and their keys."""
    lines = [
        "A kind of GPU is a choice: it sets the number of GPUs, their power and memory, and the models that serve.",
        "",
        "| `cluster=` | GPUs | `models=` | memory, GB | W at work, idle | US$ an hour |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in gpus().items():
        gpu, models = row["cluster"]["gpu"], row["defaults"][0]["override /models"]
        price = list_prices().get(name)
        memory = gpu.get("memory_bytes")
        watts = "" if gpu["active_w"] is None else f"{gpu['active_w']:g}, {gpu['idle_w']:g}"
        cells = (f"`{name}`", row["cluster"]["count"], f"`{models}`", "" if memory is None else f"{memory / 1e9:g}")
        lines.append(
            f"| {' | '.join(map(str, cells))} | {watts} | {'' if price is None else f'{price.usd_per_gpu_h:g}'} |"
        )
    lines += ["", "What each is, and the source of its numbers:", ""]
    known = {choice.name: choice.line for choice in choices("cluster")}
    for name, row in gpus().items():
        price = list_prices().get(name)
        priced = f" Price: {price.source}." if price is not None else " No list price."
        lines.append(f"- **`{name}`**: {known[name]} {_prose(row['cluster']['gpu']['source'])}.{priced}")
    lines += ["", "Keys:", "", _line("count", "`int at least 1 and at most 100,000`", "", "number of GPUs")]
    lines += _of_class(Gpu, {}, "gpu.")
    lines += ["", f"**`cluster=pools`**: {known['pools']} {_prose(_file('cluster', 'pools').notes)}", ""]
    lines.append(
        _line(
            "pools",
            f"`{spell_type(PooledSettings.model_fields['pools'].annotation)}`",
            "",
            "the pools, in the order of preference",
        )
    )
    for key, info in PoolSettings.model_fields.items():
        meaning = {"gpu": "a kind of the table, or a mapping with the keys of `gpu` above", "count": "number of GPUs"}
        lines.append(
            _line(f"pools.{key}", _field_type(info), "", meaning.get(key, "role of its GPUs; null: the allocation's"))
        )
    return lines


# -- files of conf/ ----------------------------------------------------------------------------------------------


def _exists(group: str, name: str) -> bool:
    return (CONF / group / f"{name}.yaml").is_file()


def _file(group: str, name: str) -> File:
    """Read a choice and those that it begins from; its own keys win."""
    text = (CONF / group / f"{name}.yaml").read_text(encoding="utf-8")
    keys = _keys(text)
    head = [line.removeprefix("#").strip() for line in _head(text) if not line.startswith("# @package")]
    keys.pop("defaults", None)
    own: dict[str, Any] = yaml.load(text, LOADER) or {}
    parts, sweep = [], own.get("hydra", {}).get("sweeper", {}).get("params", {})
    base, begun = File("", {}, None, []), None
    for entry in own.get("defaults", ()):
        if isinstance(entry, dict):
            parts += [f"{key.removeprefix('override /')}={value}" for key, value in entry.items()]
        elif entry != "_self_" and not entry.startswith("/"):
            base, begun = _file(group, entry), entry
    parts += [f"{key}={value}" for key, value in sweep.items()]
    parts = [part.replace("@_global_.arrivals", "") for part in parts]
    target = keys.pop(TARGET, None)
    found = target.value if target is not None else base.target
    return File(" ".join(head[1:]), base.keys | keys, found, parts, begun)


def _head(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if not line.startswith("#"):
            return
        yield line


def _keys(text: str) -> dict[str, Key]:
    """Return the keys of a YAML mapping with their comments, which the parser drops."""
    node = yaml.compose(text, LOADER)
    return _entries(node, text.splitlines()) if isinstance(node, yaml.MappingNode) else {}


def _entries(node: yaml.MappingNode, lines: list[str]) -> dict[str, Key]:
    found = {}
    for key, value in node.value:
        first = key.start_mark.line
        is_block = isinstance(value, yaml.CollectionNode) and not value.flow_style
        last = first if is_block else value.end_mark.line
        comments = [] if node.flow_style else [*_above(lines, first), *map(_comment, lines[first : last + 1])]
        if not node.flow_style:
            comments += _below(lines, last)
        nested = _entries(value, lines) if isinstance(value, yaml.MappingNode) else {}
        found[str(key.value)] = Key(_yaml(_plain(value)), " ".join(filter(None, comments)), nested)
    return found


def _plain(node: yaml.Node) -> Any:
    """Return the value of ``node``."""
    loader = yaml.SafeLoader("")
    return loader.construct_document(node)


def _above(lines: list[str], at: int) -> list[str]:
    """Return the comment lines right above line ``at``, unless they head a section after an empty line."""
    begin = at
    while begin > 0 and lines[begin - 1].lstrip().startswith("#"):
        begin -= 1
    if begin == 0 or not lines[begin - 1].strip() or begin == at:
        return []
    if re.search(r"\s#", lines[begin - 1]):  # the rest of the comment before
        return []
    return [line.strip().lstrip("# ") for line in lines[begin:at]]


def _below(lines: list[str], at: int) -> list[str]:
    """Return the comment lines that go on with a comment of line ``at``."""
    found: list[str] = []
    if not _comment(lines[at]):
        return found
    for line in lines[at + 1 :]:
        if not line.lstrip().startswith("#") or len(line) - len(line.lstrip()) < 8:
            break
        found.append(line.strip().lstrip("# "))
    return found


def _comment(line: str) -> str:
    found = re.search(r"\s#\s?(.*)$", line)
    return found[1].strip() if found else ""


# -- classes -----------------------------------------------------------------------------------------------------


def _located(target: str) -> Any:
    module, _, name = target.rpartition(".")
    return getattr(import_module(module), name)


def _hints(made: Any) -> dict[str, Any]:
    return typing.get_type_hints(made.__init__ if inspect.isclass(made) else made, include_extras=True)


def _spelled(hint: Any) -> str:
    return "" if hint is None else f"`{spell_type(hint)}`"


def _field_type(info: FieldInfo) -> str:
    hint = Annotated[(info.annotation, *info.metadata)] if info.metadata else info.annotation  # type: ignore[valid-type]
    return _spelled(hint)


def _default(parameter: inspect.Parameter) -> str:
    """Return the class's own default; nothing where the file must set the key, or the class makes it."""
    value = parameter.default
    if value is parameter.empty or "factory" in repr(value):
        return ""
    return f"`{_yaml(value)}`"


def _meanings(made: Any) -> dict[str, str]:
    """Return what the docstring of a class, and of those it inherits from, says of each argument."""
    found: dict[str, str] = {}
    for each in reversed(inspect.getmro(made)) if inspect.isclass(made) else (made,):
        for owner in (each, getattr(each, "__init__", None)):
            found |= _arguments(inspect.getdoc(owner) or "")
    for name, meaning in found.items():
        if other := re.fullmatch(r"(?:as )?of `*(\w+)`*\.?", meaning):  # of another class of the module
            found[name] = _meanings(getattr(inspect.getmodule(made), other[1]))[name]
    return found


def _arguments(text: str) -> dict[str, str]:
    """Return the entries of the sections Args and Attributes of a docstring."""
    found: dict[str, str] = {}
    for section in re.findall(r"^(?:Args|Attributes):\n((?:(?: {4}.*)?\n?)+)", text, re.MULTILINE):
        for names, meaning in re.findall(r"^ {4}([\w, ]+): (.*(?:\n {5,}.*)*)", section, re.MULTILINE):
            found |= dict.fromkeys(names.split(", "), " ".join(meaning.split()))
    return found


# -- words -------------------------------------------------------------------------------------------------------


def _yaml(value: Any) -> str:
    """Return ``value`` on one line of YAML."""
    if isinstance(value, tuple):
        value = list(value)
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6, sort_keys=False, allow_unicode=True)
    return text.removesuffix("\n...\n").strip().strip("'\"") or "''"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1].rstrip()}…"


def _sentence(text: str) -> str:
    text = text.strip()
    if re.match(r"[\w-]+:", text):  # the values of a choice of words, each with its meaning
        return f"{text}."
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '?')) else '.'}" if text else ""


def _prose(text: str) -> str:
    """Return ``text`` with what Markdown would read as markup as it is written."""
    text = text.replace("``", "`")
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([*<\[\]])", r"\\\1", part) for part in parts)


# -- command line ------------------------------------------------------------------------------------------------


def command_line() -> str:
    """Return the help of every command; commands with one function share their section."""
    by_function: dict[str, list[str]] = {}
    for words, function in COMMANDS.items():
        by_function.setdefault(function, []).append(words)
    sections = [f"```text\n{overview()}\n```"]
    for words in by_function.values():
        first, *others = words
        also = f"The same options: {', '.join(f'`mezzotint {each}`' for each in others)}.\n\n" if others else ""
        sections.append(f"## mezzotint {first}\n\n{also}{_help(first)}")
        if first in BY_NEXT_WORD:
            sections += [f"### mezzotint {first} {each}\n\n{_help(first, each)}" for each in sources()]
    return "\n\n".join(sections) + "\n"


def _help(words: str, *more: str) -> str:
    with redirect_stdout(io.StringIO()) as printed:
        run_command(words, [*more, "--help"])
    return f"```text\n{printed.getvalue().strip()}\n```"


# -- what is known -----------------------------------------------------------------------------------------------


def known_times() -> str:
    """Return the models, engines and kinds of GPUs of the shipped profiles as a table."""
    head, *rows = matrix()
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


# -- what works together -----------------------------------------------------------------------------------------


def pairs_of_parts() -> str:
    """Return which parts work beside which: a table by group, and under it each refusal with its pairs."""
    refusals = read_refusals()
    names = list(dict.fromkeys(part.group for part in parts()))
    sizes = Counter(part.group for part in parts())
    by_groups: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)
    for number, refusal in enumerate(refusals, 1):
        for one, other in refusal.pairs:
            by_groups[one.group, other.group][number] += 1
    lines = [f"| | {' | '.join(f'`{name}`' for name in names[1:])} |", f"|{'---|' * len(names)}"]
    for at, row in enumerate(names[:-1]):
        cells = [""] * (len(names) - 1)
        for index, column in enumerate(names[1:]):
            if index >= at:
                numbers, total = by_groups[row, column], sizes[row] * sizes[column]
                cells[index] = _works(total - sum(numbers.values()), total, numbers)
        lines.append(f"| `{row}` | {' | '.join(cells)} |")
    lines += ["", "## Refusals", ""]
    for number, refusal in enumerate(refusals, 1):
        lines += [f"### Refusal {number}", "", _prose(refusal.words), ""]
        lines += [f"- {row}" for row in _rows_of(refusal.pairs)] + [""]
    return "\n".join(lines)


def _works(works: int, total: int, numbers: Iterable[int]) -> str:
    links = ", ".join(f"[{number}](#refusal-{number})" for number in numbers)
    return "works" if works == total else f"refused: {links}" if not works else f"{works} of {total}; {links}"


def _rows_of(pairs: Iterable[tuple[Part, Part]]) -> list[str]:
    """Return ``pairs`` in words: choices of a group with the same partners share a row."""
    partners: dict[Part, list[Part]] = defaultdict(list)
    for one, other in pairs:
        partners[one].append(other)
    rows: dict[tuple[str, tuple[Part, ...]], list[str]] = defaultdict(list)
    for one, others in partners.items():
        rows[one.group, tuple(others)].append(one.choice)
    return [f"{_spelled_choices(group, ones)} with {_spelled_parts(others)}" for (group, others), ones in rows.items()]


def _spelled_parts(of: Iterable[Part]) -> str:
    by_group: dict[str, list[str]] = defaultdict(list)
    for part in of:
        by_group[part.group].append(part.choice)
    return "; ".join(_spelled_choices(group, names) for group, names in by_group.items())


def _spelled_choices(group: str, names: Collection[str]) -> str:
    every = [part.choice for part in parts() if part.group == group]
    return f"any `{group}`" if len(names) == len(every) > 1 else f"`{group}=`{', '.join(names)}"


PAGES = {
    "configuration.md": configuration,
    "command-line.md": command_line,
    "matrix.md": known_times,
    "parts.md": pairs_of_parts,
}
"""The pages with a generated part, and what returns it."""


def page(name: str) -> str:
    """Return a whole page: its introduction, then the generated part."""
    introduction, mark, _ = (FOLDER / name).read_text(encoding="utf-8").partition(MARK)
    assert mark, f"{name} has no line that begins with {MARK}"
    return introduction + PAGES[name]()


if __name__ == "__main__":
    for name in PAGES:
        (Path(sys.argv[1]) / name).write_text(page(name), encoding="utf-8")
