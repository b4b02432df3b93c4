"""What is compared: designs under the same traffic."""

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from sim.papers.scorecard.targets import read_data
from sim.papers.verdicts import Judged, RequestColumns

COMPARED = {"p50_s": "p50", "p95_s": "p95", "rpm_per_gpu": "throughput", "usd_per_image": "cost"}
"""What a composition is compared in with its parts; less is better, but of throughput."""

MIN_GAIN = 0.01
"""Relative gain over a part that counts as one."""


@dataclass(frozen=True, slots=True)
class Design:
    """One bar: what it is called, the overrides that make it, and the parts that it is a composition of."""

    name: str
    overrides: tuple[str, ...]
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Traffic:
    """One comparison: the same requests for all of its designs, at a light rate and at more than can be served."""

    title: str
    overrides: tuple[str, ...]
    light_rpm: float
    designs: tuple[Design, ...]


def judged(facts: RequestColumns) -> dict[str, Judged]:
    """Return the verdicts of the page's JSON: whether each composition is better than each of its parts."""
    found = {}
    for traffic in facts["traffics"]:
        designs = {each["name"]: each for each in traffic["designs"]}
        for name, each in designs.items():
            for part in each["parts"]:
                for key, what in COMPARED.items():
                    ours, other = each[key], designs[part][key]
                    gain = ours / other - 1 if key == "rpm_per_gpu" else 1 - ours / other
                    expected = f"{MIN_GAIN:.0%} better than {other:.4g}"
                    row = f"{traffic['title']}: {name} over {part}, {what}"
                    found[row] = Judged(expected, f"{ours:.4g}", gain >= MIN_GAIN)
    return found


TRAFFICS: tuple[Traffic, ...] = read_data(Path(str(files("conf"))) / "data" / "compositions.yaml", tuple[Traffic, ...])
