"""Sessions of streaming video: chunks that are made while the one before plays."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import nan

import numpy as np
from numpy.typing import NDArray

from mezzotint.settings.ranges import Count, Positive, Seconds
from mezzotint.sim.client.in_flight import InFlight
from mezzotint.sim.core.request import COMPLETED, Request
from mezzotint.sim.metrics.request_columns import CHUNK
from mezzotint.sim.protocols import Client, RequestColumn, Run, Sender


@dataclass(slots=True)
class Session:
    """A session as its viewer sees it; times in seconds, NaN before they happen.

    Attributes:
        due_s, sent_s: when it was due, and when its first chunk was asked for; NaN if it was refused.
        first_chunk_s: from its sending to its first chunk.
        chunks: chunks that arrived.
        stalls, stall_s: times that the picture stood still, and for how long in all.
        plays_until_s: end of what has arrived.
    """

    due_s: float
    sent_s: float = nan
    first_chunk_s: float = nan
    chunks: int = 0
    stalls: int = 0
    stall_s: float = 0.0
    plays_until_s: float = nan


@dataclass(slots=True)
class Streaming(Client):
    """Ask for the video of a session chunk by chunk, while the chunk before plays.

    Each row of the trace is a session. The first chunk plays ``start_buffer_s`` after it came. Each further one is
    asked for that long before the chunk before it begins to play: a viewer who steers is at most one chunk ahead. A
    chunk that comes after the end of the one before is a stall: the picture stands still until it comes. Its deadline
    is that end. A chunk is a request of the server with a row of its own, of the shape of its session.

    Args:
        chunks: chunks of a session.
        frames, first_frames: frames of a chunk, and of the first one. The server's seconds are those of ``frames``.
        fps: frames a second that play.
        start_buffer_s: seconds that the first chunk waits before it plays.
        max_sessions: sessions at once; others are refused. None admits all.
        hold: True has them wait for a session to end, in place of refusing them.
    """

    chunks: Count = 40
    frames: Count = 12
    first_frames: Count = 9
    fps: Positive = 16.0
    start_buffer_s: Seconds = 0.1
    max_sessions: Count | None = None
    hold: bool = False
    max_tries: int = field(init=False)
    gives_up: bool = field(init=False, default=False)
    _run: Run = field(init=False, repr=False)
    _sender: Sender = field(init=False, repr=False)
    _number: RequestColumn = field(init=False, repr=False)
    _sessions: dict[int, Session] = field(init=False, default_factory=dict, repr=False)
    """Each session that was due so far, by trace row."""
    _live: InFlight = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.max_tries = self.chunks

    def bind(self, run: Run, sender: Sender) -> None:
        self._run, self._sender = run, sender
        self._number = run.add_column(CHUNK, int)
        self._live = InFlight(run.clock, self.max_sessions, self._begin)
        run.gauge("sessions", lambda _: self._live.count)

    def due(self, row: int, now_s: float) -> None:
        self._sessions[row] = Session(now_s)
        if self.hold or not self._live.is_full:
            self._live.add(row)
            return
        request = self._sender.make(row)
        self._number[request.row] = 1
        self._sender.refuse(request, f"{self._live.count} sessions were live (client.max_sessions)")
        self._sender.send_next()

    def _begin(self, row: int) -> None:
        self._sessions[row].sent_s = self._run.clock._now
        self._send(row)

    def _send(self, row: int) -> None:
        session = self._sessions[row]
        request = self._sender.make(row, session.chunks + 1)
        self._number[request.row] = session.chunks + 1
        if session.chunks:
            request.deadline_s = session.plays_until_s
        self._sender.send(request)

    def resend(self, row: int) -> None:
        self._send(row)

    def ended(self, request: Request, outcome: int, now_s: float) -> None:
        row = self._sender.trace_row(request)
        session = self._sessions[row]
        if outcome != COMPLETED:
            if session.sent_s == session.sent_s:  # else it was refused
                self._end()
            return
        begins_s = session.plays_until_s
        if session.chunks == 0:
            begins_s, session.first_chunk_s = now_s + self.start_buffer_s, now_s - session.sent_s
        elif now_s > begins_s:
            session.stalls += 1
            session.stall_s += now_s - begins_s
            begins_s = now_s
        session.plays_until_s = begins_s + (self.frames if session.chunks else self.first_frames) / self.fps
        session.chunks += 1
        if session.chunks == self.chunks:
            self._end()
        else:
            # Not before this chunk begins to play (test_chunk_is_asked_for_when_the_one_before_begins_to_play).
            self._sender.send_at(max(begins_s - self.start_buffer_s, now_s), row)

    def _end(self) -> None:
        self._live.remove()
        self._sender.send_next()

    def seen(self) -> Mapping[str, NDArray[np.float64]]:
        names = ("due_s", "sent_s", "first_chunk_s", "chunks", "stalls", "stall_s")
        return {name: np.array([getattr(each, name) for each in self._sessions.values()], float) for name in names}
