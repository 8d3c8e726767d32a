"""A redacted capture has no name and no data of anybody, and the same verdict."""

from __future__ import annotations

import html
import json
import re
import typing
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest
from msgspec.structs import replace

from diagnosis.scenes import Scene
from files.test_recorded_bytes import BOXES, MISMATCH, SLEEPING
from frtop_probe import archive, wire
from frtop_tui.diagnosis.engine import Engine
from frtop_tui.diagnosis.model import Frame, Verdict
from frtop_tui.errors import NotWritten
from frtop_tui.files import capture, redaction
from frtop_tui.files.formats.registry import FORMATS
from frtop_tui.files.formats.writing import encoded, write_export
from frtop_tui.files.loader import open_paths
from frtop_tui.files.pseudonyms import MAX_TEXT, Pseudonyms
from frtop_tui.files.redaction import redacted
from frtop_tui.files.redaction_rules import OF_ANY, RULES
from frtop_tui.job.model import ObservedFrame
from frtop_tui.job.statistics import CallRow, JobStatistics, SampledGroup, SampledOp
from frtop_tui.text.json_document import document
from history_rows import HistoryRow, packed
from screens.native_scenes import taken, with_native
from screens.rare_scenes import SCENES as RARE
from screens.scenes import SCENES, hung

SECRETS = ("alice", "hunter2", "acme", "moonshot", "gpu-a.example", "10.3.0.7", "fe80::7")


def facts(frame: Frame) -> dict[str, Any]:
    """What redaction leaves: health, states, who is blocked in what, verdicts without sentences."""
    report = document(frame)
    ranks = report["ranks"].values()
    verdicts = [{**verdict, "why": dict(verdict["why"])} for verdict in report["verdicts"]]
    for verdict in verdicts:
        for sentence in ("headline", "evidence", "missing", "next"):
            del verdict[sentence]
        del verdict["why"]["text"]
    return {
        "health": report["health"],
        "states": dict(Counter(rank["state"] for rank in ranks)),
        "blocked": sorted({rank["blocked_on"]["kind"] for rank in ranks if rank["blocked_on"]}),
        "verdicts": verdicts,
    }


@pytest.mark.parametrize("scene", [*SCENES.values(), *RARE.values(),
                                   lambda: with_native(taken(90_077))])  # fmt: skip
def test_ranks_states_and_verdicts_stay(scene: Callable[[], Frame]) -> None:
    frame = scene()
    found = redacted(frame)
    assert facts(found) == facts(frame)
    assert {n: (v.state, v.blocked_on is None) for n, v in found.ranks.items()} == {
        n: (v.state, v.blocked_on is None) for n, v in frame.ranks.items()
    }
    assert redacted(frame) == found


def essence(verdict: Verdict) -> tuple[object, ...]:
    return (verdict.kind, verdict.confidence, verdict.progress, verdict.culprits, verdict.victims,
            verdict.why.cause, verdict.why.layer, verdict.op, verdict.group)  # fmt: skip


def test_a_redacted_frame_is_judged_alike() -> None:
    """What the diagnosis tells by files, lines and addresses, it still tells."""
    scene = Scene(4, hosts=2)
    scene.waits([0, 1, 2, 3], "all_reduce", for_s=30)
    scene.actors[0].links = (wire.DeadConnection("10.3.0.7:4711", "10.3.0.8:29500", 96, 4),)
    frames: list[ObservedFrame] = []
    judge = scene.engine.judge
    scene.engine.judge = lambda frame: frames.append(frame) or judge(frame)  # type: ignore[method-assign,func-returns-value]
    full = scene.settle()
    assert full.verdicts
    engine, names = Engine(), redaction.Redaction(full)
    for one in frames:
        last = engine.judge(names._of(one, "text")).frame
    assert list(map(essence, last.verdicts)) == list(map(essence, full.verdicts))


def secret_frame() -> Frame:
    """Every place in which a name or data may be has one."""
    frame = hung()
    view = frame.ranks[37]
    assert view.snapshot is not None
    assert view.process is not None
    path = "/home/alice/acme/data/shard moonshot.tar"
    stack = wire.ThreadStack(1, view.identity.pid, "MainThread", False, False, (
        wire.TraceFrame("load", "/home/alice/acme/moonshot/train.py", 7, "train",
                        "open('/home/alice/x', token='hunter2')  # acme",
                        (("password", "'hunter2'"), ("src", "3"))),
    ))  # fmt: skip
    identity = replace(
        view.identity, argv=("/home/alice/acme/train.py", "--token=hunter2", "--run", "moonshot"),
        cwd="/home/alice/acme", record="/home/alice/boxes",
        job=replace(view.identity.job, run_id="moonshot-7", master_addr="gpu-a.example"),
        settings=(("NCCL_DEBUG", "INFO"), ("NCCL_SOCKET_IFNAME", "acme0"), ("WORLD_SIZE", "64")),
    )  # fmt: skip
    error = wire.UncaughtException(
        "RuntimeError", "connection reset by peer [10.3.0.7]:29500, key 'hunter2' of "
        "/home/alice/acme/x at https://acme.example/hunter2", "MainThread", True, 5,
    )  # fmt: skip
    summary = wire.TensorSummary("input", "float32", (4,), "cuda:0", 16, 4, 4, -1.5, 2.5, 0.1, 3.0,
                                 2, 1, ("hunter2",), "acme")  # fmt: skip
    snapshot = replace(
        view.snapshot, dumps=(wire.StackDump(view.identity.pid, (stack,)),),
        dead_connections=(wire.DeadConnection("10.3.0.7:4711", "[fe80::7]:29500", 96, 4),),
        addresses=("10.3.0.7", "127.0.0.1"),
    )  # fmt: skip
    secret = replace(
        view, host="gpu-a.example", identity=identity, snapshot=snapshot, exception=error,
        process=replace(view.process, file=path), notes=("alice is at 10.3.0.7",),
        tensors=wire.TensorsResponse(1, "gpu-a.example", 1, 5, (wire.OpTensors(5, (summary,)),)),
    )  # fmt: skip
    host = replace(frame.hosts[0], name="gpu-a.example", address="10.3.0.7:7677",
                   notes=("see /home/alice/acme/log",))  # fmt: skip
    verdict = replace(frame.verdicts[0], headline=f"rank 37 (gpu-a) reads '{path}'",
                      next=f"ask alice: `stat '{path}'` on gpu-a.example")  # fmt: skip
    return replace(
        frame, ranks={**frame.ranks, 37: secret}, hosts=(host, *frame.hosts[1:]),
        job=identity.job, verdicts=(verdict,),
    )  # fmt: skip


def test_no_name_and_no_data_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "author", lambda: "alice@gpu-a.example")
    site = wire.Site("/home/alice/acme/train.py", 7, "load")
    history = wire.History(
        (), (site,), packed([HistoryRow(1, 1, 1, 0, 1, 5, 5, 1)]), note="by alice"
    )
    path = tmp_path / "x.cap"
    missing = ("no tensors of rank 3: alice@acme.example said no",)
    frame = secret_frame()
    capture.write(path, frame, {37: wire.HistoryResponse(1, "gpu-a.example", 1, history)}, missing)
    full = archive.read(path, "capture").decode("utf-8", "replace")
    assert all(secret in full for secret in SECRETS)
    capture.write(path, frame, {37: wire.HistoryResponse(1, "gpu-a.example", 1, history)}, missing,
                  redact=True)  # fmt: skip
    left = archive.read(path, "capture").decode("utf-8", "replace")
    assert [secret for secret in SECRETS if secret in left] == []
    found = open_paths([path])
    assert found.recorded is not None
    assert redaction.REDACTED in found.recorded.notes
    assert found.recorded.by.startswith("user-1@host-")
    view = found.ranks[37]
    assert view.process is not None
    assert view.process.file in found.verdicts[0].headline
    assert view.identity.settings[0] == ("NCCL_DEBUG", "INFO")
    assert view.identity.settings[2] == ("WORLD_SIZE", "64")
    assert view.exception is not None
    assert view.exception.text.startswith(
        "connection reset by peer [198.18.0.1]:29500, key '…' of /"
    )
    assert view.snapshot is not None
    assert view.snapshot.addresses == ("198.18.0.1", "127.0.0.1")
    (frame_left,) = view.snapshot.dumps[0].threads[0].frames
    assert (frame_left.function, frame_left.line) == ("load", 7)
    assert frame_left.source == "open('…', token='…')"
    assert frame_left.variables == (("src", "3"),)
    assert view.tensors is not None
    (tensor,) = view.tensors.ops[0].tensors
    assert (tensor.nans, tensor.shape, tensor.minimum, tensor.first) == (2, (4,), None, ())


def with_ops_of(frame: Frame) -> Frame:
    """The same with a secret in the lines of its ops, which dumps and tables have."""
    view = frame.ranks[37]
    assert view.snapshot is not None
    site = wire.Site("/home/alice/acme/moonshot/train.py", 7, "load")
    ops = tuple(replace(op, site=site) for op in view.snapshot.ops)
    view = replace(view, snapshot=replace(view.snapshot, ops=ops))
    group = frame.groups[0].key
    statistics = JobStatistics(
        0, 1, 0, calls=(CallRow("all_reduce", (group,), site, 64, (37,)),),
        groups=(SampledGroup(group, (37,), (SampledOp(1, {37: 1}, True, site=site),)),),
        notes=("alice is at 10.3.0.7",),
    )  # fmt: skip
    return replace(frame, ranks={**frame.ranks, 37: view}, statistics=statistics)


def bytes_of(content: bytes | Mapping[str, bytes]) -> str:
    """All of an export, with what its format escapes."""
    files = {"": content} if isinstance(content, bytes) else content
    texts = [f"{name}\n{one.decode('utf-8', 'replace')}" for name, one in files.items()]
    return html.unescape("\n".join(texts)).replace("\\", "")


@pytest.mark.parametrize("form", FORMATS)
def test_no_name_is_left_in_any_format(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture, "author", lambda: "alice@gpu-a.example")
    frame = with_ops_of(secret_frame())
    assert "alice" in bytes_of(encoded(frame, form)) or form == "collapsed"  # no folders there
    found = bytes_of(encoded(frame, form, redact=True))
    assert [secret for secret in SECRETS if secret in found] == []
    path = tmp_path / f"x{FORMATS[form].suffix}"
    write_export(path, frame, form, over=False, redact=True)
    files = [path] if path.is_file() else list(path.iterdir())
    assert bytes_of({one.name: one.read_bytes() for one in files}).count("alice") == 0
    if form in ("html", "markdown", "json", "chrome"):
        assert redaction.REDACTED in found


@pytest.mark.parametrize("path", [SLEEPING, MISMATCH, BOXES[0]])
def test_no_name_of_a_real_job_is_left_in_any_format(path: Path) -> None:
    frame = open_paths([path])
    assert facts(redacted(frame)) == facts(frame)
    for form in FORMATS:
        with suppress(NotWritten):  # no stacks there
            found = bytes_of(encoded(frame, form, redact=True))
            words = (rf"(?<!\w){re.escape(one)}(?!\w)" for one in names_in(frame))
            assert [one for one in words if re.search(one, found)] == [], form


def names_in(frame: Frame) -> set[str]:
    """Hosts, folders, values of arguments and of the environment, with which it was recorded."""
    found = {view.host for view in frame.ranks.values()}
    for view in frame.ranks.values():
        who = view.identity
        found |= {who.cwd, who.record, *(str(Path(word).parent) for word in who.argv[:1])}
        found |= {word for word in who.argv[1:] if not word.startswith("-")}
        found |= {value for _, value in who.settings if not redaction._PLAIN_VALUE.fullmatch(value)}
        found |= {one.file.rpartition("/")[0] for stack in view.threads for one in stack.frames}
    if frame.recorded is not None:
        found.add(frame.recorded.by)
    public = re.compile(r"$|/?$|\.$|<|.{0,3}$|root@|torch/|localhost")
    return {one for one in found if not public.match(one)}


def structs_in(kind: Any, found: set[type]) -> set[type]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind not in found:
        found.add(kind)
        for hint in get_type_hints(kind).values():
            structs_in(hint, found)
    for one in typing.get_args(kind):
        structs_in(one, found)
    return found


def test_each_field_with_a_text_has_a_rule() -> None:
    """Else a new field would be treated as a sentence without anybody having thought of it."""
    unruled = []
    for kind in structs_in(Frame, set()) | structs_in(wire.History, set()):
        rules = {**OF_ANY, **RULES.get(kind, {})}
        for name, hint in get_type_hints(kind).items():
            own = str in (hint, *typing.get_args(hint)) or "tuple[str" in str(hint)
            if own and name not in rules:
                unruled.append(f"{kind.__name__}.{name}")
    # Notes of ranks and jobs are sentences; traces and files under way are left out as a whole.
    left_out = ("Rank.", "JudgedRank.", "JobActivity.", "Writing.", "BlockedRanks.", "NodeTrace.",
                "Edge.", "FindingTrace.", "LeftOut.")  # fmt: skip
    assert [one for one in sorted(unruled) if not one.startswith(left_out)] == []


@pytest.mark.parametrize(("path", "expected"), [
    ("", ""), ("pipe:[7]", "pipe:[7]"), ("<frozen runpy>", "<frozen runpy>"), ("x.py", "x.py"),
    ("/dev/nvidia0", "/dev/nvidia0"), ("/usr/lib/libc.so.6", "/usr/lib/libc.so.6"),
    ("/home/alice/train.py", "/dir-1/train.py"), ("src/train.py", "dir-1/train.py"),
    ("/data/shard-0412.tar", "/dir-1/file-1.tar"), ("/dev/shm/alice", "/dev/shm/file-1"),
    ("/home/a/v/lib/python3.11/threading.py", "/dir-1/lib/python3.11/threading.py"),
    ("/home/a/v/lib/python3.11/site-packages/torch/x.py",
     "/dir-1/lib/python3.11/site-packages/torch/x.py"),
    ("/home/a/pytorch/torch/distributed/x.py", "/dir-1/torch/distributed/x.py"),
    ("torch/distributed/x.py", "torch/distributed/x.py"),
    ("/home/a/torch/secret/x.py", "/dir-1/x.py"),
    ("/tmp/torchinductor_alice/ab/c.py", "/dir-1/torchinductor_user/ab/c.py"),
])  # fmt: skip
def test_paths(path: str, expected: str) -> None:
    assert Pseudonyms().path(path) == expected


@pytest.mark.parametrize(("text", "expected"), [
    ("rank 3 waits in all_reduce #8812 at train.py:231", None),
    ("try `ssh node7 frtop agent --status`", "try `ssh host-2 frtop agent --status`"),
    ("node[3-7] and node3.", "hosts and host-1."),
    ("tcp://node3:29500 timed out after 1800000ms", "url-1 timed out after 1800000ms"),
    ("torch/utils/data/dataloader.py:1444, 3/4 of it, std::vector, 12:30:45", None),
    ("[10.3.0.7]:29500 and 10.3.0.7.", "[198.18.0.1]:29500 and 198.18.0.1."),
    ("mail bob@acme.com", "mail mail-1"),
    ("key sk-a8f3b2c19d7e4f60a8f3b2c1", "key secret-1"),
    ("read /data/x/y.bin, ~/k and ./z", "read /dir-1/file-1.bin, dir-2/file-2 and dir-3/file-3"),
    ("/proc/7/maps cannot be read", None),
])  # fmt: skip
def test_sentences(text: str, expected: str | None) -> None:
    names = Pseudonyms()
    names.hosts(["node3", "node7"])
    assert names.text(text) == (text if expected is None else expected)


def test_a_text_without_end_is_cut() -> None:
    """An agent may send any: looking for names in a megabyte of it would take hours."""
    found = Pseudonyms().text("a." * 500_000)
    assert len(found) == MAX_TEXT + 1


def test_the_same_name_is_the_same_everywhere() -> None:
    names = Pseudonyms()
    assert names.path("/a/x.bin") == names.path("/a/x.bin") != names.path("/b/x.bin")
    assert names.endpoint("10.0.0.2:7") == f"{names.machine('10.0.0.2')}:7"
    assert names.machine("::1") == "::1"
    assert names.endpoint("[fe80::1%eth0]:7").startswith("[2001:db8::1]")
    assert json.dumps(names.text("on 10.0.0.2")) == '"on 198.18.0.1"'


def test_hosts_keep_their_order() -> None:
    names = Pseudonyms()
    hosts = [f"node{n}" for n in range(12)]
    names.hosts(reversed(hosts))
    made = [names.machine(host) for host in hosts]
    assert made == sorted(made)
    assert len(set(made)) == 12
