"""Settings of torch and NCCL that keep ops on devices from being seen: which, and what to set.

All texts about them are here: `frtop doctor`, the coverage of a job and the details of a rank take
them from this module. It is pure. Its sources are torch's ProcessGroupNCCL.hpp and
FlightRecorder.hpp, 2.8 to 2.15, and NCCL's documentation of its variables. None of this has been
tried on a GPU yet (docs/nccl.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from frtop_probe.unprepared.flight_settings import (
    DEFAULT_SIZE,
    OFF,
    SIZE_NAMES,
    flight_ring_size,
    size_names,
)

DUMP: Final = "TORCH_NCCL_DUMP_ON_TIMEOUT"
MONITOR: Final = "TORCH_NCCL_ENABLE_MONITORING"
TIMING: Final = ("TORCH_NCCL_ENABLE_TIMING", "NCCL_ENABLE_TIMING")
BLOCKING: Final = ("TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT")
ERRORS: Final = ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING")
READ: Final = (*SIZE_NAMES, DUMP, MONITOR, *TIMING, *BLOCKING, *ERRORS)
"""All variables that matter here."""
_STATES_LOST: Final = "it is not known whether an NCCL op runs on its device, or is over"
_DUMPS_LOST: Final = "nothing is dumped when an NCCL op times out"
_NO: Final = ("0", "n", "no", "f", "false")
YES: Final = ("1", "y", "yes", "t", "true")
_LONGEST: Final = 20
OFF_REASON: Final = "recorder off"
OWN_REASONS: Final = {
    "p2p": "sends and receives share its numbers",
    "not handed over": "its backend does not record what it hands over",
    "unreadable": "its status cannot be read",
    "rocm": "on ROCm, asking for its status may hang, so nobody asks",
    "nccl variant": "asking this variant of NCCL for its status may hang, so nobody asks",
}
"""Why a recorder does not follow a group (`recorder.device_front`), in words."""
_IN_MANY_JOBS: Final = "p2p"


@dataclass(frozen=True, slots=True)
class DeviceSetting:
    """One setting that hides something.

    Attributes:
        code: one or two stable words.
        why: the setting, as the beginning of a sentence.
        lost: what is not seen.
        variable, value: what to set to see it the next time; "" if no variable helps.
        blinds: no op on a device is followed. Otherwise only other facts are lost.
        dumps: it keeps dumps at timeouts from being written.
    """

    code: str
    why: str
    lost: str
    variable: str = ""
    value: str = ""
    blinds: bool = False
    dumps: bool = False

    @property
    def sentence(self) -> str:
        """What is lost, why, and what to set."""
        step = f"; next time set {self.variable}={self.value}" if self.variable else ""
        return f"{self.lost}: {self.why}{step}"


def uses_nccl(backends: Iterable[str]) -> bool:
    """Whether one of these names of backends (`nccl`, `cpu:gloo,cuda:nccl`) includes NCCL."""
    return any("nccl" in name.lower() for name in backends)


def settings_in_the_way(
    backends: Iterable[str],
    settings: Mapping[str, str],
    torch: str = "",
    *,
    records: bool | None = None,
    reasons: Mapping[str, str] | None = None,
) -> tuple[DeviceSetting, ...]:
    """The settings that hide what NCCL ops do, the worst first; () without NCCL.

    Args:
        backends: those of the job's groups, or those that it may have.
        settings: variables of the rank's environment.
        torch: its version. If it is unknown (""), nothing follows from what is not set.
        records: whether the Flight Recorder was seen to record; None if nobody looked.
        reasons: why the rank's recorder does not follow some groups, and their names.
    """
    if not uses_nccl(backends):
        return ()
    if records is None and OFF_REASON in (reasons or {}):
        records = False
    blinding = [*_recorder_off(settings, torch, records=records), *_blocking(settings)]
    return (
        *blinding,
        *_reasons(reasons or {}, explained=bool(blinding)),
        *_dumps(settings),
        *_errors(settings),
        *_timing(settings, torch),
    )


def _recorder_off(
    settings: Mapping[str, str], torch: str, *, records: bool | None
) -> Iterable[DeviceSetting]:
    size, name = flight_ring_size(torch, settings)
    if records or (records is None and size != 0):
        return
    why = OFF
    if name:
        why += f": {_shown(settings, name)}"
    elif size == 0:
        why += f": torch {torch} has it off by default"
    yield DeviceSetting(
        "recorder off", why, _STATES_LOST, size_names(torch)[0], str(DEFAULT_SIZE),
        blinds=True, dumps=True,
    )  # fmt: skip


def _blocking(settings: Mapping[str, str]) -> Iterable[DeviceSetting]:
    for name in BLOCKING:
        if settings.get(name, "").lower() in YES:
            why = f"{_shown(settings, name)}: no watchdog runs to write dumps and notice ends"
            yield DeviceSetting(
                "blocking wait", why, _STATES_LOST, name, "0", blinds=True, dumps=True
            )


def _reasons(reasons: Mapping[str, str], *, explained: bool) -> Iterable[DeviceSetting]:
    """What the recorder itself reports; if a setting has `explained` it, messages only."""
    for reason, groups in reasons.items():
        word, _, more = reason.partition(":")
        if word in OWN_REASONS and (word == _IN_MANY_JOBS or not explained):
            detail = f" ({more.strip()})" if more.strip() else ""
            why = f"{OWN_REASONS[word]}{detail}"
            lost = f"in {groups}, {_STATES_LOST}"
            yield DeviceSetting(word, why, lost, blinds=word != _IN_MANY_JOBS)


def _dumps(settings: Mapping[str, str]) -> Iterable[DeviceSetting]:
    if settings.get(DUMP, "").lower() in _NO:
        why = f"{_shown(settings, DUMP)}: NCCL's watchdog dumps nothing"
        yield DeviceSetting("no dumps", why, _DUMPS_LOST, DUMP, "1", dumps=True)
    if settings.get(MONITOR, "").lower() in _NO:
        why = f"{_shown(settings, MONITOR)}: no thread watches the watchdog, or writes its dumps"
        yield DeviceSetting("no monitor", why, _DUMPS_LOST, MONITOR, "1", dumps=True)


def _errors(settings: Mapping[str, str]) -> Iterable[DeviceSetting]:
    for name in ERRORS:
        if settings.get(name, "").strip() == "0":
            why = f"{_shown(settings, name)}: an NCCL error or timeout ends no rank"
            lost = "it is not known when the job would end by itself"
            yield DeviceSetting("no error handling", why, lost, name, "3")


def _timing(settings: Mapping[str, str], torch: str) -> Iterable[DeviceSetting]:
    named = [name for name in TIMING if name in settings]
    if any(settings[name].lower() in YES for name in named) or not (torch or named):
        return
    set_to = _shown(settings, named[0]) if named else f"{TIMING[0]} is not set"
    why = f"{set_to} (torch warns that it can make its watchdog hang)"
    yield DeviceSetting(
        "no timing", why, "no dump shows when an NCCL op began on its device", TIMING[0], "1"
    )


def _shown(settings: Mapping[str, str], name: str) -> str:
    return f"{name}={settings[name][:_LONGEST]}"
