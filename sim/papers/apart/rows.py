"""Setups of conf/data/apart.yaml: stage times of others, replayed apart or together, and what was measured of them."""

from collections.abc import Mapping
from dataclasses import field
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import yaml
from annotated_types import Ge
from pydantic.dataclasses import dataclass

from mezzotint.settings.ranges import Bandwidth, Count, Seconds, SomeSeconds, SomeShare
from mezzotint.sim.papers.study import Comparison, Results, read_data

WIDTH, HEIGHT = 1664, 928
"""Size in pixels of every request: stage times hold for one size, and only a latent's bytes depend on it."""

DATA = Path(str(files("mezzotint.conf"))) / "data" / "apart.yaml"


@dataclass(frozen=True)
class Weights:
    """Weights of a component: bytes on the GPU, and seconds to load them."""

    bytes: Annotated[int, Ge(1)]
    load_s: SomeSeconds


@dataclass(frozen=True)
class Times:
    """Stage times of a model on a GPU, in seconds.

    Attributes:
        text, step, vae: of text encoder, one denoising step and VAE.
        degrees: parallel degree -> seconds of a step.
        weights: component -> its weights; empty charges no loads.
    """

    gpu: str
    text: SomeSeconds
    step: SomeSeconds
    vae: SomeSeconds
    source: str
    degrees: Mapping[Count, SomeSeconds] = field(default_factory=dict)
    weights: Mapping[str, Weights] = field(default_factory=dict)

    def profile(self, model: str) -> str:
        """Return the profile file of ``model`` (mezzotint.backends.profile)."""
        at = {"width": WIDTH, "height": HEIGHT}
        return yaml.safe_dump(
            {
                "schema": 1,
                "model": model,
                "gpu": self.gpu,
                "source": self.source,
                "basis": "published",
                "text_encode": [{"seconds": self.text}],
                "step": [at | {"seconds": self.step}],
                "vae_decode": [at | {"seconds": self.vae}],
                "gang_step": [at | {"gpus": n, "seconds": seconds} for n, seconds in self.degrees.items()],
                "component_weights": {
                    name: {"bytes": each.bytes, "load_s": each.load_s} for name, each in self.weights.items()
                },
            }
        )


@dataclass(frozen=True)
class GpuKind:
    """A kind of GPU; a memory of None holds everything."""

    memory_bytes: Annotated[int, Ge(1)] | None


@dataclass(frozen=True)
class Setup:
    """A cluster and its load.

    Attributes:
        pools: component -> GPUs, or the component whose pool it shares; empty: all on every GPU.
        degrees: component -> parallel degree.
        outstanding: requests in flight; None sends 50 a second, more than any setup serves.
        handover_s, link_bytes_s: seconds of a hand-over, and bytes per second of the link.
    """

    profile: str
    gpus: Count
    steps: Count
    requests: Count
    outstanding: Count | None = None
    pools: Mapping[str, Count | str] = field(default_factory=dict)
    degrees: Mapping[str, Count] = field(default_factory=dict)
    handover_s: Seconds = 0.0
    link_bytes_s: Bandwidth = 0.0

    def overrides(self, gpu: str, kind: GpuKind) -> list[str]:
        """Return the overrides of `mezzotint run`, besides the folder of the profiles."""
        memory = "null" if kind.memory_bytes is None else kind.memory_bytes
        own = f"{{name: {gpu}, memory_bytes: {memory}, active_w: null, idle_w: null, source: not used}}"
        load = ["arrivals=saturation", "arrivals.gap_s=0.02"]
        if self.outstanding is not None:
            load = ["arrivals=closed", f"arrivals.outstanding={self.outstanding}"]
        return [
            f"system={'pools' if self.pools else 'together'}",
            f"cluster.pools=[{{gpu: {own}, count: {self.gpus}}}]",
            "cluster=pools",
            "models=qwen-image-2512",
            f"models.large.name={self.profile}",
            f"models.large.steps={self.steps}",
            f"models.large.width={WIDTH}",
            f"models.large.height={HEIGHT}",
            f"trace.requests={self.requests}",
            *load,
            *([f"group_policy.pools={_mapping(self.pools)}"] if self.pools else []),
            *([f"group_policy.degrees={_mapping(self.degrees)}"] if self.degrees else []),
            f"executor.migration_s={self.handover_s:g}",
            f"executor.link_bytes_s={self.link_bytes_s:g}",
            "slo=[]",
            "quality=alpha",
        ]

    @property
    def division(self) -> str:
        """The division of its GPUs, such as 1:6:1, in the order of the plan."""
        if not self.pools:
            return f"{self.gpus} together"
        sharing: dict[str, list[str]] = {}
        for name, shared in self.pools.items():
            sharing.setdefault(shared if isinstance(shared, str) else name, []).append(name)
        return ", ".join(f"{self.pools[first]} {' + '.join(names)}" for first, names in sharing.items())


def _mapping(values: Mapping[str, object]) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in values.items()) + "}"


@dataclass(frozen=True)
class Cell:
    """One measured value.

    Attributes:
        measure: rate (images a second), p50 or p95 (seconds), or busiest (the component with the busiest GPUs).
        over: the setup whose value divides that of ``setup``.
        expected: the measured value; a text is a component, or "< 1".
    """

    what: str
    setup: str
    measure: str
    expected: float | str
    over: str | None = None


@dataclass(frozen=True)
class Group:
    """Cells of one source; ``tolerance`` is relative."""

    group: str
    note: str
    cells: tuple[Cell, ...]
    tolerance: SomeShare = 0.1


@dataclass(frozen=True)
class Study:
    """The content of conf/data/apart.yaml."""

    profiles: Mapping[str, Times]
    gpus: Mapping[str, GpuKind]
    setups: Mapping[str, Setup]
    rows: tuple[Group, ...]
    sensitivity: Mapping[str, tuple[str, ...]]
    not_run: Mapping[str, str]


def study() -> Study:
    """Return the study. Raises ConfigError naming the key if the file is damaged."""
    found: Study = read_data(DATA, Study)
    return found


def value_of(cell: Cell, setups: Mapping[str, Results]) -> float | str:
    """Return the simulated value of ``cell`` from the results of the setups."""
    ours = setups[cell.setup][cell.measure]
    if cell.over is not None:
        ratio: float = ours / setups[cell.over][cell.measure]
        return ratio
    assert isinstance(ours, float | str)
    return ours


def comparisons(facts: Results) -> dict[str, Comparison]:
    """Compare each cell of the JSON file with what was measured."""
    found = {}
    for group in facts["rows"]:
        for cell in group["cells"]:
            ours, expected = cell["ours"], cell["expected"]
            if isinstance(ours, str):
                is_within = ours == expected
            elif isinstance(expected, str):
                is_within = ours < float(expected.removeprefix("<"))
            else:
                is_within = abs(ours / expected - 1) <= group["tolerance"]
            found[f"{group['group']}: {cell['what']}"] = Comparison(_text(expected), _text(ours), is_within)
    return found


def _text(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"
