"""How the culprit of each scripted fault looks to its agent, and where other ranks are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from frtop_probe import wire
from frtop_tui.demo.faults import SLOW

MAIN_IDENT: Final = 140_001
TRAIN: Final = "/home/ml/llama/train.py"
_PACKAGES: Final = "/opt/venv/lib/python3.12/site-packages/"
_LOADER: Final = _PACKAGES + "torch/utils/data/dataloader.py"
_C10D: Final = _PACKAGES + "torch/distributed/distributed_c10d.py"


def _at(file: str, line: int, function: str, source: str = "") -> wire.TraceFrame:
    return wire.TraceFrame(function, file, line, source=source)


_MAIN: Final = (
    _at(TRAIN, 301, "main", "train(model, loader, args)"),
    _at(TRAIN, 310, "<module>", "main()"),
)
COMPUTING: Final = (
    _at(_PACKAGES + "torch/nn/functional.py", 2051, "linear"),
    _at("/home/ml/llama/model/block.py", 64, "forward", "x = self.up(self.norm(x))"),
    _at(TRAIN, 219, "train", "loss = model(batch)"),
    *_MAIN,
)
_LOADING: Final = (
    _at("/usr/lib/python3.12/selectors.py", 415, "select"),
    _at("/usr/lib/python3.12/multiprocessing/connection.py", 947, "wait"),
    _at(_LOADER, 1275, "_try_get_data"),
    _at(_LOADER, 733, "__next__"),
    _at(TRAIN, 214, "train", "batch = next(batches)"),
    *_MAIN,
)


def in_op(kind: str, site: wire.Site) -> tuple[wire.TraceFrame, ...]:
    """The stack of a rank inside an op."""
    return (
        _at(_C10D, 3024, kind),
        _at(_PACKAGES + "torch/distributed/c10d_logger.py", 83, "wrapper"),
        _at(site.file, site.line, site.function, f"dist.{kind}(...)"),
        *_MAIN,
    )


@dataclass(frozen=True, slots=True)
class RankLook:
    """A rank's process and main thread; `fetch` and `heartbeats` come from its ring."""

    frames: tuple[wire.TraceFrame, ...] = COMPUTING
    active: bool = True
    owns_gil: bool = False
    state: str = "R"
    syscall: str = ""
    wchan: str = ""
    file: str = ""
    busy: bool = True
    heartbeats: bool = True
    loads: bool = False
    worker: tuple[str, str, str] = ("S", "futex", "")
    """State, system call and file of the DataLoader worker that it may wait for."""


WAITING: Final = RankLook(
    active=False, state="S", syscall="futex", wchan="futex_do_wait", busy=False
)
FEW_WORKERS: Final = 2

LOOKS: Final[dict[str, RankLook]] = {
    "stall": RankLook(_LOADING, active=False, state="S", syscall="poll", wchan="do_poll",
                  busy=False, loads=True, worker=("D", "read", "/data/shard-0412")),
    "sleep": RankLook((_at(TRAIN, 226, "train", "time.sleep(3600)"), *_MAIN), active=False,
                  state="S", syscall="clock_nanosleep", wchan="hrtimer_nanosleep", busy=False),
    "file": RankLook((_at(TRAIN, 190, "read_vocabulary", "file.read()"), *_MAIN), active=False,
                 state="S", syscall="read", wchan="pipe_read", file="/data/vocabulary", busy=False),
    "gil": RankLook((_at("/home/ml/llama/kernels.py", 12, "load", "_ext.load(path)"), *_MAIN),
                owns_gil=True, state="S", syscall="clock_nanosleep", busy=False, heartbeats=False),
    "stop": RankLook(COMPUTING, state="T", wchan="do_signal_stop", busy=False, heartbeats=False),
    "compute": RankLook((_at("/home/ml/llama/search.py", 44, "refine", "m = torch.tanh(m @ m)"),
                     *_MAIN)),
}  # fmt: skip
"""Faults after which the culprit lives and is in no op."""
ENDS: Final = {
    "exit": wire.ExitInfo(0, exit_code=0, clean=True),
    "exception": wire.ExitInfo(0, exit_code=1),
    "kill": wire.ExitInfo(0, signal=9),
}
"""Faults after which its process is gone."""
SUPPORTED: Final = ("none", *SLOW, "mismatch", *LOOKS, *ENDS)


def exception(at_ns: int) -> wire.UncaughtException:
    """What the culprit of `exception` raised."""
    frames = (_at(TRAIN, 222, "train", 'raise ValueError("loss is nan")'), *_MAIN)
    return wire.UncaughtException(
        "ValueError", "loss is nan at this step", "MainThread", True, at_ns, frames
    )


def waiting_in(kind: str, site: wire.Site) -> RankLook:
    return replace(WAITING, frames=in_op(kind, site))
