"""The artifact store: where latents and images lie, apart from the database that finds them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from conf.ranges import Seconds
from sim.cache.outage import Outages


@dataclass(slots=True)
class ArtifactStore:
    """A file store (NIRVANA's EFS, 5.3) that may be out of service; a fetch takes the front end's ``fetch_s``. What is
    written during an outage is there when the store is back.

    Args:
        outages: windows [from_s, until_s] on the run's clock, in seconds, in order.
        timeout_s: how long a request waits for a store that is down before it is generated in full.
    """

    outages: Sequence[tuple[Seconds, Seconds]] = ()
    timeout_s: Seconds = 1.0
    outage: Outages = field(init=False)

    def __post_init__(self) -> None:
        self.outage = Outages(self.outages, "store.outages")
