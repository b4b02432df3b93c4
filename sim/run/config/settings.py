"""The keys of a configuration, with their types."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model

from conf.assumption import Assumption
from conf.validation import first_error
from sim.core.errors import ConfigError
from sim.core.slo import Limit, parse_limit
from sim.metrics.cost import PaidService
from sim.run.config.build import Parts
from sim.run.config.choices import groups
from sim.run.config.typed import Real, Truth, Whole

MOST_GPUS = 100_000
"""More than anybody has, and as many as a run can hold in memory."""


def _told_apart(limits: list[Limit]) -> list[Limit]:
    if len({str(limit) for limit in limits}) < len(limits):
        raise ValueError("expected limits that differ in their first six digits")
    return limits


class Cluster(BaseModel):
    """How many GPUs, and of what kind."""

    model_config = ConfigDict(extra="forbid")
    count: Annotated[Whole, Field(ge=1, le=MOST_GPUS)]
    gpu: dict[str, Any]


class Directory(BaseModel):
    """Where the run directory is."""

    model_config = ConfigDict(extra="forbid")
    dir: Annotated[str, Field(min_length=1)]


class System(BaseModel):
    """A system beside its parts: its name, what it does with add-ons, the services that it pays for, and its
    assumptions."""

    model_config = ConfigDict(extra="forbid")
    name: Annotated[str, Field(min_length=1)]
    addons: Literal["ignore", "serve"] = "ignore"
    services: dict[str, PaidService] = {}
    assumptions: list[Assumption] = []


def _chosen(node: dict[str, Any]) -> dict[str, Any]:
    if not node:
        raise ValueError("expected one to be chosen; name a file of its group")
    return node


Needed = Annotated[dict[str, Any], AfterValidator(_chosen)]
"""What was chosen in a group that no run can do without."""

Chosen = dict[str, Any] | None
"""What was chosen in a group that may be left out."""


class Settings(BaseModel):
    """The keys of conf/config.yaml, resolved; what each means stands there."""

    model_config = ConfigDict(extra="forbid")
    seed: Annotated[Whole, Field(ge=0)]
    shapes: Literal["model", "trace"]
    addons: Literal["ignore", "serve"]
    extrapolate: Literal["error", "warn"]
    slo: Annotated[list[Annotated[Limit, BeforeValidator(parse_limit)]], AfterValidator(_told_apart)]
    warmup: Annotated[Whole, Field(ge=0)]
    preload: Annotated[Whole, Field(ge=0)]
    sample_s: Annotated[Real, Field(ge=1e-3, le=1e9)]
    timeline: Truth
    run: Directory
    models: Annotated[dict[str, dict[str, Any]], AfterValidator(_chosen)]
    trace: dict[str, Any]
    encoder: dict[str, Any]
    similarity_map: dict[str, Any]
    search: dict[str, Any]
    arrivals: dict[str, Any]
    cluster: Cluster
    backend: dict[str, Any]
    quality: dict[str, Any]
    system: System

    def parts(self) -> Parts:
        """The parts of the system, to be built. What the run itself takes (a trace, a backend) is not among them."""
        return Parts({name: getattr(self, name) for name in PARTS})


PARTS = {name: group.part for name, group in groups().items() if group.part is not None}
"""Groups whose choices may need each other."""

_WITH_PARTS = create_model(
    "Settings",
    __base__=Settings,
    **{name: (Needed, ...) if part == "needed" else (Chosen, None) for name, part in PARTS.items()},  # type: ignore[call-overload]
)


def check(config: Mapping[str, Any]) -> Settings:
    """The configuration with its types checked. Raises ConfigError naming the first key that is wrong."""
    try:
        checked: Settings = _WITH_PARTS.model_validate(config)
        return checked
    except ValidationError as error:
        raise ConfigError(first_error(error)) from None
