"""Designs to compare, by traffic."""

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from mezzotint.sim.papers.study import Comparison, Results, read_data

COMPARED = {"p50_s": "p50", "p95_s": "p95", "rpm_per_gpu": "throughput", "usd_per_image": "cost"}
"""Measures that compare a composition with its parts; less is better, except for throughput."""

MIN_GAIN = 0.01
"""Smallest relative gain over a part that counts."""


@dataclass(frozen=True, slots=True)
class Design:
    """One design: its name, its overrides, and the names of its parts if it is a composition."""

    name: str
    overrides: tuple[str, ...]
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Traffic:
    """One comparison: the same requests for all designs, at a light rate and at saturation."""

    title: str
    overrides: tuple[str, ...]
    light_rpm: float
    designs: tuple[Design, ...]


def comparisons(facts: Results) -> dict[str, Comparison]:
    """Compare each composition in the JSON file with each of its parts: is it better by `MIN_GAIN`?"""
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
                    found[row] = Comparison(expected, f"{ours:.4g}", gain >= MIN_GAIN)
    return found


TRAFFICS: tuple[Traffic, ...] = read_data(
    Path(str(files("mezzotint.conf"))) / "data" / "compositions.yaml", tuple[Traffic, ...]
)
