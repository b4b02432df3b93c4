"""Users, sessions, repeats and sizes of a small trace, counted by hand."""

import numpy as np
import pytest

from mezzotint.traces.describe import describe_trace
from mezzotint.traces.table.trace import make


def test_describe_counts_sessions_prompts_and_sizes() -> None:
    trace = make(
        {
            "request_id": list("abcdef"),
            "arrival_s": [0.0, 60.0, 60.0, 1860.0, 3661.0, 3662.0],
            "user_id": ["u", "v", None, "u", "u", "v"],
            "prompt": ["x", "x", "y", "x", None, "y"],
            "width": np.full(6, 512),
            "height": [512, 512, 512, 512, 640, None],
        },
        name="n",
        source="s",
    )
    described = describe_trace(trace).to_dict()
    # u: 0 and 1860 are 31 minutes apart, 1860 and 3661 a second more than 30; v: an hour
    assert described["sessions"]["count"] == 5
    assert described["users"] == {
        "count": 2,
        "requests_mean": 2.5,
        "requests_max": 3,
        "top_ten_share": 1.0,
        "unknown_share": pytest.approx(1 / 6),
    }
    # x again by v and then by u, y again by v after nobody: one of three by the same user
    assert described["prompts"]["distinct"] == 2
    assert described["prompts"]["repeat_share"] == pytest.approx(3 / 5)
    assert described["prompts"]["repeat_same_user_share"] == pytest.approx(1 / 3)
    assert described["sizes"]["most"] == pytest.approx({"512x512": 4 / 6, "512x640": 1 / 6})
    assert described["rate_rpm"] == pytest.approx(5 / 3662 * 60)
