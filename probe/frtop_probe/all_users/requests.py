"""From an operator's request to the processes that answer it, within what the key may do.

A rank of a user whom the key may not see does not exist for it: the answer is the same as for a
rank that has ended. The audit has a line all the same, and has it before anything is done.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from frtop_probe import keys, wire
from frtop_probe.agent.interfaces import Operator
from frtop_probe.agent.request_handler import ActRequest, ManyRanksRequest
from frtop_probe.all_users.admitted import AdmittedKey
from frtop_probe.all_users.audit import AuditLog, AuditProblem, line_of
from frtop_probe.all_users.subscription import joint_key, split_key
from frtop_probe.all_users.user_process import Asker, UserProcess

NAMES: Final[dict[type, str]] = {
    wire.SnapshotRequest: "look",
    wire.HistoryRequest: "history",
    wire.TensorsRequest: "tensors",
    wire.DataRequest: "data",
    wire.RasRequest: "ras",
    wire.NativeStacksRequest: "native",
    wire.StatisticsRequest: "statistics",
    wire.ProfileRequest: "profile",
    wire.ProfileDataRequest: "profile_data",
    wire.SampleRequest: "sample",
    wire.ControlRequest: "control",
    wire.NumbersRequest: "numbers",
}
"""What the audit calls them. A look with stacks is called "stacks"."""
OneRankRequest = (
    wire.HistoryRequest
    | wire.TensorsRequest
    | wire.DataRequest
    | wire.RasRequest
    | wire.NativeStacksRequest
    | wire.ProfileRequest
    | wire.ProfileDataRequest
    | wire.SampleRequest
    | wire.ControlRequest
    | wire.NumbersRequest
)
RankRequest = ManyRanksRequest | OneRankRequest
Touched = tuple[str, int, int]
"""User, pid and global rank."""


class RankRequests:
    """Answers requests that touch ranks.

    Args of the constructor:
        host: name of this host.
        audit: where each of them is written down.
        processes: those that run, by number.
        file: the list, for people.
    """

    def __init__(
        self,
        host: str,
        audit: AuditLog,
        processes: Callable[[], Mapping[int, UserProcess]],
        file: str,
    ) -> None:
        self._host = host
        self._audit = audit
        self._processes = processes
        self._file = file

    async def respond(
        self, operator: Operator, admitted: AdmittedKey, request: RankRequest, not_act: str
    ) -> wire.Response:
        """The response; an error where the key may not do it, or the audit cannot be written.

        Args:
            operator: who asks.
            admitted: what the key may do.
            request: for one or more ranks, by joint keys.
            not_act: why this connection may not act on any rank, "" if that is up to the key.
        """
        by_process, hidden = self._resolve(admitted, request)
        if hidden:
            refusal = "the key may not see this user's ranks"
            with suppress(AuditProblem):  # nothing is given
                await self._write(operator, admitted, request, hidden, right="", refused=refusal)
        if not by_process:
            text = f"{self._host} no longer has this rank: ask for the state again"
            return wire.Error(request.id, text, "gone")
        refused: wire.Error | None = None
        granted: list[tuple[Asker, UserProcess, list[int]]] = []
        for process, ranks in by_process.items():
            may_act = admitted.right(process.uid) == "act" and not not_act
            refused = await self._refusal(operator, admitted, request, process, ranks, not_act)
            if refused is None:
                granted.append((Asker(operator, may_act, admitted.is_owner), process, ranks))
        if refused is not None and not granted:
            return refused
        if isinstance(request, wire.SnapshotRequest):
            return await self._snapshots(request, granted)
        if isinstance(request, wire.StatisticsRequest):
            return await self._statistics(request, granted)
        asker, process, _ = granted[0]
        found = await process.ask(asker, replace(request, key=split_key(request.key)[1]))
        return self._returned(request.id, process, found)

    def _resolve(
        self, admitted: AdmittedKey, request: RankRequest
    ) -> tuple[dict[UserProcess, list[int]], list[Touched]]:
        """The ranks that a request names, by process; and those that the key may not see."""
        named = request.keys if isinstance(request, ManyRanksRequest) else (request.key,)
        by_process: dict[UserProcess, list[int]] = defaultdict(list)
        hidden: list[Touched] = []
        for key in dict.fromkeys(named):
            process = self._processes().get(split_key(key)[0])
            if process is None or not process.runs or key not in process.ranks:
                continue
            if admitted.right(process.uid) is None:
                hidden.append((process.user, *process.ranks[key]))
            else:
                by_process[process].append(key)
        return by_process, hidden

    async def _refusal(  # noqa: PLR0917 - all of it is in the line
        self,
        operator: Operator,
        admitted: AdmittedKey,
        request: RankRequest,
        process: UserProcess,
        ranks: list[int],
        not_act: str,
    ) -> wire.Error | None:
        """Writes the line for ranks of one user; returns why nothing is done, None if it is."""
        right = admitted.right(process.uid)
        why = ""
        if isinstance(request, ActRequest) and (not_act or right != "act"):
            why = not_act or (
                f"your key may only read the ranks of user {process.user}, not ask them for"
                f" anything; root can allow more: `act` in {self._file}"
            )
        touched = [(process.user, *process.ranks[key]) for key in ranks]
        try:
            await self._write(operator, admitted, request, touched, right=right or "", refused=why)
        except AuditProblem as problem:
            text = f"refused, as the audit cannot be written: {problem}; root can repair that"
            return wire.Error(request.id, text, "failed")
        return wire.Error(request.id, why, "permission") if why else None

    async def _snapshots(
        self, request: wire.SnapshotRequest, granted: list[tuple[Asker, UserProcess, list[int]]]
    ) -> wire.Response:
        answers = await asyncio.gather(
            *(
                process.ask(asker, replace(request, keys=tuple(split_key(key)[1] for key in ranks)))
                for asker, process, ranks in granted
            )
        )
        snapshots: list[wire.Snapshot] = []
        for (_, process, _), answer in zip(granted, answers, strict=True):
            if isinstance(answer, wire.SnapshotResponse):
                snapshots += (
                    replace(one, key=joint_key(process.number, one.key)) for one in answer.snapshots
                )
            elif len(granted) == 1:
                return self._returned(request.id, process, answer)
        return wire.SnapshotResponse(request.id, self._host, tuple(snapshots), time.monotonic_ns())

    async def _statistics(
        self, request: wire.StatisticsRequest, granted: list[tuple[Asker, UserProcess, list[int]]]
    ) -> wire.Response:
        """The ranks of all processes that answer; each has a table of lines of its own."""
        answers = await asyncio.gather(
            *(
                process.ask(asker, replace(request, keys=tuple(split_key(key)[1] for key in ranks)))
                for asker, process, ranks in granted
            )
        )
        found: list[tuple[int, wire.StatisticsResponse]] = []
        for (_, process, _), answer in zip(granted, answers, strict=True):
            if isinstance(answer, wire.StatisticsResponse):
                found.append((process.number, answer))
            elif len(granted) == 1:
                return self._returned(request.id, process, answer)
        ranks: list[wire.RankStatistics] = []
        sites: list[wire.Site] = []
        issuers: list[wire.Issuer] = []
        for number, answer in found:
            before, known = len(sites), len(issuers)
            sites += answer.sites
            issuers += answer.issuers
            ranks += (
                replace(
                    one,
                    key=joint_key(number, one.key),
                    calls=_moved(one.calls, before),
                    modules=tuple(replace(m, issuer=m.issuer + known) for m in one.modules),
                )
                for one in answer.ranks
            )
        until = max((one.until_ns for _, one in found), default=request.until_ns)
        spent = sum(one.cpu_ns for _, one in found)
        return wire.StatisticsResponse(
            request.id, self._host, request.since_ns, until, tuple(ranks), tuple(sites), spent,
            tuple(issuers),
        )  # fmt: skip

    def _returned(
        self, number: int, process: UserProcess, found: wire.Response | None
    ) -> wire.Response:
        """A response with the operator's own id, and joint keys."""
        if found is None:
            text = process.problem or f"the process for user {process.user} does not answer"
            return wire.Error(number, f"{text}: ask again in some seconds", "failed")
        if isinstance(found, wire.RasResponse):
            pids = tuple((joint_key(process.number, key), pid) for key, pid in found.pids)
            found = replace(found, pids=pids)
        if isinstance(
            found,
            wire.HistoryResponse
            | wire.TensorsResponse
            | wire.DataResponse
            | wire.RasResponse
            | wire.NativeStacksResponse
            | wire.ProfileResponse
            | wire.ProfileDataResponse
            | wire.SampleResponse
            | wire.ControlResponse
            | wire.NumbersResponse,
        ):
            return replace(found, id=number, key=joint_key(process.number, found.key))
        return replace(found, id=number)

    async def _write(
        self,
        operator: Operator,
        admitted: AdmittedKey,
        request: RankRequest,
        ranks: list[Touched],
        *,
        right: str,
        refused: str = "",
    ) -> None:
        name = NAMES[type(request)]
        if isinstance(request, wire.SnapshotRequest) and request.stacks:
            name = "stacks"
        await self._audit.write(
            line_of(
                who=admitted.name,
                key=keys.format_public(operator.key),
                right=right,
                request=name,
                host=self._host,
                ranks=ranks,
                refused=refused,
            )
        )


def _moved(calls: tuple[wire.CallStatistics, ...], places: int) -> tuple[wire.CallStatistics, ...]:
    """The rows with their lines that many places later."""
    if not places:
        return calls
    return tuple(replace(one, site=one.site + places) if one.site else one for one in calls)
