"""What an error says about packages that are not installed."""

import tomllib
from importlib.metadata import PackageNotFoundError
from typing import NoReturn

import pytest

from mezzotint.extras import remedy
from tests.conftest import REPOSITORY

EXTRAS = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]


@pytest.mark.parametrize("extra", ["ann", "hub", "live", "ray", "slurm", "text"])
def test_remedy_names_the_packages_of_the_extra(extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"{package}; extra == '{name}'" for name, packages in EXTRAS.items() for package in packages]
    monkeypatch.setattr("mezzotint.extras.requires", lambda _: ["numpy>=2.0", *lines])
    quoted = " ".join(f"'{package}'" for package in EXTRAS[extra])
    assert remedy(extra) == f"install with: pip install {quoted}"


def test_remedy_is_a_command_with_and_without_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    assert remedy("ann").startswith("install with: pip install 'faiss-cpu>=")

    def unknown(name: str) -> NoReturn:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("mezzotint.extras.requires", unknown)
    assert remedy("ann") == "install with: pip install -e '.[ann]', in a clone"


def test_no_error_and_no_page_names_an_extra_of_an_unpublished_distribution() -> None:
    for folder in ("backends", "conf", "docs", "mezzotint", "sim", "traces"):
        for path in (REPOSITORY / folder).rglob("*.*"):
            if path.suffix in (".md", ".py", ".yaml") and path.name != "extras.py":
                assert "mezzotint[" not in path.read_text(encoding="utf-8"), path
