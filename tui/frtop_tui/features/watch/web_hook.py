"""Sends a verdict to a web hook: one JSON object by POST. The address may be a secret."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any, Final

from frtop_tui.errors import UsageError

PAUSES_S: Final = (2.0, 8.0, 30.0)
"""Before the second, third and fourth attempt."""
ANSWER_S: Final = 10.0
"""How long each step of one attempt may take."""
_TRIED_AGAIN: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirected POST becomes a GET without its content: that would be a success of nothing."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class WebHook:
    """One address, by http or https."""

    def __init__(self, url: str, *, pause: Callable[[float], None] = time.sleep) -> None:
        """Raises `UsageError` if `url` is no such address."""
        usage = UsageError("--post takes an address of http or https", "--post https://host/path")
        try:
            parts = urllib.parse.urlsplit(url)
            _ = parts.port
        except ValueError:
            raise usage from None  # its text quotes the address
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise usage
        self.name = f"{parts.scheme}://{parts.hostname}"
        """Without the path, which is the secret of many hooks."""
        self._url = url
        self._pause = pause
        self._opener = urllib.request.build_opener(_NoRedirect)

    def send(self, event: dict[str, Any]) -> str:
        """Why it was not taken, "" if it was."""
        content = json.dumps(event).encode()
        problem, final = self._once(content)
        for pause_s in PAUSES_S:
            if not problem or final:
                break
            self._pause(pause_s)
            problem, final = self._once(content)
        return problem

    def _once(self, content: bytes) -> tuple[str, bool]:
        """Why one attempt failed, and whether another one would."""
        headers = {"Content-Type": "application/json", "User-Agent": "frtop"}
        request = urllib.request.Request(self._url, content, headers)  # noqa: S310 - checked above
        try:
            with self._opener.open(request, timeout=ANSWER_S):
                return "", True
        except urllib.error.HTTPError as error:
            error.close()
            return f"answered {error.code}", error.code not in _TRIED_AGAIN
        except urllib.error.URLError as error:
            return f"not reached: {error.reason}", False
        except (OSError, http.client.HTTPException, ValueError) as error:
            # The text of some quotes the address.
            why = getattr(error, "strerror", None) or type(error).__name__
            return f"not reached: {why}", isinstance(error, ValueError)
