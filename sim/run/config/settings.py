"""The keys of a configuration, with their types."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    create_model,
    field_validator,
    model_validator,
)

from mezzotint.files.names import EXPECTED, is_file_name
from mezzotint.files.validation import first_error
from mezzotint.settings.assumption import Assumption
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.handling import Handling
from mezzotint.sim.core.server import Server
from mezzotint.sim.core.slo import Limit, by_size_name, parse_by_size, parse_limit, parse_size
from mezzotint.sim.metrics.cost import PaidService
from mezzotint.sim.run.config.build import Parts
from mezzotint.sim.run.config.choices import groups
from mezzotint.sim.run.config.typed import Real, Truth, Whole

MAX_GPUS = 100_000
"""More would not fit into the memory of a run."""


def _distinct(limits: list[Limit]) -> list[Limit]:
    if len({str(limit) for limit in limits}) < len(limits):
        raise ValueError("expected limits that differ in their first six digits")
    return limits


def _warmup(value: Any) -> Any:
    """Return None for ``auto``."""
    if value is None:
        raise ValueError("expected a number of requests, or auto")
    return None if value == "auto" else value


def _by_size(value: Any) -> dict[str, Limit]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError("expected sizes and their limits, such as {512x512: 1.5s}")
    return parse_by_size(value)


class ClusterSettings(BaseModel):
    """The number and the kind of GPUs."""

    model_config = ConfigDict(extra="forbid")
    count: Annotated[Whole, Field(ge=1, le=MAX_GPUS)]
    gpu: dict[str, Any]


class PoolSettings(BaseModel):
    """GPUs of one kind: a kind's name or its settings, the number, and the role, null for the allocation's."""

    model_config = ConfigDict(extra="forbid")
    gpu: str | dict[str, Any]
    count: Annotated[Whole, Field(ge=1, le=MAX_GPUS)]
    role: Annotated[str, Field(min_length=1)] | None = None


class PooledSettings(BaseModel):
    """A cluster of several pools."""

    model_config = ConfigDict(extra="forbid")
    pools: Annotated[list[PoolSettings], Field(min_length=1)]

    @field_validator("pools")
    @classmethod
    def _not_too_many(cls, pools: list[PoolSettings]) -> list[PoolSettings]:
        if sum(pool.count for pool in pools) > MAX_GPUS:
            raise ValueError(f"expected {MAX_GPUS:,} GPUs at most")
        return pools


_Handled = Annotated[Real, Field(ge=0, le=1e9)]
"""Seconds of handling."""


class HandlingSettings(BaseModel):
    """The seconds of a request that need no GPU (mezzotint.sim.core.handling)."""

    model_config = ConfigDict(extra="forbid")
    before_s: _Handled = 0.0
    after_s: _Handled = 0.0
    overlap: Truth = True
    by_size: dict[str, _Handled] | None = None

    @field_validator("by_size")
    @classmethod
    def _check_sizes(cls, by_size: dict[str, float] | None) -> dict[str, float] | None:
        return None if by_size is None else by_size_name(by_size)

    def handling(self) -> Handling:
        return Handling(self.before_s, self.after_s, self.overlap, self.by_size or {})


def _compile(value: Any) -> Any:
    """Return ``off`` for YAML's false, and the seconds of a number."""
    if value is False:
        return "off"
    if isinstance(value, str) and value not in ("profile", "off"):
        try:
            return float(value)
        except ValueError:
            raise ValueError("expected profile, off, or seconds") from None
    return value


class ServerSettings(BaseModel):
    """What a start of a server costs, and the first request of each shape after it (mezzotint.sim.core.server)."""

    model_config = ConfigDict(extra="forbid")
    compile: Annotated[Literal["profile", "off"] | _Handled, BeforeValidator(_compile)] = "profile"
    begin: Literal["warm", "ready", "cold"] = "warm"
    warm_up: list[str] = []
    ready_s: _Handled | None = None

    @field_validator("warm_up")
    @classmethod
    def _check_sizes(cls, warm_up: list[str]) -> list[str]:
        return list(by_size_name(dict.fromkeys(warm_up)))

    def server(self) -> Server:
        return Server(self.compile, self.begin, tuple(parse_size(size) for size in self.warm_up), self.ready_s)


class CellSettings(BaseModel):
    """A trace split over clusters (mezzotint.sim.run.cells)."""

    model_config = ConfigDict(extra="forbid")
    count: Annotated[Whole, Field(ge=1, le=MAX_GPUS)] = 1
    number: Annotated[Whole, Field(ge=0)] = 0
    by: Annotated[str, Field(min_length=1)] = "request_id"

    @model_validator(mode="after")
    def _is_one_of_them(self) -> "CellSettings":
        if self.number >= self.count:
            raise ValueError(f"found number={self.number}, expected 0 to {self.count - 1}, of count={self.count} cells")
        return self


class RunSettings(BaseModel):
    """The run folder."""

    model_config = ConfigDict(extra="forbid")
    dir: Annotated[str, Field(min_length=1)]


def _file_name(name: str) -> str:
    if not is_file_name(name):
        raise ValueError(f"expected {EXPECTED}, as run folders are named after it")
    return name


class System(BaseModel):
    """A system without its parts: name, treatment of add-ons, paid services and assumptions."""

    model_config = ConfigDict(extra="forbid")
    name: Annotated[str, AfterValidator(_file_name)]
    addons: Literal["ignore", "serve"] = "ignore"
    services: dict[str, PaidService] = {}
    assumptions: list[Assumption] = []


def _not_empty(node: dict[str, Any]) -> dict[str, Any]:
    if not node:
        raise ValueError("expected one to be chosen; name a file of its group")
    return node


Needed = Annotated[dict[str, Any], AfterValidator(_not_empty)]
"""The choice of a group that every run needs."""

Chosen = dict[str, Any] | None
"""The choice of a group that may be left out."""


class Settings(BaseModel):
    """The keys of conf/config.yaml, resolved; they are described there."""

    model_config = ConfigDict(extra="forbid")
    seed: Annotated[Whole, Field(ge=0)]
    shapes: Literal["model", "trace"]
    addons: Literal["ignore", "serve"]
    extrapolate: Literal["error", "warn"]
    assume: str | None = None
    images: Literal["batch", "requests", "first"] | None = None
    unsupported: Literal["error", "warn"] = "warn"
    slo: Annotated[list[Annotated[Limit, BeforeValidator(parse_limit)]], AfterValidator(_distinct)]
    slo_by_size: Annotated[dict[str, Limit], BeforeValidator(_by_size)] = {}
    warmup: Annotated[Annotated[Whole, Field(ge=0)] | None, BeforeValidator(_warmup)]  # None: auto
    preload: Annotated[Whole, Field(ge=0)]
    sample_s: Annotated[Real, Field(ge=1e-3, le=1e9)]
    timeline: Truth
    handling: HandlingSettings = HandlingSettings()
    server: ServerSettings = ServerSettings()
    cells: CellSettings = CellSettings()
    run: RunSettings
    models: Annotated[dict[str, dict[str, Any]], AfterValidator(_not_empty)]
    trace: dict[str, Any]
    encoder: dict[str, Any]
    similarity_map: dict[str, Any]
    search: dict[str, Any]
    arrivals: dict[str, Any]
    cluster: ClusterSettings | PooledSettings
    backend: dict[str, Any]
    quality: dict[str, Any]
    system: System

    def parts(self) -> Parts:
        """Return the parts of the system, not built yet; inputs of the run (trace, backend) are not among them."""
        return Parts({name: getattr(self, name) for name in PARTS})


PARTS = {name: group.part for name, group in groups().items() if group.part is not None}
"""Groups whose choices may need each other."""


def _with_parts(cluster: type[BaseModel]) -> type[Settings]:
    """Return the settings with all parts, and with the settings ``cluster``: errors then name keys of these alone."""
    parts = {name: (Needed, ...) if part == "needed" else (Chosen, None) for name, part in PARTS.items()}
    return create_model("Settings", __base__=Settings, cluster=(cluster, ...), **parts)  # type: ignore[call-overload,no-any-return]


_OF_ONE_KIND, _OF_POOLS = _with_parts(ClusterSettings), _with_parts(PooledSettings)


def check(config: Mapping[str, Any]) -> Settings:
    """Return the configuration with checked types. Raises ConfigError naming the first wrong key."""
    cluster = config.get("cluster")
    keys = set(cluster) if isinstance(cluster, Mapping) else set()
    pooled = "pools" in keys
    if pooled and {"gpu", "count"} & keys:
        raise ConfigError(
            "cluster.pools: found beside cluster.gpu or cluster.count, and a cluster has one or the other; add "
            "cluster=pools and leave these out"
        )
    try:
        return (_OF_POOLS if pooled else _OF_ONE_KIND).model_validate(_with_present_handling(config))
    except ValidationError as error:
        raise ConfigError(first_error(error)) from None


def _with_present_handling(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return ``config`` without settings of the executor that `handling` replaced, where they are zero.

    Raises ConfigError if one is not: GPUs of ``group_policy=fixed-groups`` and ``fixed-degree`` waited, others did not.
    """
    executor = config.get("executor")
    former = {"handling_s": "after_s", "handling_by_size": "by_size"}
    if not isinstance(executor, Mapping) or former.keys().isdisjoint(executor):
        return config
    for name, present in former.items():
        if executor.get(name):
            raise ConfigError(
                f"executor.{name}: found {executor[name]}, which is handling.{present} now, of every executor; set "
                "that instead, and handling.overlap=false if the GPUs wait for the answer"
            )
    return {**config, "executor": {key: value for key, value in executor.items() if key not in former}}
