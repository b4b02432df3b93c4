"""The comparison of two commits finds what changed."""

import json
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from tests.identity import differences, forms
from tests.identity.cases import TABLE, Case, table
from tests.identity.trees import HERE, REPOSITORY, checkout

CONF = REPOSITORY / "conf"


def run(folder: Path, start_s: float, system: str) -> Path:
    """A run directory with the files that are compared."""
    folder.mkdir()
    for name in ("requests.parquet", "cluster.parquet"):
        pq.write_table(pa.table({"worker": [0, 1], "start_s": [0.0, start_s]}), folder / name)
    (folder / "summary.json").write_text(json.dumps({"system": system, "wall": {"cpu_s": start_s}}))
    return folder


def test_changed_value_is_found_by_row_column_and_key(tmp_path: Path) -> None:
    before, after = run(tmp_path / "before", 1.5, "vanilla"), run(tmp_path / "after", 2.5, "nirvana")
    assert not differences.runs(before, before)
    moved = "start_s, row 1: 1.5, then 2.5 (1 of 2 columns differ)"
    assert differences.runs(before, after) == {
        "requests.parquet": moved,
        "cluster.parquet": moved,
        "summary.json": "system: 'vanilla', then 'nirvana' (keys that differ: 1)",
    }


def test_former_name_of_a_class_is_no_difference(tmp_path: Path) -> None:
    before, after = run(tmp_path / "before", 1.5, "sim.a.B"), run(tmp_path / "after", 1.5, "mezzotint.sim.a.B")

    def left(folder: Path, name: str) -> None:
        rows = {"reason": [None, f"{name} left it"], "start_s": [0.0, 1.5]}
        pq.write_table(pa.table(rows), folder / "requests.parquet")

    left(before, "sim.a.B")
    left(after, "mezzotint.sim.a.B")
    assert set(differences.runs(before, after)) == {"requests.parquet", "summary.json"}
    assert not differences.runs(before, after, forms.without_package)
    left(after, "B")
    assert set(differences.runs(before, after, forms.without_package)) == {"requests.parquet"}


def test_attempts_count_as_requests_do_and_may_be_lacking(tmp_path: Path) -> None:
    before, after = (run(tmp_path / name, 1.5, "vanilla") for name in ("before", "after"))
    for folder, steps in ((before, 6), (after, 7)):
        pq.write_table(pa.table({"steps": [steps]}), folder / "attempts.parquet")
    found = differences.runs(before, after)
    assert found == {"attempts.parquet": "steps, row 0: 6, then 7 (1 of 1 columns differ)"}
    assert not found.keys().isdisjoint(differences.RESULTS)
    (after / "attempts.parquet").unlink()
    assert differences.runs(before, after) == {"attempts.parquet": "written only before"}


@cache
def overridden(group: str, choice: str) -> dict[str, str]:
    """The choices of other groups that a choice sets, such as a system's."""
    found: dict[str, str] = {}
    for each in yaml.safe_load((CONF / group / f"{choice}.yaml").read_text(encoding="utf-8")).get("defaults", ()):
        if isinstance(each, str):
            found |= overridden(group, each) if each != "_self_" else {}
        else:
            found |= {key.removeprefix("override /"): value for key, value in each.items()}
    return found


def choices(case: Case) -> dict[str, str]:
    """The choices that ``case``, its system and its experiment make."""
    words = dict(word.split("=", 1) for word in case.overrides())
    experiment = overridden("experiment", words["experiment"]) if "experiment" in words else {}
    system = overridden("system", ({"system": "vanilla"} | experiment | words)["system"])
    return system | experiment | words


NEEDS_FILES = {"controller=modm-hindsight"}


def test_every_choice_of_a_part_has_a_case() -> None:
    """Parts that serve requests; the one that is left out reads what another run wrote."""
    listed = yaml.safe_load((CONF / "config.yaml").read_text(encoding="utf-8"))["defaults"]
    default = {group: choice for each in listed if isinstance(each, dict) for group, choice in each.items()}
    found = {f"{group}={choice}" for case in table() for group, choice in (default | choices(case)).items()}
    parts = (
        "scheduler", "executor", "batching", "discipline", "router", "group_policy", "estimates", "latency_predictor",
        "feature_cache", "controlnet_placement", "lora_loading", "lora_fetch", "kernels", "allocation", "controller",
        "failures", "frontend", "eviction", "admission", "match_predictor", "search", "index",
    )  # fmt: skip
    assert {f"{part}={path.stem}" for part in parts for path in (CONF / part).glob("*.yaml")} - found == NEEDS_FILES


def test_cases_have_different_names_and_runs() -> None:
    lines = [line.partition(": ")[0] for line in TABLE.read_text(encoding="utf-8").splitlines()]
    names = [line for line in lines if line and not line.startswith("#")]
    assert names == [case.name for case in table()]
    assert len({case.words for case in table()}) == len(names)


@pytest.mark.parametrize(
    ("present", "former"),
    [
        ("frontend=nirvana", "door=nirvana"),
        ("executor=static-batch", "executor=whole-batch"),
        ("executor.max_batch=4", "executor.limit=4"),
        ("similarity=text-to-image", "space=image"),
        ("+store.outages=[]", "+store.outages=[]"),
        (
            "frontend.search_s={_target_: mezzotint.sim.frontend.delay.LogNormal}",
            "door.search_s={_target_: sim.reuse.delay.LogNormal}",
        ),
        ("system=nirvana", "system=nirvana"),
    ],
)
def test_present_override_translates_to_the_former_version(present: str, former: str) -> None:
    assert forms.former_word(present) == former
    assert Case("one", f"'{present}'").overrides(forms.former_word) == [former]


def test_checkout_from_before_former_names_has_two_forms(tmp_path: Path) -> None:
    """Its overrides have former words; its scripts and results only other names of classes."""
    (tmp_path / "pyproject.toml").write_text("[tool.setuptools]\n")
    assert forms.form_of(tmp_path)("frontend=nirvana") == "door=nirvana"
    assert forms.class_names(tmp_path)('"""A script."""\nimport mezzotint.sim\n') == '"""A script."""\nimport sim\n'
    assert forms.form_of(REPOSITORY) is forms.class_names(REPOSITORY) is str


def test_script_is_brought_into_the_names_of_several_packages() -> None:
    script = "from mezzotint import sim\nfrom mezzotint.sim.engine import Engine\nimport mezzotint\n"
    assert forms.without_package(script) == "import sim\nfrom sim.engine import Engine\nimport mezzotint\n"


def test_working_tree_runs_as_it_stands(tmp_path: Path) -> None:
    runs = checkout(HERE, tmp_path).runs([["trace", "--help"], ["run", "system=none"]], jobs=1)
    ended = {number: (failure, cpu_s) for number, failure, cpu_s in runs}
    assert ended[0][0] is None
    assert ended[1][0].endswith("(status 2)")
    assert all(0 < cpu_s < 60 for _, cpu_s in ended.values())
