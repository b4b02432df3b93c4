"""What is compared: designs under the same traffic."""

from dataclasses import dataclass

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
    ),
)  # fmt: skip
