"""Items of a cache, as eviction policies number them."""

from mezzotint.sim.protocols import Item

FINAL = 0
"""The K of a final image."""

# An item is its entry above its K; a record is its key above the item. 2^40 entries, K below 16,384.
K_BITS = 14
K_MASK = (1 << K_BITS) - 1
ITEM_BITS = 54


def items_of(entry: int, ks: tuple[int, ...]) -> list[Item]:
    first = entry << K_BITS
    if len(ks) == 1:
        return [first | ks[0]]
    return [first | k for k in ks]
