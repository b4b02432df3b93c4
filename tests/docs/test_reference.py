"""The reference is true: its generated pages list all there is, and its tables name what a run writes."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import typer

import mezzotint
from docs.reference import make
from docs.reference.parts import parts, read_refusals
from mezzotint.backends.patched import PatchTiming
from mezzotint.backends.profile import LoraTiming, Profile
from mezzotint.sim.core.run_folder import ATTEMPTS, CLUSTER, REQUESTS
from mezzotint.sim.metrics.summary_keys import kind_of
from mezzotint.sim.run.commands import BY_NEXT_WORD, COMMANDS, function_of
from mezzotint.sim.run.config.choices import choices, groups
from mezzotint.traces.formats.headers import PARTS, meaning
from mezzotint.traces.table.columns import SCHEMA
from tests.conftest import REPOSITORY

REFERENCE = REPOSITORY / "docs" / "reference"

RUNS = {
    "nirvana": "system=nirvana trace.requests=100",
    "monitor": "system=modm-quality trace.requests=100",
    "pools": "system=modm-fixed cluster=pools trace.requests=50 handling.after_s=1",
    "autoscaler": "controller=autoscale-pending trace.requests=50",
    "feature cache": "system=patchedserve cluster=h100 trace=hybrid trace.requests=20 arrivals.rate_rpm=60",
    "videos": "models=wan2.2 cluster=ascend-910b2 trace.requests=20 slo_by_size={1280x720x80:2x}",
    "tails": "system=tail-gate trace.requests=20",
    "images": "images=batch trace.requests=20 cluster.count=9 shapes=trace extrapolate=warn",
    "split": "images=requests trace.requests=20 cluster.count=9",
    "stage pools": "system=pools cluster.count=8 trace.requests=20",
    "language model": "system=language-model cluster=a800 cluster.count=2 trace.requests=20",
    "tridentserve": "system=tridentserve trace.requests=20",
    "cold servers": "server.begin=cold server.compile=20 trace.requests=20",
    "client": "client=retrying client.timeout_s=150 client.max_in_flight=16 trace.requests=20",
    "sessions": "models=abot-world cluster=l20x client=streaming client.chunks=3 trace.requests=4",
    "cascade": "system=diffserve cluster=a100 trace.requests=50",
    "fleet": (
        "frontend=by-base-model trace=synthetic-gentd26 residency=one-model models=sdxl cluster=h100 "
        "backend.gpu=h100-diffusers trace.requests=20"
    ),
    "servers": (
        "system=swiftdiffusion controlnet_placement=shared allocation=controlnet-servers cluster=h800 "
        "controlnet_placement.placement=[[controlnet-1]] allocation.servers=1 trace=add-ons trace.requests=5"
    ),
}
"""Runs that between them write every key and every column."""


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """The pages of the reference as the site has them, by name."""
    written = {path.name: path.read_text(encoding="utf-8") for path in REFERENCE.glob("*.md")}
    return written | {name: make.page(name) for name in make.PAGES}


def test_every_choice_of_every_group_is_listed(pages: Mapping[str, str]) -> None:
    sections = dict(re.findall(r"^## ([\w-]+)\n(.*?)(?=^## |\Z)", pages["configuration.md"], re.MULTILINE | re.DOTALL))
    assert sections.keys() == groups().keys()
    for group, text in sections.items():
        assert {choice.name for choice in choices(group)} <= set(re.findall(rf"\*\*`(?:{group}=)?([^`]+)`\*\*", text))


def test_every_key_is_described(pages: Mapping[str, str]) -> None:
    """By its class or by its file: its entry has more than a type and a default."""
    entries = re.findall(r"^- (\*\*`[\w.]+`\*\* \(.*(?:\n    - .*)*)", pages["configuration.md"], re.MULTILINE)
    assert len(entries) > 250
    bare = [each for each in entries if re.fullmatch(r"[^:]*(: Default: `[^`]*`\.)?(\n    - [^(]*)*", each)]
    assert bare == []


def test_page_of_parts_names_every_refusal_and_only_choices_that_there_are(pages: Mapping[str, str]) -> None:
    """That the refusals are true is tests/sim/laws/test_matrix.py's."""
    refusals = read_refusals()
    assert refusals
    for number, refusal in enumerate(refusals, 1):
        section = pages["parts.md"].partition(f"### Refusal {number}\n")[2].partition("### ")[0]
        assert set(re.findall(r"\w+", refusal.words)) <= set(re.findall(r"\w+", section))
        assert {part for pair in refusal.pairs for part in pair} <= set(parts())


@pytest.mark.parametrize("words", COMMANDS)
def test_every_option_of_every_command_is_listed(words: str, pages: Mapping[str, str]) -> None:
    sections = re.findall(r"^## mezzotint .*?(?=^## |\Z)", pages["command-line.md"], re.MULTILINE | re.DOTALL)
    own = re.compile(rf"^## mezzotint {words}$|`mezzotint {words}`[,.]", re.MULTILINE)
    (section,) = filter(own.search, sections)
    app, function = typer.Typer(), function_of(words)
    app.command()(function(None) if words in BY_NEXT_WORD else function)
    options = {name for option in typer.main.get_command(app).params for name in option.opts if name.startswith("--")}
    assert {name for name in options if name not in section and "completion" not in name} == set()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("runs")
    return {name: mezzotint.run(*words.split(), folder=folder / name) for name, words in RUNS.items()}


def test_summary_page_lists_the_keys_of_summaries(runs: Mapping[str, Any]) -> None:
    """Each key is in the page, and each of the page in a summary. A part in capitals is any name."""
    found = {key for run in runs.values() for key in _flat(run.summary)}
    assert _differing(_rows("summary.md"), found) == ([], [])


def test_every_number_of_a_summary_has_a_kind(runs: Mapping[str, Any]) -> None:
    """Else it would be read without bounds, and no target could name it."""
    found = dict(pair for run in runs.values() for pair in _values(run.summary))
    numbers = {key for key, value in found.items() if isinstance(value, int | float) and not isinstance(value, bool)}
    assert {key for key in numbers if kind_of(key) is None} == {"schema", "seed"}


@pytest.mark.parametrize("file", [REQUESTS, CLUSTER, ATTEMPTS])
def test_columns_page_lists_the_columns_of_tables(runs: Mapping[str, Any], file: str) -> None:
    """Each column with its type."""
    section = f"## {file}\n"
    rows = _rows("columns.md", section)
    listed = {name.replace("ROLE", "large").replace("COMPONENT", "denoiser"): kind for name, kind in rows.items()}
    files = [run.folder / file for run in runs.values() if (run.folder / file).exists()]
    found = {field.name: _type(field) for each in files for field in pq.read_schema(each)}
    for one in ("small", "text-encoder", "language-model", "vae"):  # large and denoiser stand for them
        for kind in ("gpus", "queued", "busy"):
            found.pop(f"{kind}_{one}", None)
    assert listed == found


def test_formats_page_lists_the_columns_of_a_trace() -> None:
    listed = _rows("file-formats.md", "## Trace\n", until="The file's metadata")
    assert {name: kind.strip("`") for name, kind in listed.items()} == {each.name: str(each.type) for each in SCHEMA}


def test_formats_page_lists_the_keys_of_a_profile() -> None:
    keys = {info.alias or name for name, info in Profile.model_fields.items()}
    assert set(_rows("file-formats.md", "### Keys\n", until="###")) == keys
    for section, part in (("lora", LoraTiming), ("patched", PatchTiming)):
        assert set(_rows("file-formats.md", f"### Keys of {section}\n", until="##")) == set(part.model_fields)


def test_formats_page_lists_the_keys_of_a_plan(tmp_path: Path) -> None:
    words = ("trace.requests=100", "trace.history=0")
    plan = mezzotint.plan(
        *words, target="p95<10s", model="sdxl", gpus=["l40s"], designs=["vanilla"], rate_rpm=20, runs=tmp_path
    )
    content = json.loads(plan.save(tmp_path / "answer").with_name("plan.json").read_text())
    for each in content["ranked"]:
        each |= {"models": 0, "assumptions": 0}  # as in summary.json
        assert each["header"]["rests on"].startswith("with times 15.0 % longer")
    del content["not_ranked"]
    assert _differing(_rows("file-formats.md", "## plan.json\n"), set(_flat(content))) == ([], [])


def _rows(page: str, section: str = "", until: str = "## ") -> dict[str, str]:
    """Return the second cell of each row of a page's tables, by the names in the first.

    Args:
        section: the heading after which they are, up to the next line that begins with ``until``; empty for all.
    """
    text = (REFERENCE / page).read_text(encoding="utf-8")
    if section:
        text = text.partition(f"\n{section}")[2].partition(f"\n{until}")[0]
    rows = re.findall(r"^\| (`.+?) \| (.+?) \|", text, re.MULTILINE)
    return {name: kind for names, kind in rows for name in re.findall(r"`([^`]+)`", names)}


def _differing(listed: Iterable[str], found: Set[str]) -> tuple[list[str], list[str]]:
    """Return the keys found that are not listed, and those listed that are not found.

    A part of a listed key in capitals is any name. A key is no difference where it is null in the place of a mapping.
    """
    patterns = {key: re.compile(re.sub(r"[A-Z]+", r"[^.]+", re.escape(key)) + r"(\.|$)") for key in listed}
    above = {key.rpartition(".")[0] for key in listed}
    parents = [re.compile(re.sub(r"[A-Z]+", r"[^.]+", re.escape(key)) + "$") for key in above]
    new = [key for key in found if not any(each.match(key) for each in (*patterns.values(), *parents))]
    return sorted(new), [key for key, each in patterns.items() if not any(map(each.match, found))]


def _flat(node: Any, prefix: str = "") -> Iterator[str]:
    """Yield the dotted keys of a summary's values; those of a list are those of its items."""
    if isinstance(node, dict) and node:
        for key, value in node.items():
            yield from _flat(value, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(node, list) and node and isinstance(node[0], dict):
        yield from _flat(node[0], prefix)
    elif node != {}:
        yield prefix


def _values(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted keys of a summary's values, and the values; a list is a value."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _values(value, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, node


def _type(field: Any) -> str:
    kind = str(field.type)
    return "text" if kind == "string" or kind.startswith("dictionary") else {"double": "float"}.get(kind, kind)


def test_names_of_columns_on_the_page_of_logs_are_read() -> None:
    page = (REPOSITORY / "docs" / "how-to" / "own-log.md").read_text(encoding="utf-8")
    table = page.partition("| column of the trace | names |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (`.*?`) \| (.*) \|$", table, re.MULTILINE)
    assert len(rows) > 15
    for columns, names in rows:
        meant = {*re.findall(r"`(\w+)`", columns), *PARTS}
        for name in set(re.findall(r"\w+", names)) - {"or", "one", "two", "column", "columns", "and"}:
            of = meaning(name)
            assert of is not None, name
            assert of.name in meant, name
