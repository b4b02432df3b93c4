"""Bounds on synthetic traffic, checked before any of it is drawn."""

from mezzotint.traces.error import TraceError
from mezzotint.traces.table.validation import LONGEST_S

MAX_DRAWN = 20_000_000
"""Requests and users drawn, at most: ten times the requests of the largest published trace."""

LEAD_MINUTES = 60
"""Minutes of traffic that `mezzotint.traces.synthetic.user_sessions` draws beyond the requests of the trace."""


def check_size(where: str, requests: int, rate_rpm: float, users: float) -> None:
    """Check that the traffic can be drawn in reasonable time and memory.

    Raises:
        TraceError: more than `MAX_DRAWN` requests and users would be drawn, or the trace would be longer than
            `LONGEST_S`; `where` begins the message.
    """
    settings, span_s = f"{where}: requests={requests}, rate_rpm={rate_rpm:g}", requests * 60.0 / rate_rpm
    if not span_s <= LONGEST_S:
        expected = f"expected at most {LONGEST_S:g} s (31.7 years); raise the rate, or lower requests"
        raise TraceError(f"{settings}: spread over {span_s:.3g} s, {expected}")
    drawn = requests + LEAD_MINUTES * rate_rpm
    if not drawn + users <= MAX_DRAWN:
        raise TraceError(
            f"{settings}: needs {drawn:.3g} requests of {users:.3g} users to be drawn, expected at most {MAX_DRAWN:,}"
            " of both; lower the rate (and choose an arrival process of the rate wanted), set users, or lower requests"
        )
