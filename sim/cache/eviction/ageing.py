"""Assumptions of LFU and LCBFU on use counts, which NIRVANA does not print."""

from typing import Annotated

from annotated_types import Ge, Le

from mezzotint.settings.ranges import MOST
from mezzotint.sim.protocols import Run

Uses = Annotated[int, Ge(0), Le(MOST)]
"""Number of uses that an item enters with."""


def assume_use_counts(run: Run, policy: str, ageing: bool, initial_uses: int) -> None:
    run.assume(
        f"{policy}: uses that an item enters with",
        initial_uses,
        "not published; from 0, as in MoDM's artifact, what was never used is always the next to go",
    )
    run.assume(
        f"{policy}: whether uses of long ago fade",
        "dynamic ageing (LFUDA)" if ageing else "no",
        "not published; chosen because plain counts fill a cache with what was popular once, which the paper's do not",
    )
