"""Ops of ranks, and their groups."""

from __future__ import annotations

from frtop_probe.wire.values import Int, Real, Value


class TensorSpec(Value, frozen=True):
    """`count` consecutive tensors with the same dtype, shape and device."""

    dtype: str
    shape: tuple[Int, ...]
    count: Int = 1
    device: str = "cpu"


class Signature(Value, frozen=True):
    """What an op does, apart from when and where. `peer` and `root` are global ranks.

    `members` is set only for calls that create groups: the ranks that must make the call (folded).
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


class Site(Value, frozen=True):
    """The line that issued an op: the innermost frame outside torch."""

    file: str
    line: Int
    function: str


class Issuer(Value, frozen=True):
    """What issued an op: a phase of training, and the module that ran or that the op serves.

    `phase` is one of "forward", "backward", "optimizer", "recompute" (a forward again, inside a
    backward), "outside" (none of these). `path` is the module's path below the outermost called
    module, whose class is `root`. Both are "" if the module is unknown; only the path is "" for
    the outermost one. Later models of one class are `Net #2`; if it is not clear which, `Net #?`.
    `part` is something smaller or larger than a module:
    "DDP bucket 2: layers.1 ... layers.4 (8 parameters)", "graph eval_with_key.3";
    then `modules` are the modules in it, as far as known.
    """

    phase: str
    path: str = ""
    root: str = ""
    part: str = ""
    modules: tuple[str, ...] = ()


class Op(Value, frozen=True):
    """One op of one rank. `group` is the rank's own id of the group (0: none).

    `done_ns` is 0 while the op is pending, and negative if it failed at that time. `thread` is the
    pthread ident, as in py-spy's dumps. `usual_ns` is the smoothed wait of the call site over
    `usual_count` ops. `timeout_ms` 0 means the group's timeout. `started_ns` is when its device was
    seen to work on it; 0: not seen, or not observed. If not `dated`, the op was first seen at
    `issued_ns`, and issued then or earlier. If not `timed`, `done_ns` only says that it is over,
    not when; if `late`, that it ended by then. `wait_ns` is when a thread began to wait for
    the op, negative when the last wait ended; 0: no wait, or none was seen. For an op that is over,
    only waits of the issuing thread count. `on_device`: the issuing call does not wait for the op;
    once the call has returned, the op is `enqueued`. Only recorders report these two. `message`
    numbers a pending send or receive as `MessageCount` does.
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


class Group(Value, frozen=True):
    """A process group as one rank knows it; `ranks` is folded (`0-3,8`).

    `exact` says that ops were counted from the group's creation, so their numbers can be compared
    between ranks. `epoch` counts re-creations with the same name and members. A group is `gone`
    once this rank has destroyed it; the rank's progress in it is still known then. `blind` is why
    the recorder does not see what the device does with the ops (`recorder.device_front`); "" if it
    sees that, or if they run on no device. `error` is the backend's, "" for none.
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


class GroupProgress(Value, frozen=True):
    """A rank's progress in a group: the number and time of its last op there.

    `last` is None while the group moves quickly, since it would be outdated at once. `enqueued` is
    the number of the last collective handed to the device, `completed` of the last one that the
    device was seen to complete, at `advanced_ns` or before; both are valid while `watched`.
    `as_of_ns` is when this was read from outside, if it could not be read again for some seconds
    (0: it is current).
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


class MessageCount(Value, frozen=True):
    """How many messages a rank has sent to a peer, or received from it, with one tag.

    A receive counts once it is posted. `peer` is None for receives from any source, `tag` is None
    on a device, where all tags are counted together. `number` is the last message's: 1 to 65,535
    (`ring.layout.MESSAGES`), then from 1 again.
    """

    send: bool
    peer: Int | None
    tag: Int | None
    number: Int


class Messages(Value, frozen=True):
    """What a rank has sent and received in a group after issuing `p2p` sends and receives.

    If `complete`, anything missing in `counts` never happened.
    """

    group: Int
    p2p: Int
    complete: bool
    counts: tuple[MessageCount, ...] = ()
