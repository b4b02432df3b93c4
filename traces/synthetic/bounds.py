"""What may be asked of made-up traffic: said before any of it is drawn."""

from traces.error import TraceError
from traces.table.validation import LONGEST_S

MAX_DRAWN = 20_000_000
"""Requests and users that are drawn, at most: ten times the requests of the largest published trace."""

LEAD_MINUTES = 60
"""Minutes of traffic that `traces.synthetic.user_sessions` plans beside the requests asked for."""


def check_size(where: str, requests: int, rate_rpm: float, users: float) -> None:
    """Refuse what would be drawn for hours or does not fit into memory.

    Raises:
        TraceError: more than `MAX_DRAWN` requests and users would be drawn, or the trace would be longer than
            `LONGEST_S`; `where` is what the message calls it.
    """
    asked, span_s = f"{where}: requests={requests}, rate_rpm={rate_rpm:g}", requests * 60.0 / rate_rpm
    if not span_s <= LONGEST_S:
        expected = f"expected at most {LONGEST_S:g} s (31.7 years); raise the rate, or ask for fewer"
        raise TraceError(f"{asked}: spread over {span_s:.3g} s, {expected}")
    drawn = requests + LEAD_MINUTES * rate_rpm
    if not drawn + users <= MAX_DRAWN:
        raise TraceError(
            f"{asked}: needs {drawn:.3g} requests of {users:.3g} users to be drawn, expected at most {MAX_DRAWN:,} of"
            " both; lower the rate (and give the trace arrivals of the rate that you want), set users, or ask for fewer"
        )
