"""Asks agents for NCCL's RAS when a person wants it: looks first, asks once, repeats nothing."""

from __future__ import annotations

import math
from functools import partial
from typing import Final

from frtop_probe import wire
from frtop_tui.connect.commands import why_not_ask
from frtop_tui.connect.request_tracker import RequestTracker
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.job.state import JobState
from frtop_tui.ras.risk import making_elsewhere

PAUSE_NS: Final = 10_000_000_000
"""Between two questions, through whichever host: every process of a job hears of each."""
LOOK_NS: Final = 20_000_000_000
"""An agent looks for up to 14 s: at a process, at ports, at the stacks of the ranks."""
ASK_NS: Final = 50_000_000_000
"""In addition it tries to connect for up to 12 s, and RAS may take 8 s."""


class RasCommands:
    """Belongs to the source's thread."""

    def __init__(self, tracker: RequestTracker, state: JobState) -> None:
        self._tracker = tracker
        self._state = state
        self._under_way: dict[bool, tuple[str, int]] = {}
        """Host and key that are being looked at (True), or asked (False)."""
        self._asked_ns: int | None = None

    def ask(self, frame: Frame | None, rank: int, now: int, *, look: bool) -> None:
        """Looks at a rank, or asks its RAS; its view gets the response, or why there is none."""
        view = frame.ranks.get(rank) if frame is not None else None
        if frame is None or view is None or look in self._under_way:
            return
        reason, text = why_not_ask(frame, view)
        if not reason and (text := making_elsewhere(frame)):
            reason = "making"
        if not reason and not look and self._asked_ns is not None:
            left_ns = self._asked_ns + PAUSE_NS - now
            if left_ns > 0:
                text = "RAS was asked a few seconds ago: polling it has crashed jobs"
                reason, text = "busy", f"{text}; ask again in {math.ceil(left_ns / 1e9)} s"
        if reason:
            self._set_error(view, reason, text, look=look)
            return
        request = wire.RasRequest(0, view.key, ask=not look)
        received = partial(self._received, view, look)
        self._under_way[look] = view.host, view.key
        if not look:
            self._asked_ns = now
        if look:
            self._tracker.request(view.host, request, received, now, timeout_ns=LOOK_NS)
        elif not self._tracker.request_now(view.host, request, received, now, timeout_ns=ASK_NS):
            # Never sent again by itself: nobody would know whether RAS was asked twice.
            del self._under_way[look]
            self._asked_ns = None
            text = f"{view.host} cannot be reached now; ask again when it is heard"
            self._set_error(view, "unheard", text, look=look)

    def _received(self, view: JudgedRank, look: bool, response: wire.Response, _now: int) -> None:
        self._under_way.pop(look, None)
        if isinstance(response, wire.RasResponse):
            self._state.apply_ras(view.host, response, look=look)
        elif isinstance(response, wire.Error):
            text = response.text
            if not look and response.reason in ("deadline", "lost"):
                text = f"{text.partition(';')[0]}: whether RAS was asked is not known"
            self._set_error(view, response.reason or "refused", text, look=look)

    def _set_error(self, view: JudgedRank, error: str, text: str, *, look: bool) -> None:
        response = wire.RasResponse(0, view.host, view.key, 0, error=error, help=text)
        self._state.apply_ras(view.host, response, look=look)
