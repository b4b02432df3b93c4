"""Read the summary, configuration and tables of finished runs; errors name the file and the key or column."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic_core import CoreSchema, SchemaValidator, ValidationError, core_schema

from mezzotint.files.document import DocumentError, parse, parse_json
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.former_names import present_config
from mezzotint.sim.core.run_folder import CONFIG, REQUESTS, SUMMARY
from mezzotint.sim.core.tenant import USER
from mezzotint.sim.metrics.recount import COUNTED, differences
from mezzotint.sim.metrics.request_columns import IMAGES
from mezzotint.sim.metrics.summary import SCHEMA
from mezzotint.sim.metrics.summary_keys import Contradiction, contradictions, schema

if TYPE_CHECKING:
    import pandas as pd

TEXT_COLUMNS = ("outcome", "lookup", USER)
"""Columns of requests.parquet that are read as text."""

_ANY = core_schema.any_schema()
_TEXT = core_schema.str_schema()
_TEXTS = core_schema.list_schema(_TEXT)
_WHOLE = core_schema.nullable_schema(core_schema.int_schema(ge=1))
_COUNT = core_schema.int_schema(ge=0)
_REAL = core_schema.nullable_schema(core_schema.float_schema(allow_inf_nan=False, ge=0))


def _rows(required: Sequence[str], kinds: Mapping[str, CoreSchema], optional: Sequence[str] = ()) -> CoreSchema:
    """A list of mappings, or null: keys of ``kinds`` are of their kind, others are text."""
    fields = {
        key: core_schema.typed_dict_field(kinds.get(key, core_schema.nullable_schema(_TEXT)), required=key in required)
        for key in (*required, *optional)
    }
    return core_schema.nullable_schema(core_schema.list_schema(core_schema.typed_dict_schema(fields)))


_ASSUMPTION = ("what", "value", "source")
_READ = (
    *("schema", "system", "seed", "trace", "assumptions"),
    *("requests", "requests.arrived", "requests.completed", "requests.discarded", "requests.failed", "throughput_rpm"),
    *(f"{group}{name}" for group in ("latency_s", "queue_s") for name in ("", ".mean", ".p50", ".p99")),
    *("load", *(f"load.{name}" for name in ("verdict", "offered_rpm", "served_rpm", "growth_per_hour", "note"))),
    *(f"state.{name}" for name in ("preloaded", "cache_start", "warmup_s", "warmup_rule", "span_s")),
    *("slo", "slo.*.limit_s", "slo.*.violation_rate"),
    *(
        "cache",
        "cache.hit_rate",
        "cache.compute_saving",
        "cache.hit_share_by_k",
        "gpu",
        "gpu.count",
        "gpu.busy_fraction",
        "gpu.seconds",
    ),
    *(f"{group}{name}" for group in ("energy_j", "cost_usd") for name in ("", ".per_image")),
)
"""Keys that are read of every summary, if it has their group. A key that does not apply is null, so an absent key means
a damaged file."""

_SUMMARY = SchemaValidator(
    schema(
        _READ,
        {
            **dict.fromkeys(("schema", "system", "seed"), _ANY),
            "trace.columns.used": _TEXTS,
            "trace.columns.unused": core_schema.dict_schema(_TEXT, _TEXT),
            "trace.columns.left_out": _TEXTS,
            "load.verdict": core_schema.literal_schema(["below", "overloaded", "undecided"]),
            **{
                key: core_schema.nullable_schema(_TEXT)
                for key in ("load.note", "state.cache_start", "state.servers", "state.warmup_rule", "state.note")
            },
            "tenants.rows": _rows(
                ("user_id", "requests", "share", "completed", "discarded_by_limit", "gpu_s", "slowdown", "latency_s"),
                {
                    **dict.fromkeys(("requests", "completed", "discarded_by_limit"), _COUNT),
                    **dict.fromkeys(("share", "gpu_s", "slowdown"), _REAL),
                    "latency_s": core_schema.dict_schema(_TEXT, _REAL),
                },
            ),
            "assumptions": _rows(_ASSUMPTION, dict.fromkeys(_ASSUMPTION, _ANY)),
            "models": _rows(
                ("role", "model", "width", "height", "steps", "precision", "basis", "service_error"),
                {
                    **dict.fromkeys(("role", "model"), _TEXT),
                    **dict.fromkeys(("width", "height", "steps", "frames"), _WHOLE),
                    "untimed": _TEXTS,
                    "requests": _COUNT,
                    "service_error": _REAL,
                },
                # older summaries lack them, and models of images have no frames
                ("gpu", "frames", "source", "software", "date", "untimed", "requests"),
            ),
        },
    )
)

_MAPPING = core_schema.nullable_schema(core_schema.dict_schema(_TEXT))
_BACKEND = core_schema.typed_dict_schema(
    {
        "folder": core_schema.typed_dict_field(core_schema.nullable_schema(_TEXT), required=False),
        "service_factor": core_schema.typed_dict_field(core_schema.float_schema(), required=False),
    }
)
_CONFIG = SchemaValidator(
    core_schema.typed_dict_schema(
        {
            **dict.fromkeys(("arrivals", "client", "hits"), core_schema.typed_dict_field(_MAPPING, required=False)),
            "backend": core_schema.typed_dict_field(core_schema.nullable_schema(_BACKEND), required=False),
        }
    )
)
"""What is read of the configuration of a run."""


def read_summary(folder: Path) -> dict[str, Any]:
    """Read the summary of the run in ``folder``.

    Raises ConfigError, which names file and key, if it is missing, damaged, or of another version.
    """
    path = folder / SUMMARY
    try:
        summary = parse_json(path.read_bytes())
    except OSError as error:
        raise _unreadable(path, error) from None
    except DocumentError as error:
        raise _damage_error(path, f"is not valid JSON ({error})") from None
    if not isinstance(summary, dict):
        raise _damage_error(path, f"the top level is {str(summary)[:60]!r}, expected an object")
    schema = summary.get("schema", SCHEMA)
    if schema != SCHEMA or isinstance(schema, bool):
        remedy = "report it with the version of mezzotint that wrote it, or run it again with this one"
        raise ConfigError(f"{path}: key 'schema' is {schema!r}, this version reads {SCHEMA}; {remedy}")
    _validate(_SUMMARY, summary, path, "summary")
    found = next(contradictions(summary), None) or _find_difference(summary, folder / REQUESTS)
    if found is not None:
        raise _damage_error(path, f"key '{found.key}' is {found.found:.9g}, expected {found.expected}")
    return summary


def _validate(expected: SchemaValidator, found: Mapping[str, Any], path: Path, what: str) -> None:
    """Raise ConfigError with the first key of ``found``, read from ``path``, that is not as ``expected``."""
    try:
        expected.validate_python(found, strict=True)
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        key = f"key '{'.'.join(map(str, wrong['loc']))}'"
        if wrong["type"] == "missing":
            raise _damage_error(path, f"{key} is missing, expected a complete {what}") from None
        kind = wrong["msg"].removeprefix("Input should be ")
        raise _damage_error(path, f"{key} is {str(wrong['input'])[:60]!r}, expected {kind} or null") from None


def _find_difference(summary: Mapping[str, Any], requests: Path) -> Contradiction | None:
    """Return the first difference between a summary and its requests; None if there is none, or their file is gone."""
    if not requests.is_file():
        return None
    table = read_table(requests, COUNTED, [IMAGES])
    try:
        return next(differences(summary, table), None)
    except pa.ArrowException as error:
        reason = " ".join(str(error).split())[:200]
        raise _damage_error(requests, f"cannot be compared with {SUMMARY} ({reason})") from None


def read_summaries(sweep: Path) -> dict[str, dict[str, Any]]:
    """Read the summary of every run in the folder of a sweep, by the run's name; skip damaged ones."""
    found: dict[str, dict[str, Any]] = {}
    for folder in run_folders(sweep):
        try:
            found[folder.name] = read_summary(folder)
        except ConfigError:
            continue
    return found


def run_folders(sweep: Path) -> list[Path]:
    """Return the folders of the finished runs of a sweep, in the order of its points."""
    folders = (path.parent for path in sweep.glob(f"*/{SUMMARY}"))
    return sorted(folders, key=lambda folder: (len(folder.name), folder.name))


def read_config(folder: Path) -> dict[str, Any]:
    """Read the resolved configuration of the run in ``folder``; empty if there is none. Raises ConfigError."""
    path = folder / CONFIG
    if not path.is_file():
        return {}
    try:
        tree = parse(path.read_bytes())
    except OSError as error:
        raise _unreadable(path, error) from None
    except DocumentError as error:
        raise _damage_error(path, f"is not valid YAML ({error})") from None
    if not isinstance(tree, dict | None):
        raise _damage_error(path, f"the top level is {str(tree)[:60]!r}, expected a mapping")
    config: dict[str, Any] = present_config(tree or {})
    _validate(_CONFIG, config, path, "configuration")
    return config


def read_table(path: Path, columns: Sequence[str], optional: Sequence[str] = ()) -> pa.Table:
    """Read ``columns`` of a run's Parquet file, and those of ``optional`` that it has.

    Raises ConfigError, which names file and column, if one is missing or cannot be read.
    """
    try:
        with pa.OSFile(str(path)) as source, pq.ParquetFile(source) as file:  # a path with a colon is a URI to Arrow
            names = file.schema_arrow.names
            wanted = [*columns, *(column for column in optional if column in names)]
            for column in wanted:
                if names.count(column) != 1:
                    raise _damage_error(path, f"column '{column}' is {'there twice' if column in names else 'missing'}")
            return file.read(columns=wanted)
    except FileNotFoundError:
        raise _damage_error(path, "is missing") from None
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # UnicodeDecodeError: damaged column names
        raise _damage_error(path, f"is not a readable Parquet file ({' '.join(str(error).split())[:200]})") from None


def read_columns(path: Path, columns: Sequence[str], optional: Sequence[str] = ()) -> "pd.DataFrame":
    """Read columns as ``read_table`` does, TEXT_COLUMNS as text and all others as float64, null as NaN.

    Raises ConfigError, too, where a column cannot be converted.
    """
    import pandas as pd  # slow to import, and a run needs it not

    table = read_table(path, columns, optional)
    found = {}
    for name in table.column_names:
        kind = pa.string() if name in TEXT_COLUMNS else pa.float64()
        try:
            found[name] = table[name].cast(kind, safe=False).to_pandas()
        except pa.ArrowException as error:
            raise _damage_error(path, f"column '{name}': found {' '.join(str(error).split())[:200]}") from None
    return pd.DataFrame(found)


def _unreadable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{path}: cannot be read ({error.strerror}); check its permissions")


def _damage_error(path: Path, what: str) -> ConfigError:
    return ConfigError(f"{path}: {what}; run it again, or remove {path.parent}")
