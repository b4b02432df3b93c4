"""What is compared: designs under the same traffic, and what is read off their numbers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sim.study.verdicts import Facts, Judged

COPIES = (
    "allocation.servers=4",
    "controlnets.placement=[[controlnet-1],[controlnet-2],[controlnet-1],[controlnet-2]]",
)
"""Two servers for each of two ControlNets."""

COMPARED = {"p50_s": "p50", "p95_s": "p95", "rpm_per_gpu": "throughput", "usd_per_image": "cost"}
"""What a composition is compared in with its parts; less is better, but of throughput."""

MIN_GAIN = 0.01
"""Relative gain over a part that counts as one."""

Designs = Mapping[str, Mapping[str, Any]]
"""What was measured of each design of one traffic, by its name."""


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
    reading: Callable[[Designs], str]
    """What the numbers show, in words that are true of any."""


def _addons(of: Designs) -> str:
    series, gangs = of["diffusers"], of["swiftdiffusion"]
    per_gpu = [each["rpm_per_gpu"] for each in of.values()]
    caches = "; ".join(
        f"{what} {change(of[name], other, 'p50_s')} at {hits(of[name])} hits"
        for what, name, other in (
            ("NIRVANA's before diffusers", "nirvana, add-ons in series", series),
            ("NIRVANA's under SwiftDiffusion", "swiftdiffusion under nirvana", gangs),
            ("MoDM's before diffusers", "modm with add-ons", series),
        )
    )
    return (
        f"Per GPU they give from {min(per_gpu):.2f} to {max(per_gpu):.2f} images a minute. SwiftDiffusion has "
        f"{gangs['p50_s'] / series['p50_s']:.0%} of the median latency of diffusers and "
        f"{gangs['rpm_per_gpu'] / series['rpm_per_gpu']:.0%} of its images per GPU: a gang holds all of its GPUs while "
        f"some of them wait. What a cache changes of the median: {caches}. A LoRA that is not there is loaded whether "
        "its request hits or not."
    )


def _prompts(of: Designs) -> str:
    alone = of["vanilla"]["rpm_per_gpu"]
    cache, batches, both = (
        of[name]["rpm_per_gpu"] / alone
        for name in ("modm, one at a time", "patched batches", "modm before patched batches")
    )
    return (
        f"Vanilla's throughput times {cache:.2f} with the cache, times {batches:.2f} with batches, and times "
        f"{both:.2f} with both; the product of the two would be {cache * batches:.2f}. The cache changes the "
        f"throughput of requests that are served one at a time by {cache - 1:+.0%}, and that of batches by "
        f"{both / batches - 1:+.0%}: a hit leaves fewer steps, but a batch pays for a step whoever is in it."
    )


def _controlnets(of: Designs) -> str:
    batches, gangs = of["4 servers, patched batches"], of["swiftdiffusion, gangs"]
    return (
        "Where ControlNets run on servers, batches change the throughput by "
        f"{change(batches, of['4 servers, one at a time'], 'rpm_per_gpu')}, a server answering one call at a time; "
        "where the ControlNets lie, with one copy of each for two, changes it by "
        f"{change(of['the same, a copy of each'], batches, 'rpm_per_gpu')}. Shared servers give "
        f"{batches['rpm_per_gpu'] / gangs['rpm_per_gpu']:.2f} times the images per GPU of gangs. Requests with LoRAs "
        "in their weights cannot share a batch at all, which is why none are asked for here."
    )


def change(one: Mapping[str, Any], other: Mapping[str, Any], key: str) -> str:
    """Of ``one`` over ``other``, in percent."""
    return f"{one[key] / other[key] - 1:+.0%}"


def hits(each: Mapping[str, Any]) -> str:
    """Its hit rate; a dash for a design that has no cache."""
    return "-" if each["hit_rate"] is None else f"{each['hit_rate']:.0%}"


def judged(facts: Facts) -> dict[str, Judged]:
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


TRAFFICS = (
    Traffic(
        "Service A: prompts with ControlNets and LoRAs",
        ("trace=synthetic-service-a",),
        10.0,
        (
            Design("diffusers", ("system=diffusers",)),
            Design("nirvana, add-ons in series", ("system=nirvana-add-ons",)),
            Design("swiftdiffusion", ("system=swiftdiffusion",)),
            Design(
                "swiftdiffusion under nirvana", ("system=swiftdiffusion-nirvana",),
                ("nirvana, add-ons in series", "swiftdiffusion"),
            ),
            Design("modm with add-ons", ("system=modm-add-ons",), ("diffusers",)),
        ),
        _addons,
    ),
    Traffic(
        "Prompts alone, 1024x1024",
        ("trace=synthetic",),
        60.0,
        (
            Design("vanilla", ("system=vanilla",)),
            Design("modm, one at a time", ("system=modm-add-ons",)),
            Design("patched batches", ("system=patched-cache", "feature_cache=none")),
            Design("modm before patched batches", ("system=modm-patched",), ("modm, one at a time", "patched batches")),
        ),
        _prompts,
    ),
    Traffic(
        "Two ControlNets for every request, no LoRA",
        ("trace=add-ons", "trace.controlnets=2", "trace.loras=0"),
        20.0,
        (
            Design("diffusers", ("system=diffusers",)),
            Design("swiftdiffusion, gangs", ("system=swiftdiffusion",)),
            Design("4 servers, one at a time", ("system=patched-add-ons", *COPIES, "executor.limit=1")),
            Design(
                "4 servers, patched batches", ("system=patched-add-ons", *COPIES, "executor.limit=4"),
                ("4 servers, one at a time",),
            ),
            Design("the same, a copy of each", ("system=patched-add-ons", "allocation.servers=4", "executor.limit=4")),
        ),
        _controlnets,
    ),
)  # fmt: skip
