"""Ops of ranks, and the groups in which they are issued."""

from __future__ import annotations

from msgspec import Struct

from frtop_probe.wire.values import Int, Real


class TensorSpec(Struct, frozen=True, array_like=True):
    """`count` consecutive tensors with the same dtype, shape and device."""

    dtype: str
    shape: tuple[Int, ...]
    count: Int = 1
    device: str = "cpu"


class Signature(Struct, frozen=True, array_like=True):
    """What an op does, apart from when and where. `peer` and `root` are global ranks.

    `members` is set only for calls that make groups: the ranks that must make the call (folded).
    """

    kind: str
    reduce: str | None = None
    root: Int | None = None
    peer: Int | None = None
    tag: Int | None = None
    inputs: tuple[TensorSpec, ...] | None = None
    outputs: tuple[TensorSpec, ...] | None = None
    in_splits: tuple[Int, ...] | None = None
    out_splits: tuple[Int, ...] | None = None
    members: str | None = None


class Site(Struct, frozen=True, array_like=True):
    """The line that issued an op: the innermost frame outside torch."""

    file: str
    line: Int
    function: str


class Issuer(Struct, frozen=True, array_like=True):
    """What issued an op: a phase of training, and the module that ran, or for which it is.

    `phase` is one of "forward", "backward", "optimizer", "recompute" (a forward again, inside a
    backward), "outside" (none of these). `path` is that of the module below the outermost one that
    was called, whose class is `root`; both "" where it is not known, only the path where it is that
    one. Later models of one class are `Net #2`, one of several `Net #?`. `part` is less, or more,
    than a module: "DDP bucket 2: layers.1 ... layers.4 (8 parameters)", "graph eval_with_key.3";
    then `modules` are those in it, as far as they are known.
    """

    phase: str
    path: str = ""
    root: str = ""
    part: str = ""
    modules: tuple[str, ...] = ()


class Op(Struct, frozen=True, array_like=True):
    """One op of one rank. `group` is the rank's own id of the group (0: none).

    `done_ns` is 0 while the op is pending, and negative when it failed at that time. `thread` is
    the pthread ident, as in py-spy's dumps. `usual_ns` is the smoothed wait of the call site over
    `usual_count` ops. `timeout_ms` 0 means the group's timeout. `started_ns` is when its device
    was seen to work on it; 0: not seen, or not observed. Where it is not `dated`, it was issued
    at `issued_ns` or before: that is when it was first seen. Where it is not `timed`, `done_ns`
    says that it is over, and not when it ended; where it is `late`, that it ended by then.
    `wait_ns` is when a thread began to wait for it, negative when the last wait ended; 0: nobody
    has waited, or nobody saw it. Of an op that is over only a wait of the thread that issued it
    counts. `on_device`: the call that issues it does not wait for it; once
    that has returned, it is `enqueued`. Both are only told by a recorder. `message` numbers
    a pending send or receive as `MessageCount` does.
    """

    sequence: Int
    group: Int
    number: Int
    signature: Signature | None
    site: Site | None
    issued_ns: Int
    done_ns: Int = 0
    thread: Int = 0
    sync: bool = False
    p2p: bool = False
    tracked: bool = True
    pseudo: bool = False
    timeout_ms: Int = 0
    usual_ns: Int = 0
    usual_count: Int = 0
    started_ns: Int = 0
    dated: bool = True
    timed: bool = True
    late: bool = False
    wait_ns: Int = 0
    on_device: bool = False
    enqueued: bool = False
    issuer: Issuer | None = None
    message: Int = 0

    @property
    def pending(self) -> bool:
        return self.done_ns == 0


class Group(Struct, frozen=True, array_like=True):
    """A process group as one rank knows it; `ranks` is folded (`0-3,8`).

    `exact` says that ops were counted from the group's creation, so their numbers can be compared
    between ranks. `epoch` counts re-creations with the same name and members. A group is `gone`
    when this rank has destroyed it; how far the rank came in it is still known then. `blind` is why
    the recorder does not see what its device does with its ops (`recorder.device_front`); "" where
    it sees that, or they run on no device. `error` is the backend's, "" for none.
    """

    id: Int
    name: str
    description: str
    backend: str
    ranks: str
    exact: bool = True
    epoch: Int = 0
    timeout_s: Real = 0.0
    gone: bool = False
    blind: str = ""
    error: str = ""


class GroupProgress(Struct, frozen=True, array_like=True):
    """A rank's progress in a group: the number and time of its last op there.

    `last` is None while the group moves quickly, since it would be outdated at once. `enqueued` is
    the number of the last collective that was handed to its device, `completed` of the last one
    that the device was seen to complete, at `advanced_ns` or before; they are true while `watched`.
    `as_of_ns` is when this was read from outside, if nobody could read it again for some seconds
    (0: it is of now).
    """

    group: Int
    number: Int
    p2p: Int
    issued_ns: Int
    last: Op | None = None
    enqueued: Int = 0
    completed: Int = 0
    advanced_ns: Int = 0
    watched: bool = False
    as_of_ns: Int = 0


class MessageCount(Struct, frozen=True, array_like=True):
    """How many messages a rank has sent to a peer, or received from it, with one tag.

    A receive counts once it is posted. `peer` is None for receives from any source, `tag` is None
    on a device, where all tags are counted together. `number` is that of the last one: 1 to 65,535
    (`ring.layout.MESSAGES`), then from 1 again.
    """

    send: bool
    peer: Int | None
    tag: Int | None
    number: Int


class Messages(Struct, frozen=True, array_like=True):
    """What a rank has sent and received in a group, when it had issued `p2p` of both.

    What `counts` lacks never was, if they are `complete`.
    """

    group: Int
    p2p: Int
    complete: bool
    counts: tuple[MessageCount, ...] = ()
