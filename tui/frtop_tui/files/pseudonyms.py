"""Pseudonyms: within one capture, a name always gets the same one.

Pure. Numbers count up in the order of first use, so nothing of a name is left, not even its hash.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final

MAX_TEXT: Final = 8192
"""Longest sentence; the rest is cut, as searching for names takes quadratic time."""
_OWN: Final = ("", "localhost", "none", "unknown", "root")
_COMMON: Final = frozenset({"root", "user", "rank", "host", "node", "job", "train", "test"})
"""Common words: if they are also names, we replace only whole fields."""
_SYSTEM: Final = re.compile(r"/(?:dev|proc|sys|bin|lib|lib64|usr/lib|usr/lib64|usr/bin)/")
"""Folders that are the same on every machine: kept, except `/dev/shm`."""
_SHARED_MEMORY: Final = "/dev/shm/"  # noqa: S108 - only compared
_CODE: Final = re.compile(
    r"/(?=(?:(?:site|dist)-packages|python3[^/]*|vllm|sglang|deep_ep|pplx_kernels|mscclpp|nvshmem"
    r"|flashinfer|aiter|asyncio|multiprocessing|filelock|frtop_probe|torchinductor_user)/"
    r"|torch/(?:_|\w+\.py$|(?:nn|distributed|autograd|utils|optim|cuda|xpu|mps|cpu|accelerator"
    r"|backends|jit|fx|func|library|multiprocessing|testing|amp|compiler|export|profiler)/))"
)
"""From here on, a path names public code: the diagnosis uses it to see what a thread does."""
_COMPILED: Final = re.compile(r"torchinductor_[^/]+(?=/)")
"""Named after the user."""
_SOURCES: Final = re.compile(r"\.(?:py|pyx|pyi|c|cc|cpp|cu|cuh|h|hpp|rs|so(?:\.[\d.]+)?)$")
_ENDING: Final = re.compile(r"\.[A-Za-z0-9]{1,8}$")
_FIRST_IPV4: Final = int(ipaddress.IPv4Address("198.18.0.1"))
_FIRST_IPV6: Final = int(ipaddress.IPv6Address("2001:db8::1"))
"""Addresses that no machine has: reserved for measurements and for documents."""

_FIRST: Final = r"(?P<url>\b[a-z][a-z0-9+.-]*://[^\s'\"<>]+)|(?P<mail>[\w.+-]+@[\w-]+(?:\.[\w-]+)+)"
_LAST: Final = (
    r"(?P<path>(?<![\w/.<])(?:~[\w.-]*|\.{1,2})?/[^\s'\"<>():;,|]*[^\s'\"<>():;,.|])"
    r"|(?P<address>(?<![\w.:])(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9A-Fa-f]*:[0-9A-Fa-f:]*:[0-9A-Fa-f.]*)"
    r"(?![\w.]*\w))"
    r"|(?P<secret>(?<![\w-])(?=[\w+=-]*\d)(?=[\w+=-]*[A-Za-z])[\w+=-]{24,})"
)
_QUOTED: Final = re.compile(r"(?<!\w)([bBrRfFuU]{0,2})('[^'\n]*'|\"[^\"\n]*\")")
"""Quoted texts, but not from one apostrophe to the next."""
_LITERAL: Final = re.compile(r"('[^'\n]*(?:'|$)|\"[^\"\n]*(?:\"|$))")
_COMMENT: Final = re.compile(r"\s*#.*")
_RANGES: Final = r"\[[\d,-]+\]"


class Pseudonyms:
    """Assigns pseudonyms, and remembers them."""

    def __init__(self) -> None:
        self._given: dict[str, dict[str, str]] = {}
        self._words: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None

    def name(self, kind: str, name: str) -> str:
        """`kind-3` for the third name of a kind; meaningless names stay."""
        if name in _OWN:
            return name
        given = self._given.setdefault(kind, {})
        return given.setdefault(name, f"{kind}-{len(given) + 1}")

    def hosts(self, names: Iterable[str]) -> None:
        """Assigns names to all hosts first, to keep their order."""
        named = {name for name in names if name not in _OWN and not _is_address(name)}
        ordered = sorted(named, key=_by_number)
        hosts = self._given.setdefault("host", {})
        width = len(str(len(ordered)))
        for number, name in enumerate(ordered, 1):
            hosts[name] = hosts[name.partition(".")[0]] = f"host-{number:0{width}}"
            self.note(name, hosts[name])
            self.note(name.partition(".")[0], hosts[name])
            stem = re.match(r"(.*?\D)\d+(\D*)$", name)
            if stem:  # several of them, folded
                self._words[f"{re.escape(stem[1])}{_RANGES}{re.escape(stem[2])}"] = "hosts"
        self._pattern = None

    def note(self, name: str, pseudonym: str) -> None:
        """From now on, `pseudonym` replaces a name wherever it is a whole word in a text."""
        if len(name) > 1 and name != pseudonym and name not in _COMMON:
            self._words[re.escape(name)] = pseudonym
            self._pattern = None

    def machine(self, name: str) -> str:
        """A host's name or address; loopback stays."""
        try:
            found = ipaddress.ip_address(name.partition("%")[0])
        except ValueError:
            return self.name("host", name)
        if found.is_loopback or found.is_unspecified:
            return name
        given = self._given.setdefault(f"IPv{found.version}", {})
        first = _FIRST_IPV4 if found.version == 4 else _FIRST_IPV6
        made = type(found)(first + len(given))
        return given.setdefault(str(found), str(made))

    def endpoint(self, text: str) -> str:
        """An address or host, with or without a port; the port stays."""
        bracketed = re.fullmatch(r"\[(.*)\](:\d+)?", text)
        if bracketed:
            return f"[{self.machine(bracketed[1])}]{bracketed[2] or ''}"
        name, colon, port = text.rpartition(":")
        if colon and ":" not in name:
            return f"{self.machine(name)}:{port}"
        return self.machine(text)

    def path(self, path: str) -> str:
        """A path without its folders; keeps public code, system files and names of sources.

        Also keeps what is not a path, such as `pipe:[7]` or `<frozen runpy>`.
        """
        if "/" not in path or path.startswith("<"):
            return path
        if path.startswith("/"):
            return self._absolute(path)
        return self._absolute(f"/{path}").removeprefix("/")

    def _absolute(self, path: str) -> str:
        if path in self._given.get("dir", {}):
            return self.folder(path)
        path = _COMPILED.sub("torchinductor_user", path)
        if path.startswith(_SHARED_MEMORY):
            return _SHARED_MEMORY + self._last(path.removeprefix(_SHARED_MEMORY), path)
        if _SYSTEM.match(path):
            return path
        code = _CODE.search(path)
        if code:
            folder, tail = path[: code.start()], path[code.start() :]
            public = folder.endswith("/lib") and tail.startswith("/python3")
            return f"{self.folder(folder)}{'/lib' if public else ''}{tail}"
        folder, _, last = path.rpartition("/")
        return f"{self.folder(folder)}/{self._last(last, path)}"

    def folder(self, path: str) -> str:
        """`/dir-3`; "" for the root."""
        return f"/{self.name('dir', path)}" if path.strip("/") else ""

    def _last(self, name: str, path: str) -> str:
        if not name or _SOURCES.search(name):
            return name
        ending = _ENDING.search(name)
        return self.name("file", path) + (ending[0] if ending else "")

    def text(self, text: str) -> str:
        """A sentence; replaces known names, addresses, paths, and what looks like a secret."""
        if len(text) > MAX_TEXT:
            text = f"{text[:MAX_TEXT]}…"
        if self._pattern is None:
            ordered = "|".join(sorted(self._words, key=len, reverse=True)) or r"(?!)"
            known = rf"(?P<known>(?<![\w/-])(?:{ordered})(?![\w/-]))"
            self._pattern = re.compile(f"{_FIRST}|{known}|{_LAST}")
        return self._pattern.sub(self._found, text)

    def message(self, text: str) -> str:
        """The text of an error, also without what it quotes."""
        return self.text(_QUOTED.sub(r"\1'…'", text))

    def source(self, line: str) -> str:
        """A line of a program without its strings and comment."""
        return self.text(_COMMENT.sub("", _LITERAL.sub("'…'", line)))

    def _found(self, found: re.Match[str]) -> str:
        text, kind = found[0], found.lastgroup
        if kind == "known":
            return self._words.get(re.escape(text), "hosts")
        if kind == "path":
            return self.path(text)
        if kind == "address":
            return self._address(text)
        assert kind is not None
        return self.name(kind, text)

    def _address(self, text: str) -> str:
        try:
            ipaddress.ip_address(text)
        except ValueError:  # a time, a version, a name of C++
            return text
        return self.machine(text)


def _is_address(name: str) -> bool:
    """Whether it is an IP address, or anything with a port."""
    return ":" in name or re.fullmatch(r"[\d.]+", name) is not None


def _by_number(name: str) -> tuple[tuple[str, int], ...]:
    parts = re.findall(r"(\D*)(\d*)", name)
    return tuple((text, int(digits or 0)) for text, digits in parts)
