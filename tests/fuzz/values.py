"""Values that a user, a script or an attacker may write for a setting, as YAML and as an override of Hydra's."""

import json
import math
from dataclasses import dataclass

from hypothesis import strategies as st

MARK = "touched"
"""The file that code makes if a configuration can have it run."""


@dataclass(frozen=True, slots=True)
class Hostile:
    """A value in two spellings; ``kind`` is number, nan, boolean, empty, text, nested or target."""

    yaml: str
    word: str
    kind: str


def _number(value: float) -> Hostile:
    if isinstance(value, float) and not math.isfinite(value):
        word = str(value)
        return Hostile(word.replace("nan", ".nan").replace("inf", ".inf"), word, "nan" if value != value else "number")
    return Hostile(repr(value), repr(value), "number")


ODD_NUMBERS = (
    *(0, -0.0, 1, -1, 2, 3, 7, 50, 0.5, 1.5, -0.5, 1e-5, 1e-15, 1e-300, 5e-324, -1e-300, 2**31 - 1, 2**31, 2**63 - 1),
    *(2**63, -(2**63), 2**64, 10**20 - 1, -(10**20), 1e15, 1e20, 1e300, -1e300, 1.7976931348623157e308),
    *(math.inf, -math.inf, math.nan),
)
"""No value lies between a few hundred and 2^31: a run of a million requests, or a year of them, may take a while."""

numbers = (
    st.sampled_from(ODD_NUMBERS) | st.integers(-3, 300) | st.floats(0, 1, allow_subnormal=False) | st.floats(-9, 99)
).map(_number)

PLAIN = (
    *" 0-~()[]{}'\"\\@$%#!|>é\u0130\u202e😀\0\n\t\ufeff\ud7ff\udcff١",
    *("--", "a~b", "a,b", "a=b", "a:b", "$(id)", "`id`", "%s", "{0}", "&a", "*a", "\x1b[31m", "nan", "inf", "1e5"),
    *("0x10", "1_000", "1,5", "true", "null", "None", "???"),
    *("${", "${}", "${seed}", "${nothing}", "${oc.env:HOME}", "${oc.env:NOTHING_IS_CALLED_THIS}", "${oc.decode:1}"),
    *("${a.${b}}", "${seed:}"),
    *("${now:%Y}", "../../..", "/", "/dev/null", "/dev/full", "/proc/self/mem", "s3://bucket/key", "out-2024:01:01"),
    *("file:///tmp/x", "CON"),
    *("", "a b", "." * 300, "a" * 5000, "a/" * 300, "9" * 5000),
)

IN_JSON = (
    *(None, True, False, 0, -1, 1.5, 1e300, -1e300, 10**400, 2**64, math.nan, math.inf, -math.inf, "", "text", "1"),
    *([], {}, [1], [[]], [None], [["x"]], {"a": 1}, {"": None}, {"": ""}, {"prompt": None}, {"prompt": [1]}),
    *("<script>alert(1)</script>", "\ud800", "\0", "é\u202e", "9999-12-31", "a" * 9000, "x" * 70_000, [None] * 50),
)
"""Values in a JSON file."""


def _quoted(text: str) -> str:
    """Quote as Hydra does: a quote is escaped, and so are the backslashes before one."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


texts = (st.sampled_from(PLAIN) | st.text(max_size=8)).map(lambda it: Hostile(json.dumps(it), _quoted(it), "text"))

TARGETS = (
    f"{{_target_: os.system, command: touch {MARK}}}",
    f"{{_target_: subprocess.check_output, args: [touch, {MARK}]}}",
    f"{{_target_: builtins.open, file: {MARK}, mode: w}}",
    f"{{_target_: pathlib.Path.touch, self: {{_target_: pathlib.Path, _args_: [{MARK}]}}}}",
    f"{{_target_: hydra.utils.call, config: {{_target_: os.mkdir, path: {MARK}}}}}",
    f"[{{_target_: os.mkdir, path: {MARK}}}]",
    f"{{a: {{b: {{_target_: os.mkdir, path: {MARK}}}}}}}",
    *("{_target_: os._exit, status: 0}", "{_target_: sys.exit}", "{_target_: time.sleep, secs: 60}", "{_target_: os}"),
    *("{_target_: builtins.dict}", "{_target_: builtins.print}", "{_target_: nowhere.Nothing}", "{_target_: ''}"),
    *("{_target_: .}", "{_target_: a..b}", "{_target_: mezzotint.sim.cli.main}"),
    "{_target_: mezzotint.sim.core.model.Model}",
    *("{_target_: [os.system]}", "{_target_: 1}", "{_target_: null}"),
    "{_target_: mezzotint.sim.frontend.delay.LogNormal, median_s: 1e-300, p99_s: 1e300}",
    "{_target_: mezzotint.sim.frontend.delay.LogNormal, median_s: 0.1, p99_s: 0.4}",
    "{_target_: mezzotint.sim.frontend.delay.LogNormal, median_s: .nan, p99_s: -1}",
    "{_target_: mezzotint.sim.cache.eviction.fifo.Fifo, _partial_: true}",
)

targets = st.sampled_from(TARGETS).map(lambda text: Hostile(text, text.replace(".nan", "nan"), "target"))

BOOLEANS = tuple(Hostile(word, word, "boolean") for word in ("true", "false", "True", "FALSE", "yes", "on", "off"))

EMPTY = tuple(Hostile(text, text, "empty") for text in ("null", "{}", "[]", "''", "~"))

NESTED = (
    *("[1, 2, 3]", "[[1]]", "[null]", "[true]", "[1, [2, [3, [4]]]]", "{a: 1}", "{a: {b: {c: {d: null}}}}", "{1: 2}"),
    *("{0.5: 5}", "{5: 2, 10: 0.5}", "[[600, 1200]]", "[[1200, 600]]", "[[0, 1e300]]", "[[0, 1], [0, 2]]", "[a, b]"),
    *("{'': 1}", "{true: 1}", "{null: 1}", "[" * 60 + "]" * 60, "[" + ", ".join("1" * 600) + "]", "[1, x, {a: .nan}]"),
)  # fmt: skip

nested = st.sampled_from(NESTED).map(lambda text: Hostile(text, text.replace(".nan", "nan"), "nested"))

ONLY_YAML = (
    *("2024-01-01", "2024-01-01T00:00:00Z", "!!binary aGVq", "!!set {a, b}", "0o17", "0x1F", "1:30:00", "!!float 1"),
    *(
        '!!python/object/apply:os.mkdir ["touched"]',
        "!!python/name:os.system",
        "&a [*a]",
        "*a",
        "!unknown x",
        "{<<: 1}",
    ),
    *("{<<: 1}", "!!timestamp x", "!!int x", "{? [a]: 1}", "{a: 1, a: 2}", "- 1", "@a", "%a", "? a", "|\n  a", "\t1"),
)

only_yaml = st.sampled_from(ONLY_YAML).map(lambda text: Hostile(text, "", "text"))

hostile = st.one_of(numbers, numbers, st.sampled_from(BOOLEANS), st.sampled_from(EMPTY), texts, nested, targets)
"""Values with both spellings."""
