"""How counts of uses begin and fade: what LFU and LCBFU share of what NIRVANA does not print."""

from sim.errors import ConfigError
from sim.parts import Run


def check(initial_uses: int) -> None:
    """Raise ConfigError for a number of uses that cannot be."""
    if initial_uses < 0:
        raise ConfigError(f"eviction.initial_uses: found {initial_uses}, expected 0 or more uses")


def assume(run: Run, policy: str, ageing: bool, initial_uses: int) -> None:
    """Say in the summary what the policy rests on."""
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
