"""Measured and faulty profiles, in the folder that ``backend.folder`` names."""

from functools import cache
from importlib import resources

import yaml
from hypothesis import strategies as st

from tests.fuzz.bytes_ import damaged
from tests.fuzz.config import AGAIN, bomb, covered, must_refuse, names_of, paths, value_at, written
from tests.fuzz.fixtures import SMALL, TRACE, Tree, composed, config_file, trace
from tests.fuzz.inputs import Input
from tests.fuzz.values import hostile, only_yaml

MEASURED = """
schema: 1
model: sd3.5-large
gpu: mi210
source: made up, of everything that a profile can hold
device: AMD
dtype: float16
power_w: 200.0
load_s: 3.0
step:
  - {width: 512, height: 512, batch: 1, seconds: 0.1, spread_s: 0.01}
  - {width: 512, height: 512, batch: 4, seconds: 0.3}
  - {width: 1024, height: 1024, batch: 1, seconds: 0.4}
  - {width: 1024, height: 1024, batch: 4, seconds: 1.4}
text_encode: [{batch: 1, seconds: 0.03}, {batch: 4, seconds: 0.05}]
vae_encode: [{width: 512, height: 512, batch: 1, seconds: 0.07}, {width: 1024, height: 1024, batch: 1, seconds: 0.2}]
vae_decode: [{width: 512, height: 512, batch: 1, seconds: 0.139}, {width: 1024, height: 1024, batch: 1, seconds: 0.4}]
"""


@cache
def _base() -> Tree:
    """A run on the user's profiles."""
    tree = config_file(composed(("system=vanilla", *SMALL)))
    return tree | {"backend": tree["backend"] | {"folder": "profiles"}}


@cache
def _valid() -> tuple[Tree, ...]:
    shipped = [
        f
        for f in (resources.files("mezzotint.backends") / "profiles").iterdir()
        if f.name.startswith(("mi210", "h800"))
    ]
    return (yaml.safe_load(MEASURED), *(yaml.safe_load(f.read_text()) for f in shipped))


def inputs() -> st.SearchStrategy[Input]:
    """Draw folders with a faulty profile."""
    trace(), _base()
    return _inputs()


@st.composite
def _inputs(draw: st.DrawFn) -> Input:
    """Draw a profile with a wrong value, a damaged one, one under another name, or several of one model."""
    tree = draw(st.sampled_from(_valid()))
    content, key, refused = written(tree, []), (), False
    how = draw(st.sampled_from(["value", "value", "value", "damage", "names", "bomb"]))
    covers = how
    if how == "value":
        place = draw(st.sampled_from(list(paths(tree))))
        value = draw(hostile | only_yaml)
        covers = covered(place)
        refused = must_refuse(value_at(tree, place), value)
        content, key = written(tree, [(place, value)]), names_of(place)[:1] if refused else ()
    elif how == "damage":
        content = draw(damaged(content))
    elif how == "bomb":
        content = draw(st.sampled_from([content + bomb(), bomb(), b"step: &a [*a]\n" + content]))
    files = [("profiles/mi210_sd3.5-large.yaml", content)]
    if how == "names":
        model = "mi210_sd3.5-large"
        odd = st.sampled_from(["x.yaml", f"{model}.yml", f"{model}.json", f"a/{model}.yaml", "MI210.yaml", "é.yaml"])
        files += [(f"profiles/{draw(odd)}", draw(st.sampled_from([content, b"", b"1", b"not: a profile"])))]
        files = files[draw(st.integers(0, 1)) :]
    laid = ((TRACE, trace()), ("config.yaml", written(_base(), [])), *files)
    return Input(laid, (AGAIN,), ("out",), key, refused, covers=f"profile {covers}", quick=True)
