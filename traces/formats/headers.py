"""The meaning of a table's columns, from their names and, where a name is not enough, their cells."""

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import yaml

from mezzotint.traces.formats.clock import PER_SECOND

_DATA = yaml.safe_load((resources.files("mezzotint.traces.formats") / "names.yaml").read_text(encoding="utf-8"))

NAMES: Mapping[str, Sequence[str]] = _DATA["names"]
"""Meaning of a column -> its usual names, normalised; of several columns the first in the list is taken."""

PARTS = ("size", "fps", "video_s")
"""Meanings that are no column of a trace: width and height, and frames, are made of them."""

TIMES = ("arrival_s", "gen_s", "slo_s", "latency_s", "video_s")
"""Meanings whose columns may state a unit in their name."""

DURATIONS = TIMES[1:]

UNIT_WORDS: Mapping[str, str] = {
    word: unit
    for unit, words in {
        "ns": ("ns", "nano", "nanos", "nanosecond", "nanoseconds"),
        "us": ("us", "micros", "microsecond", "microseconds"),
        "ms": ("ms", "msec", "msecs", "millis", "millisecond", "milliseconds"),
        "s": ("s", "sec", "secs", "second", "seconds"),
        "min": ("min", "mins", "minute", "minutes"),
        "h": ("h", "hr", "hrs", "hour", "hours"),
        "d": ("day", "days"),  # not d, see `meaning`
    }.items()
    for word in words
}

RATES: Mapping[str, str | None] = _DATA["rates"]
"""Name of a column of rates -> unit of time that it states."""

RATE = re.compile(r"(?:requests?|reqs?|queries|arrivals|invocations|images|calls|rate)_(?:per_)?([a-z]+)")
"""Name of a column of rates, whose end is the unit of time."""
COUNTS: Sequence[str] = _DATA["counts"]
"""Names of columns of requests per interval."""

NULLS = frozenset(_DATA["nulls"])
"""Words for no value, in lower case."""

SIZES: Mapping[str, Sequence[int]] = _DATA["sizes"]
"""Name of a size -> width and height, pixels."""

LINES: Mapping[str, str] = _DATA["lines"]
"""Name of a size that tells neither its shape nor its orientation -> a size that it is often of."""

DURATION_PART = re.compile(r"(\d+(?:[.]\d*)?)\s*([^\W\d_]+)[.]?\s*")
"""A number with a unit behind it: 5s, 500 ms; Go writes several in a duration, 1m30.5s, A1111's web UI 1 min. 5 sec."""

DURATION_END = r"\d\s*\pL+[.]?\s*$"

WELL = re.compile(
    r"[23]\d\d([.]0*)?( .*)?|true|ok|done|success\w*|succeeded|complete[d]?|finished|queued|in_progress|processing",
    re.I,
)
"""What the status of a request that was served says."""

ILL = re.compile(
    r"[45]\d\d([.]0*)?( .*)?|false|fail\w*|error\w*|cancel\w*|abort\w*|reject\w*|time[d_ -]*out|exception", re.I
)
"""What the status of a request that was not served says. Other words may be of anything."""

FLAGS = ("success", "succeeded", "ok")
"""Outcomes that may be written as 1 and 0."""

OF_STATISTICS = {"latency_s", "gen_s", "images", "base_model"}
"""Meanings that the rows of a table of statistics have."""

PERCENTILE = re.compile(r"(.*_)?p\d{2,3}(_.*)?|\d{2,3}_?%|(.*_)?(median|average|avg|mean|percentile)(_.*)?")

RATES_REMEDY = "counts and rates are an arrival process, arrivals=rates arrivals.path=FILE"

LIKENESS = 0.8
"""Likeness of a name to a usual one, as `difflib` measures it, from which a column is asked about."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """The meaning of a column by its name, and the unit if the name states one."""

    name: str
    unit: str | None = None


def normalise(name: str) -> str:
    """Return a name in lower case with words joined by _: `createdAt`, `Created-At` and `created at` are one.

    After a digit a capital begins a word only before a small letter: `E2E` is one word.
    """
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z0-9])(?=[A-Z][a-z])", "_", name.strip().replace("µ", "u"))
    return re.sub(r"[^\w%]+", "_", words.lower()).strip("_") or "_"


def meaning(name: str) -> Meaning | None:
    """Return the meaning of a column with a usual name, or None; of `request.prompt`, the last part counts."""
    plain = normalise(name)
    for of, names in NAMES.items():
        if plain in names or plain == of:
            return Meaning(of, "s" if of in TIMES and plain in (of, "seconds") else None)
    base, _, word = plain.rpartition("_")
    unit = UNIT_WORDS.get(word)
    # Durations of Azure's Log Analytics end in _d, as its numbers of any unit do.
    times = TIMES if unit else DURATIONS if word == "d" else ()
    by_unit = next((Meaning(of, unit) for of in times if base in NAMES[of]), None)
    return meaning(name.rpartition(".")[2]) if by_unit is None and "." in name else by_unit


def rate_unit(name: str) -> str | None:
    """Return the unit of time that the name of a column of rates states (s, min, h, d), or None."""
    plain = normalise(name)
    rate = RATE.fullmatch(plain) or re.fullmatch(r"(?:.*_)?per_([a-z]+)", plain)
    return UNIT_WORDS.get(rate[1]) if rate else RATES.get(plain.rpartition("_")[2])


def guess_meaning(name: str) -> str | None:
    """Return the meaning that a column's unusual name looks like, or None."""
    plain = normalise(name)
    if plain in _DATA["others"]:
        return None
    words = plain.split("_")
    for of, keys in _DATA["words"].items():
        if not {"negative", "neg"} & set(words) and any(key in word for key in keys for word in words):
            return str(of)
    known = {alias: of for of, names in NAMES.items() for alias in names if len(alias) > 3}
    near = [alias for alias in difflib.get_close_matches(plain, known, 3, LIKENESS) if alias[0] == plain[0]]
    return known[near[0]] if near else None


def is_unsaid_ms(header: Collection[str]) -> bool:
    """Return True if a table with these columns is likely of a tool whose relative times are milliseconds."""
    plain = {normalise(name) for name in header}
    return any(
        set(table["known_by"]) <= plain <= {*table["known_by"], *table.get("beside", plain)}
        for table in _DATA["unsaid_ms"]
    )


def not_requests(header: Sequence[str], taken: Collection[str]) -> str | None:
    """Return what a table without columns of requests holds, and what to do with it; None if it may be requests.

    Args:
        taken: the meanings that its columns have.
    """
    plain = {normalise(name): name for name in header}
    of_metrics = any(re.match(r"# (HELP|TYPE) |\w+\{[^}]*\} ", name) for name in header) or (
        "metrics" in plain and not taken
    )
    of_metrics |= "metric_name" in plain or "__name__" in header or {"metric", "value"} <= plain.keys()
    if of_metrics or {"status", "data"} == plain.keys():  # the latter is an answer of Prometheus
        return (
            "rows of metrics, expected a row a request; export the requests themselves, or rates over time for"
            " arrivals=rates arrivals.path=FILE"
        )
    statistics = [name for name in plain if PERCENTILE.fullmatch(name) or name in _DATA["statistics"]]
    if len(statistics) > 1 or (statistics and not set(taken) - OF_STATISTICS):
        named = ", ".join(plain[name] for name in statistics[:3])
        return f"statistics ({named}), expected a row a request; export the requests themselves, one a row"
    if set(taken) - {"arrival_s", "base_model"}:
        return None
    numbers = [name for name in header if name.isdigit()]
    if len(numbers) > 2:
        return f"columns named {', '.join(numbers[:3])}, a count for each interval; {RATES_REMEDY}, an interval a row"
    intervals = {*UNIT_WORDS, "m", "interval"}
    rates = [name for name in header if re.search(r"\b(i?rate|increase|\w+_over_time|histogram_quantile)\(", name)]
    rates += [
        plain[name]
        for name in plain
        if name in COUNTS or name in RATES or ((rate := RATE.fullmatch(name)) and rate[1] in intervals)
    ]
    if rates:
        return f"counts or rates over time ({rates[0]}), expected a row a request; {RATES_REMEDY}"
    return None


def is_outcome(column: str) -> bool:
    """Return True if a column says by its usual name whether requests were served."""
    return normalise(column) in _DATA["outcomes"]


def is_failure(column: str, cell: str | None) -> bool:
    """Return True if a cell of a column of outcomes says that the request was not served."""
    if cell is None or (text := status_text(column, cell)) is None:
        return False
    plain = normalise(column)
    return text.lower() not in (*NULLS, "0", "false") if "error" in plain else not WELL.fullmatch(text)


def status_text(column: str, cell: Any) -> str | None:
    """Return what a cell of a column of outcomes says, as `WELL` reads it; None for a code that is none of HTTP."""
    text = str(cell).strip()
    if re.fullmatch(r"[1-5]\d\d", text):
        return text
    plain = normalise(column.rpartition(".")[2])
    if column.endswith("status.code") and text.lower() in ("2", "error", "status_code_error"):  # OpenTelemetry's
        return "error"
    if plain == "code" and not re.fullmatch(r"[1-5]\d\d[.]0*", text):
        return None
    return "true" if plain in FLAGS and text.lower() in ("1", "1.0", "yes", "y", "t") else text


def scale(unit: str | None) -> float:
    """Return how many of a unit make a second; of none, 1."""
    return PER_SECOND[unit or "s"]


def stated_seconds(cells: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Return durations whose cells state their units, (n,) text, as text of seconds; None unless all do."""
    if not pc.any(pc.match_substring_regex(cells, DURATION_END)).as_py():
        return None
    texts = cells.to_pylist()
    try:
        seconds = [None if text is None or text.strip().lower() in NULLS else _stated_s(text) for text in texts]
    except KeyError:
        return None
    found = [text if second is None else f"{second:.9f}" for text, second in zip(texts, seconds, strict=True)]
    return pa.chunked_array([pa.array(found, pa.string())])


def _stated_s(text: str) -> float:
    """Return the seconds of 5s, 500 ms or Go's 1m30s. Raises KeyError if a number lacks a unit, or has another."""
    parts = DURATION_PART.findall(text)
    if DURATION_PART.sub("", text).strip() or not parts:
        raise KeyError(text)
    words = [word.lower().replace("µ", "u").replace("μ", "u") for _, word in parts]
    # Among other units m is minutes; alone it may be anything.
    units = ["min" if word == "m" and len(words) > 1 else UNIT_WORDS[word] for word in words]
    return sum(float(number) / scale(unit) for (number, _), unit in zip(parts, units, strict=True))
