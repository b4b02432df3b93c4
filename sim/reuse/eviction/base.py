"""Items: what eviction policies judge."""

from sim.parts import Item

FINAL = 0
"""The K of a final image."""

MOST_STEPS = 10_000
"""No model has more steps, so no K is larger."""

K_BITS = 14
K_MASK = (1 << K_BITS) - 1
ITEM_BITS = 54


def item(entry: int, k: int) -> Item:
    """The item of ``entry`` at ``k``."""
    return entry << K_BITS | k


def items_of(entry: int, ks: tuple[int, ...]) -> list[Item]:
    """The items of ``entry`` at each of ``ks``."""
    first = entry << K_BITS
    if len(ks) == 1:
        return [first | ks[0]]
    return [first | k for k in ks]


def entry_of(item: Item) -> int:
    """The entry that ``item`` belongs to."""
    return item >> K_BITS


def k_of(item: Item) -> int:
    """The K of ``item``."""
    return item & K_MASK
