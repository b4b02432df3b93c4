"""Artifact store: holds latents and images, apart from the index that finds them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from mezzotint.settings.ranges import Seconds
from mezzotint.sim.cache.outage import Outages


@dataclass(slots=True)
class ArtifactStore:
    """File store (NIRVANA's EFS, 5.3) with outages; a fetch takes the front end's ``fetch_s``. Artifacts written during
    an outage are there when the store is back.

    Args:
        outages: windows [from_s, until_s] on the run's clock, in seconds, in order.
        timeout_s: seconds that a request waits for a store that is down before it is generated in full.
    """

    outages: Sequence[tuple[Seconds, Seconds]] = ()
    timeout_s: Seconds = 1.0
    outage: Outages = field(init=False)

    def __post_init__(self) -> None:
        self.outage = Outages(self.outages, "store.outages")
