"""Settings of torch and NCCL that keep ops on devices from being seen: which, and what to set.

The one place of these words: `frtop doctor`, the coverage of a job and the details of a rank take
them from here. Pure. Sources: torch's ProcessGroupNCCL.hpp and FlightRecorder.hpp, 2.8 to 2.15,
NCCL's documentation of its variables. Nothing of it was tried on a GPU yet (docs/nccl.md).
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
"""All variables that decide here."""
_STATES_LOST: Final = "whether an op of NCCL runs on its device, or is over, is not known"
_DUMPS_LOST: Final = "nothing is dumped when an op of NCCL times out"
_NO: Final = ("0", "n", "no", "f", "false")
YES: Final = ("1", "y", "yes", "t", "true")
_LONGEST: Final = 20
OFF_REASON: Final = "recorder off"
OWN_REASONS: Final = {
    "p2p": "sends and receives share its numbers",
    "not handed over": "its backend notes nothing that it hands over",
    "unreadable": "its status cannot be read",
    "rocm": "on ROCm the question for its status may hang, so nobody asks",
    "nccl variant": "of this variant of NCCL the question for its status may hang, so nobody asks",
}
"""Why a recorder does not follow a group (`recorder.device_front`), in words."""
_IN_MANY_JOBS: Final = "p2p"


@dataclass(frozen=True, slots=True)
class DeviceSetting:
    """One setting that hides something.

    Attributes:
        code: one stable word or two.
        why: the setting, as a sentence's beginning.
        lost: what is not seen.
        variable, value: what shows it the next time; "" if no variable does.
        blinds: no op on a device is followed. Otherwise only something beside that is lost.
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
    """Whether one of the names of backends (`nccl`, `cpu:gloo,cuda:nccl`) has NCCL in it."""
    return any("nccl" in name.lower() for name in backends)


def settings_in_the_way(
    backends: Iterable[str],
    settings: Mapping[str, str],
    torch: str = "",
    *,
    records: bool | None = None,
    reasons: Mapping[str, str] | None = None,
) -> tuple[DeviceSetting, ...]:
    """The settings that hide what ops of NCCL do, the worst first; () without NCCL.

    Args:
        backends: of the job's groups, or those that it may have.
        settings: variables of the rank's environment.
        torch: its version, "" if unknown: then nothing follows from what is not set.
        records: whether the Flight Recorder was seen to record; None if nobody looked.
        reasons: why the rank's recorder does not follow groups, with the names of those.
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
            why = f"{_shown(settings, name)}: no watchdog runs, which dumps and counts ops as over"
            yield DeviceSetting(
                "blocking wait", why, _STATES_LOST, name, "0", blinds=True, dumps=True
            )


def _reasons(reasons: Mapping[str, str], *, explained: bool) -> Iterable[DeviceSetting]:
    """What the recorder says itself; `explained` by a setting is all but messages."""
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
            why = f"{_shown(settings, name)}: an error or timeout of NCCL ends no rank"
            lost = "when the job would end by itself is not known"
            yield DeviceSetting("no error handling", why, lost, name, "3")


def _timing(settings: Mapping[str, str], torch: str) -> Iterable[DeviceSetting]:
    named = [name for name in TIMING if name in settings]
    if any(settings[name].lower() in YES for name in named) or not (torch or named):
        return
    set_to = _shown(settings, named[0]) if named else f"{TIMING[0]} is not set"
    why = f"{set_to} (torch warns that it can make its watchdog hang)"
    yield DeviceSetting(
        "no timing", why, "when an op of NCCL began on its device is in no dump", TIMING[0], "1"
    )


def _shown(settings: Mapping[str, str], name: str) -> str:
    return f"{name}={settings[name][:_LONGEST]}"
