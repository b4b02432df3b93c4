"""A run's disk cache, embeddings and neighbours, with bits flipped and ends lost."""

from functools import cache

from hypothesis import strategies as st

from mezzotint.sim.core.run_folder import REQUESTS
from tests.fuzz.bytes_ import damaged
from tests.fuzz.config import AGAIN, written
from tests.fuzz.fixtures import SMALL, TRACE, composed, config_file, finished, trace
from tests.fuzz.inputs import Input, digest


@cache
def _disk_cache() -> dict[str, bytes]:
    found = {name: content for name, content in finished().items() if name != TRACE and not name.startswith("out/")}
    assert any("neighbours" in name for name in found), "the run that is damaged remembers its neighbours"
    return found


@cache
def _config() -> bytes:
    return written(config_file(composed(("system=nirvana", *SMALL))), [])


def inputs() -> st.SearchStrategy[Input]:
    """Damages or deletes files of the disk cache."""
    _disk_cache(), _config()
    return _inputs()


@st.composite
def _inputs(draw: st.DrawFn) -> Input:
    """Part of the disk cache is damaged or gone: the run writes what it would without it, or refuses clearly."""
    files = dict(_disk_cache())
    taken = draw(st.lists(st.sampled_from(sorted(files)), min_size=1, max_size=2, unique=True))
    for name in taken:
        how = draw(st.sampled_from(["bit", "bit", "damage", "damage", "other", "gone", "swapped"]))
        content = bytearray(files[name])
        if how == "bit" and content:
            at = draw(st.integers(0, len(content) - 1))
            content[at] ^= 1 << draw(st.integers(0, 7))
            files[name] = bytes(content)
        elif how == "gone":
            del files[name]
        elif how == "other":
            files[name] = draw(st.sampled_from(sorted(_disk_cache().values())))
        elif how == "swapped":
            files[name] = bytes(reversed(content))
        else:
            files[name] = draw(damaged(bytes(content)))
    laid = ((TRACE, trace()), ("config.yaml", _config()), *sorted(files.items()))
    what = " ".join(sorted({name.rpartition(".")[2] if "neighbours" not in name else "neighbours" for name in taken}))
    return Input(
        laid, (AGAIN,), ("out",), same=digest(finished()[f"out/{REQUESTS}"]), covers=f"cache {what}", quick=True
    )
