"""No file that the product reads is code: neither a cache's, nor a run's, nor a model's."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

PRODUCT = ("mezzotint", "sim", "traces", "backends", "conf")

MODULES = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "jsonpickle", "runpy"}
"""Modules whose files run code when they are read."""

CALLS = {
    "eval", "exec", "compile",
    "joblib.load", "joblib.Memory", "pandas.read_pickle", "pd.read_pickle",
    "yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.full_load", "yaml.unsafe_load_all", "yaml.full_load_all",
}  # fmt: skip
"""Calls that may run code in what they read."""

SAFE_WITH = {
    "torch.load": ("weights_only", True),
    "np.load": ("allow_pickle", False),
    "numpy.load": ("allow_pickle", False),
}
"""Calls that run no code if a keyword has that value."""


def unsafe(source: str) -> Iterator[str]:
    """Yield the imports and calls in ``source`` by which a file could run code."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name.partition(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = {f"{node.module}.{each.name}" for each in node.names}
            yield from sorted(names) if node.module.partition(".")[0] in MODULES else sorted(names & CALLS)
            yield from sorted(names & set(SAFE_WITH))
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            keyword, value = SAFE_WITH.get(called, ("", None))
            if called in CALLS or (
                keyword
                and not any(
                    each.arg == keyword and isinstance(each.value, ast.Constant) and each.value.value is value
                    for each in node.keywords
                )
            ):
                yield f"{called} in line {node.lineno}"


@pytest.mark.parametrize("folder", PRODUCT)
def test_product_reads_no_file_as_code(folder: str) -> None:
    found = {
        str(path.relative_to(REPOSITORY)): calls
        for path in sorted(Path(REPOSITORY, folder).rglob("*.py"))
        if (calls := list(unsafe(path.read_text(encoding="utf-8"))))
    }
    assert found == {}


@pytest.mark.parametrize("source", [
    "import pickle", "from pickle import loads", "import dill as d", "from joblib import load", "np.load(path)",
    "np.load(path, allow_pickle=True)", "torch.load(path)", "torch.load(path, weights_only=False)",
    "yaml.load(text, Loader)", "yaml.unsafe_load(text)", "pd.read_pickle(path)", "exec(text)",
])  # fmt: skip
def test_scan_finds_every_way_to_read_code(source: str) -> None:
    assert list(unsafe(source))
