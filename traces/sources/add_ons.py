"""A trace of requests with equal add-ons: a setting such as 1C/2L of SwiftDiffusion's experiments."""

from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from annotated_types import Ge, Le

from mezzotint.settings.ranges import Count, Positive
from mezzotint.traces.table.trace import ADDON_BYTES, Trace, make

Few = Annotated[int, Ge(0), Le(1000)]
Bytes = Annotated[int, Ge(1), Le(10**15)]


@dataclass(slots=True)
class AddOns:
    """Requests at a steady rate that all use the same ControlNets and LoRAs.

    Args:
        requests: number of rows.
        controlnets, loras: number of each per request; named controlnet-1 and so on.
        lora_bytes: sizes of lora-1 and so on; the last holds for all further ones. An empty list uses the profile's.
        controlnet_bytes: size of every ControlNet; None uses the profile's.
        gap_s: seconds between arrivals.
    """

    requests: Count = 100
    controlnets: Few = 1
    loras: Few = 1
    lora_bytes: list[Bytes] = field(default_factory=list)
    controlnet_bytes: Bytes | None = None
    gap_s: Positive = 60.0

    def load(self, rng: np.random.Generator) -> Trace:
        nets = [f"controlnet-{n + 1}" for n in range(self.controlnets)]
        loras = [f"lora-{n + 1}" for n in range(self.loras)]
        sizes = {} if self.controlnet_bytes is None else dict.fromkeys(nets, self.controlnet_bytes)
        if self.lora_bytes:
            sizes |= {name: self.lora_bytes[min(n, len(self.lora_bytes) - 1)] for n, name in enumerate(loras)}
        return make(
            {
                "request_id": [f"r-{row}" for row in range(self.requests)],
                "arrival_s": np.arange(self.requests) * self.gap_s,
                "prompt": [f"prompt {row}" for row in range(self.requests)],
                "controlnets": [nets] * self.requests,
                "loras": [loras] * self.requests,
            },
            name=f"{self.controlnets}C/{self.loras}L",
            source="synthetic: the same add-ons for every request",
            notes={"synthetic": True, ADDON_BYTES: sizes},
        )
