"""The page on add-ons as Markdown."""

from collections.abc import Mapping
from typing import Any

from conf.page import table
from sim.study.addons.figure import NAMES

Facts = Mapping[str, Any]
"""What the command found, as its JSON has it."""


def render(facts: Facts, images: Mapping[str, str]) -> str:
    """The page; ``images`` are the figures' file names."""
    blocks = ["# Add-ons", "Made by `mezzotint scorecard addons`.", *_caches(facts["caches"], images["caches"])]
    blocks += [*_routing(facts["served"], images["served"]), *_placement(facts["served"])]
    return "\n\n".join(blocks) + "\n"


def _caches(facts: Facts, image: str) -> list[str]:
    error = facts["error"]
    blocks = [
        "## Caches on each node",
        f"![Loads per request against the size of the cache]({image})",
        "Each node of services A and B (SwiftDiffusion, 3.1 and Figure 7) keeps the add-ons that it used in a cache of "
        "so many; what is not there is loaded. *Measured*: Katz's artifact, LRU. *Made*: the synthetic services "
        "(`trace=synthetic-service-a`, `-b`), all of their requests and nodes. LFU counts uses since an add-on "
        "entered the cache, as Katz's artifact does (trace/adapter_loading_analysis.py); among equals the longest "
        "unused goes.",
        "The services' popularity, numbers per request, nodes and different LoRAs on a node are Katz's own, and "
        f"nothing is fitted to the {facts['points']} measured points: what is made **predicts** them, "
        f"{error['mean']:.2f} loads off in the mean and {error['largest']:.2f} at most. ControlNets above all are "
        "loaded too often: production traffic stays with one for a run of requests, which no other statistic tells. "
        "*Fitted* (`trace=synthetic-service-a-fitted`, `-b-fitted`): the same where how long a node stays with what it "
        f"runs is fitted to these very points, so no prediction: {error['fitted_mean']:.3f} off in the mean and "
        f"{error['fitted_largest']:.3f} at most; nothing is fitted to LFU. Sizes that nobody published are the "
        "curves'.",
    ]
    for curve in facts["curves"]:
        blocks.append(f"**Service {curve['service']}, {NAMES[curve['kind']]}**, loads per request")
        rows = [("made, LRU", curve["made"]["lru"]), ("made, LFU", curve["made"]["lfu"])]
        if curve["measured"]:
            rows.insert(0, ("measured, LRU", [curve["measured"].get(str(size)) for size in curve["sizes"]]))
            rows += [("fitted, LRU", curve["fitted"]["lru"]), ("fitted, LFU", curve["fitted"]["lfu"])]
        head = ("size", *(str(size) for size in curve["sizes"]), "all")
        last = {"made, LRU": curve["all"], "made, LFU": curve["all"]}
        blocks.append(
            table(head, [(name, *map(number, values), number(last.get(name))) for name, values in rows], right=True)
        )
    return blocks


def _routing(facts: Facts, image: str) -> list[str]:
    rows = [
        (
            row["name"],
            f"{row['rate_rpm']:g}",
            *(f"{row[key]:.1f}" for key in ("mean_s", "p95_s")),
            *(f"{row['loads_per_request'][kind]:.2f}" for kind in ("controlnet", "lora")),
        )
        for row in facts["routing"]
    ]
    return [
        "## Routing by add-on",
        f"![Latency and loads per request by router]({image})",
        f"Service B through one door, {facts['rows']} requests, diffusers on eight H800 that keep three ControlNets "
        "each and merge LoRAs in place; a queue at every GPU. A request goes anywhere, to the fewest requests, to "
        "where it would be done first if what must be loaded counts as work (`router=by-addons`), or to where its "
        "add-ons are, however long it waits there. ControlNets are few: GPUs come to serve some of them each, and "
        "two loads of three are saved where there is time to choose; under load there is less to choose, fewer are "
        "saved, and what they save is worth more. LoRAs are too many to be found anywhere. At any price it hurts: a "
        "few GPUs have all of the queue.",
        table(
            ("router", "requests/min", "mean [s]", "p95 [s]", "ControlNets loaded", "LoRAs loaded"), rows, right=True
        ),
    ]


def _placement(facts: Facts) -> list[str]:
    rows = [
        (
            row["name"],
            ", ".join(f"{load:.2f}" for load in row["load"]),
            *(f"{row[key]:.2f}" for key in ("turns_s", "mean_s", "p95_s")),
        )
        for row in facts["placement"]
    ]
    return [
        "## Placement of ControlNets",
        f"Service A at {facts['placement'][0]['rate_rpm']:g} requests a minute, sixteen GPUs for denoisers and six "
        "that serve ControlNets to all of them (`mezzotint plan placement --service A --rate-rpm 120 --servers 6`). "
        "*Solved*: a mixed-integer program divides the calls of what is popular among copies and keeps apart what is "
        "called together. *One each*: the most called have a server of their own, the last server the rest. *In turn*: "
        "dealt out by rank. A server over 1 has more calls than it can answer; its queue grows for as long as the run.",
        table(("", "load of the servers, by the plan", "turns [s]", "mean [s], run", "p95 [s], run"), rows, right=True),
    ]


def number(value: float | None) -> str:
    """Three decimals; a dash for nothing."""
    return "-" if value is None else f"{value:.3f}"
