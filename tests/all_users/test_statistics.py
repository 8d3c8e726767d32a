"""Statistics through root's agent: of the processes of several users, as one answer."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from frtop_probe import wire
from frtop_probe.all_users.requests import RankRequests
from frtop_probe.all_users.subscription import joint_key

LINES = (wire.Site("/srv/a.py", 1, "a"), wire.Site("/srv/b.py", 2, "b"))


class Process:
    """One user's process, which answers with what it was given."""

    def __init__(self, number: int, answer: wire.Response | None) -> None:
        self.number = number
        self.user = f"user{number}"
        self.problem = ""
        self.asked: list[wire.Request] = []
        self._answer = answer

    async def ask(self, _asker: object, request: wire.Request) -> wire.Response | None:
        self.asked.append(request)
        return self._answer


def told(key: int, *sites: wire.Site) -> wire.StatisticsResponse:
    calls = (wire.CallStatistics("all_reduce", 1, len(sites)), wire.CallStatistics("barrier", 1))
    issuer = wire.Issuer("forward", sites[0].function if sites else "")
    modules = (wire.ModuleStatistics(1, "all_reduce"),)
    return wire.StatisticsResponse(
        9, "node0", 5, 7, (wire.RankStatistics(key, 5, calls, modules=modules),), sites, 40,
        (issuer,),
    )  # fmt: skip


def ask(*processes: Process) -> wire.Response:
    requests = RankRequests("node0", cast("Any", None), dict, "list")
    granted = [(None, one, [joint_key(one.number, 3)]) for one in processes]
    wanted = wire.StatisticsRequest(4, tuple(key for _, _, keys in granted for key in keys), 5)
    return asyncio.run(requests._statistics(wanted, cast("Any", granted)))


def test_ranks_of_several_users_keep_their_lines() -> None:
    first, second = Process(1, told(3, LINES[0])), Process(2, told(3, LINES[1]))
    found = ask(first, second)
    assert isinstance(found, wire.StatisticsResponse)
    assert (found.id, found.host, found.until_ns, found.cpu_ns) == (4, "node0", 7, 80)
    assert [one.key for one in found.ranks] == [joint_key(1, 3), joint_key(2, 3)]
    assert found.sites == LINES
    assert [issuer.path for issuer in found.issuers] == [line.function for line in LINES]
    assert [[row.issuer for row in one.modules] for one in found.ranks] == [[1], [2]]
    assert [[call.site for call in one.calls] for one in found.ranks] == [[1, 0], [2, 0]]
    assert [cast("wire.StatisticsRequest", one.asked[0]).keys for one in (first, second)] == [
        (3,), (3,)]  # fmt: skip


def test_one_that_does_not_answer_is_left_out_or_named() -> None:
    found = ask(Process(1, None), Process(2, told(3, LINES[0])))
    assert isinstance(found, wire.StatisticsResponse)
    assert [one.key for one in found.ranks] == [joint_key(2, 3)]
    alone = ask(Process(1, None))
    assert isinstance(alone, wire.Error)
    assert "user1" in alone.text
