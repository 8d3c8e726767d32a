"""Lines as each torch writes them, with invented numbers; each era is one form of the messages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

ALL_GATHER: Final = "_ALLGATHER_BASE"


@dataclass(frozen=True)
class Op:
    """An op as the watchdog writes it. `group`: name and description; `wait_ms`: its timeout."""

    number: int = 21937
    op: str = ALL_GATHER
    numel: tuple[int, int] = (1024, 4096)
    group: tuple[str, str] = ("0", "default_pg")
    wait_ms: int = 600_000


@dataclass(frozen=True)
class Era:
    """How one torch writes. `status` and `signal` have what it puts around the counters."""

    torch: str
    dated: bool = True
    named: bool = True  # `[rankN]:` before the lines
    prefix: str = "[PG ID {id} PG GUID {guid}({description}) Rank {rank}]"
    numbers: bool = True
    sizes: bool = True
    status: str = (
        "  failure detected by watchdog at work sequence id: {at} PG status: last enqueued work:"
        " {enqueued}, last completed work: {completed}"
    )
    signal: str = (
        " Received a dump signal due to a collective timeout from {by} and we will try our best"
        " to dump the debug info. Last enqueued NCCL work: {enqueued}, last completed NCCL work:"
        " {completed}.This is most likely caused by incorrect usages of collectives"
    )

    def _front(self, rank: int, line: int, time: str) -> str:
        who = f"[rank{rank}]:" if self.named else ""
        when = f"E1129 {time}.123456789" if self.dated else "E"
        return f"{who}[{when} ProcessGroupNCCL.cpp:{line}] "

    def _group(self, rank: int, group: tuple[str, str], inside: int | None) -> str:
        if not self.prefix:
            return f"[Rank {rank}]"
        within = rank if inside is None else inside
        said = self.prefix.format(id=rank + 7, guid=group[0], description=group[1], rank=within)
        return said.replace(" ()", "").replace("()", "")

    def _work(self, op: Op) -> str:
        fields = f"SeqNum={op.number}, " if self.numbers else ""
        fields += f"OpType={op.op}, "
        if self.sizes:
            fields += f"NumelIn={op.numel[0]}, NumelOut={op.numel[1]}, "
        return f"WorkNCCL({fields}Timeout(ms)={op.wait_ms})"

    def caught(self, within: int, op: Op) -> str:
        """The text of the exception."""
        return (
            f"[Rank {within}] Watchdog caught collective operation timeout: {self._work(op)}"
            f" ran for {op.wait_ms + 12} milliseconds before timing out."
        )

    def timeout(
        self, rank: int, op: Op = Op(), *, inside: int | None = None, time: str = "10:11:12"
    ) -> str:
        """A watchdog's line; `inside` is the rank within the group."""
        within = rank if inside is None else inside
        return self._front(rank, 632, time) + self.caught(within, op)

    def blocked(self, rank: int, op: Op = Op()) -> str:
        """What a rank writes after a timeout with TORCH_NCCL_BLOCKING_WAIT."""
        said = f"[Rank {rank}] Work {self._work(op)} timed out in blocking wait."
        return self._front(rank, 756, "10:11:12") + said

    def raised_async(self, rank: int, op: Op, why: str) -> str:
        """What torch 2.5 and later write of an error that NCCL has of an op."""
        said = f"[Rank {rank}] Collective {self._work(op)} raised the following async exception: "
        return self._front(rank, 552, "10:11:12") + said + why

    def terminated(
        self,
        rank: int,
        why: Op | str,
        group: tuple[str, str] = Op().group,
        inside: int | None = None,
    ) -> str:
        """The watchdog's last line: it has the group and the op, or an error of CUDA or NCCL."""
        return self._front(rank, 1595, "10:11:13") + self._ended(rank, why, group, inside)

    def thrown(
        self,
        rank: int,
        why: Op | str,
        group: tuple[str, str] = Op().group,
        inside: int | None = None,
    ) -> str:
        """The same as C++ writes it for an exception that nobody caught: without the rank."""
        return f"  what():  {self._ended(rank, why, group, inside)}"

    def _ended(self, rank: int, why: Op | str, group: tuple[str, str], inside: int | None) -> str:
        if isinstance(why, Op):
            group, why = why.group, self.caught(rank if inside is None else inside, why)
        thread = "Process group" if self.prefix else "NCCL"
        within = self._group(rank, group, inside)
        return f"{within} {thread} watchdog thread terminated with exception: {why}"

    def counters(
        self,
        rank: int,
        op: Op = Op(),
        *,
        enqueued: int | None = None,
        inside: int | None = None,
        time: str = "10:11:12",
    ) -> str:
        """The line after it, which names the group and how far the rank is; "" if there is none."""
        if not self.status:
            return ""
        last = op.number if enqueued is None else enqueued
        said = self.status.format(at=op.number, enqueued=last, completed=op.number - 1)
        return self._front(rank, 2268, time) + self._group(rank, op.group, inside) + said

    def gave_up(
        self, rank: int, op: Op = Op(), *, inside: int | None = None, enqueued: int | None = None
    ) -> list[str]:
        """Everything that a rank writes whose op did not finish."""
        lines = [
            self.timeout(rank, op, inside=inside),
            self.counters(rank, op, inside=inside, enqueued=enqueued),
            f"{self._front(rank, 684, '10:11:12')}[Rank {rank}] Some NCCL operations have failed.",
        ]
        return [line for line in lines if line]

    def was_asked(
        self,
        rank: int,
        enqueued: int,
        completed: int,
        group: tuple[str, str] = Op().group,
        *,
        by: str = " rank 2",
    ) -> list[str]:
        """What a rank writes that is asked for a dump because another, or it itself, gave up."""
        if not self.signal:
            return []
        said = self.signal.format(enqueued=enqueued, completed=completed, by=by)
        return [self._front(rank, 1682, "10:11:13") + self._group(rank, group, None) + said]


_OLD_STATUS: Final = (
    "Timeout at NCCL work: {at}, last enqueued NCCL work: {enqueued},"
    " last completed NCCL work: {completed}."
)
_LAST: Final = " Last enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}."
TORCH_2_0: Final = Era(
    "2.0", dated=False, named=False, prefix="", sizes=False, status="", signal=""
)
TORCH_1_12: Final = replace(TORCH_2_0, torch="1.12", numbers=False)
TORCH_2_2: Final = Era("2.2", dated=False, named=False, prefix="", status="", signal="")
TORCH_2_2_NAMED: Final = replace(TORCH_2_2, named=True)
"""As soon as the process has a rank."""
TORCH_2_3: Final = Era(
    "2.3",
    dated=False,
    prefix="[PG {guid} Rank {rank}]",
    status=f" {_OLD_STATUS}",
    signal=" Received a global timeout from another rank and will start to dump the debug info."
    + _LAST,
)
TORCH_2_4: Final = Era(
    "2.4",
    prefix="[PG {guid} ({description}) Rank {rank}]",
    status=" Exception (either an error or timeout) detected by watchdog at work: {at},"
    " last enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}.",
    signal=" Received a global dump signal from rank 0, and will start to dump the debug info."
    + _LAST,
)
TORCH_2_5: Final = Era("2.5", status=TORCH_2_4.status)
TORCH_2_7: Final = Era("2.7")
TORCH_2_14: Final = Era(
    "2.14",
    status="  failure detected by watchdog at work sequence id: {at} PG status: last enqueued"
    " work: {enqueued}, last started work: -1, last completed work: {completed}",
)
NAMED_GROUPS: Final = (TORCH_2_3, TORCH_2_4, TORCH_2_5, TORCH_2_7, TORCH_2_14)
"""Those in which numbers can be compared between ranks."""
ERAS: Final = (TORCH_2_0, TORCH_2_2, *NAMED_GROUPS)


def after(prefix: str, lines: Iterable[str]) -> list[str]:
    """Lines as a launcher writes them, with something before each."""
    return [prefix + line for line in lines]


def joined(*parts: Iterable[str]) -> str:
    """All lines, one after the other."""
    return "".join(f"{line}\n" for part in parts for line in part)


def interleaved(*parts: list[str]) -> str:
    """The first line of each, then the second ones."""
    longest = max(map(len, parts))
    return joined(*([part[at] for part in parts if at < len(part)] for at in range(longest)))


def one_late(era: Era, late: int = 1, world: int = 4) -> list[list[str]]:
    """By rank: all but one gave up in an all-gather, into which that one did not come."""
    return [
        era.was_asked(late, 21936, 21936) if rank == late else era.gave_up(rank)
        for rank in range(world)
    ]


def raised(
    rank: int, text: str, file: str = "/home/me/train.py", *, hooked: bool = True
) -> list[str]:
    """A traceback, as torch's hook writes it."""
    lines = ["Traceback (most recent call last):", f'  File "{file}", line 12, in <module>',
             "    step()", f'  File "{file}", line 7, in step', "    ^^^^^^", text]  # fmt: skip
    return [f"[rank{rank}]: {line}" if hooked else line for line in lines]


def table(*rows: tuple[int, int, str], host: str = "node07", local: int = 8) -> list[str]:
    """torchrun's table: rank, exit code and time; the first row is its root cause."""
    lines = ["=" * 60, "train.py FAILED", "-" * 60, "Failures:"]
    for number, (rank, code, time) in reversed([*enumerate(rows)]):
        if not number:
            lines += ["-" * 60, "Root Cause (first observed failure):"]
        lines += [
            f"[{number}]:",
            f"  time      : 2026-11-29_{time}",
            f"  host      : {host}",
            f"  rank      : {rank} (local_rank: {rank % local})",
            f"  exitcode  : {code} (pid: {4200 + rank})",
            "  error_file: <N/A>",
            "  traceback : To enable traceback see: https://pytorch.org/docs",
        ]
    return [*lines, "=" * 60]


def fingerprint(number: int, op: str, shape: str = "8", dtype: str = "Float") -> str:
    """A call as torch's `ProcessGroupWrapper` writes it."""
    return (
        f"CollectiveFingerPrint(SequenceNumber={number}, OpType={op}, TensorShape=[{shape}],"
        f" TensorDtypes={dtype}, TensorDeviceTypes=TensorOptions(dtype=float (default),"
        " device=cuda, layout=Strided (default), requires_grad=false (default)))"
    )


def disagreed(
    rank: int,
    mine: str,
    other: int,
    theirs: str,
    said: int | None = None,
    *,
    hooked: bool = True,
) -> list[str]:
    """The exception of a `ProcessGroupWrapper`; `said` is the rank within the group."""
    within = rank if said is None else said
    return raised(
        rank,
        f"RuntimeError: Detected mismatch between collectives on ranks. Rank {within} is running"
        f" collective: {mine}, but Rank {other} is running collective: {theirs}."
        "Collectives differ in the following aspects: ",
        hooked=hooked,
    )
