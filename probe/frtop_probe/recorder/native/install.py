"""Installs the native kernels, and does in Python what they need only once.

Why they are not used: `library.py`, and `check.py` at the start; then `recorder.py` takes those of
Python.

An op whose group, form and line are known never comes here. Ops on devices always do: for them the
kernels of `ops/kernel.py` are called.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final

from frtop_probe.recorder.guard import raised_by_signal_handler
from frtop_probe.recorder.marks.steps import StepCounter
from frtop_probe.recorder.native.library import Library, NotUsableError
from frtop_probe.recorder.ops.call_sites import CallSites
from frtop_probe.recorder.ops.kernel import KernelContext, Kernels, hide_from_dynamo
from frtop_probe.recorder.ops.signatures import SignatureTable
from frtop_probe.recorder.ops.waits import WaitHook
from frtop_probe.ring.layout import GROUPS_OFFSET

VARIABLE: Final = "FRTOP_NATIVE"
PROPERTIES: Final = ("p2p", "unsignalled", "barrier", "always_sync")


class NativeHook:
    """The installed kernels. They stay installed until the process ends."""

    def __init__(
        self, core: KernelContext, signatures: SignatureTable, steps: StepCounter, torch: Any
    ) -> None:
        """Installs a native kernel on every op of `c10d`.

        Raises:
            NotUsableError: they cannot be used here.
            TorchTooOldError: torch lacks something that any kernel needs.
        """
        if os.environ.get(VARIABLE) == "0":
            raise NotUsableError(f"{VARIABLE}=0")
        flag: Any = core.enabled
        if isinstance(flag, list):
            raise NotUsableError("this kernel cannot clear a page in forked children")
        library = Library(torch)
        self._remove: Callable[[], None] = library.remove
        ring, shape = core.ring, core.ring.shape
        places: tuple[int, ...] = (shape.groups, GROUPS_OFFSET)
        places += (shape.overflow, shape.overflow_offset)
        places += (shape.sizes_offset, shape.chunks, shape.slots_offset, shape.slots, shape.more)
        places += (shape.marks_offset, shape.marks)
        library.open(ring.map, places, flag)
        ring.next_sequence = library.next_sequence
        signatures.take_chunks = library.take_chunks
        own = os.getpid()

        def forget(group: int, gone: bool) -> None:
            if os.getpid() == own:  # a forked child may have a recorder and groups of its own
                library.forget_group(group, gone)

        core.groups.use(library.next_number, forget)
        core.pending.use(library)
        ring.marks.use(*library.marks())
        steps.use(library.only, *library.steps())
        kernels = Kernels(core, signatures, torch)
        misses = _Misses(core, signatures, torch, kernels)
        operations = [
            {
                **asdict(one),
                **{name: getattr(one, name) for name in PROPERTIES},
                "index": index,
                "tensors": [(each.position, each.depth, each.output) for each in one.tensors],
            }
            for index, one in enumerate(kernels.operations)
        ]
        library.install(operations, misses)

        def faster(kind: Any, own: Any, wrapper: Any) -> Any:
            hide_from_dynamo(torch, wrapper)
            return library.wait(kind, own, wrapper)

        self._waits = WaitHook(
            kernels.parts.work, core.pending, core.watch, core.enabled, core.fail, faster
        )

    def remove(self) -> None:
        """Removes the kernels. Only for a forked child that starts its own recorder."""
        self._remove()
        self._waits.remove()


class _Misses:
    """What the kernels call, with the GIL, where their tables do not have something.

    An exception of ours switches the recorder off; one that a signal handler raised passes.
    """

    def __init__(  # noqa: C901 - a function for each miss
        self, core: KernelContext, signatures: SignatureTable, torch: Any, kernels: Kernels
    ) -> None:
        operations, parts = kernels.operations, kernels.parts
        from_raw = torch._C.DispatchKeySet.from_raw_repr  # noqa: SLF001
        forms = [signatures.form_finder(one) for one in operations]
        sites: CallSites = core.sites
        self.issuers = core.find_issuer
        self.watching, self.unfinished = core.watch.watching, core.watch.unfinished
        self.device_handles, self.handles = core.pending.device_handles, core.pending.handles
        self.sites_on = sites.state

        def group(script: Any) -> int:
            """The number of a group, negative while torch does not know its members."""
            known = core.groups.adopt(parts.unbox_group(script))
            return known.id if known.described else -known.id

        def form(index: int, args: tuple[Any, ...]) -> int:
            return forms[index](args)

        def issuer(thread: int, site: int, index: int, args: tuple[Any, ...]) -> int:
            process_group = parts.unbox_group(args[operations[index].group])
            return core.find_issuer[0](thread, site, process_group, args)

        def watch(index: int, args: tuple[Any, ...], *rest: int) -> Any:
            return core.watch.begin(operations[index], args, *rest)

        def handed(watched: Any, work: Any) -> None:
            core.watch.handed(watched, parts.unbox_work(work))

        def device(index: int, keys: int, args: tuple[Any, ...]) -> Any:
            return kernels.functions[index](from_raw(keys), *args)

        def guarded(function: Callable[..., Any], instead: Any) -> Callable[..., Any]:
            def call(*args: Any) -> Any:
                try:
                    return function(*args)
                except BaseException as error:
                    if not isinstance(error, Exception) or raised_by_signal_handler(error):
                        with suppress(Exception):  # the program's own is propagating
                            core.groups.mark_inexact()
                        raise
                    core.fail(error)
                return instead

            hide_from_dynamo(torch, call)
            return call

        hide_from_dynamo(torch, device, callees=False)
        self.group, self.form = guarded(group, 0), guarded(form, 0)
        self.classify, self.site = guarded(sites.kind_of, 2), guarded(sites.number_at, 0)
        self.issuer, self.watch = guarded(issuer, 0), guarded(watch, None)
        self.handed, self.at_op = guarded(handed, None), guarded(core.at_op, None)
        self.device = device
