"""Forks ranks from one process that has loaded torch, so that each of them need not.

Run by `warm_ranks` as `python warm_parent.py`, prepared as by `frtop run` or not, with a listening
socket as stdin. Each message is a program as JSON, with the descriptors of its stdin, stdout and
stderr, and of a pipe for its exit status. The answer is its pid. When a connection ends, so do its
ranks; after the last one this process does.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import select
import signal
import socket
import struct
import sys
import threading
import traceback
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Final

# Dynamo imports these three: a second in each rank that has an optimizer. Dynamo itself is loaded
# in ranks, as in jobs after their recorder.
import sympy  # type: ignore[import-untyped]  # noqa: F401
import torch.distributed.fsdp
import torch.distributed.tensor
import torch.nn.parallel
import torch.testing._internal.distributed.fake_pg
import torch.utils.data

_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def serve(listener: socket.socket) -> dict[str, Any] | None:
    """Returns the program in a rank, and None in the parent at its end."""
    clients = {(first := _accept(listener)).fileno(): first}
    running: dict[int, tuple[int, int, int]] = {}  # pid, pipe and client by pidfd
    while clients:
        for ready in select.select([listener.fileno(), *clients, *running], [], [])[0]:
            if ready in running:
                pid, pipe, _ = running.pop(ready)
                _, status = os.waitpid(pid, 0)
                os.write(pipe, str(os.waitstatus_to_exitcode(status)).encode())
                os.close(pipe)
                os.close(ready)
                continue
            if ready == listener.fileno():
                client = _accept(listener)
                clients[client.fileno()] = client
                continue
            message, given, _, _ = socket.recv_fds(clients[ready], 1 << 20, 4)
            if not message:
                clients.pop(ready).close()
                for pid, _, client_of_it in running.values():
                    if client_of_it == ready:
                        os.kill(pid, signal.SIGKILL)
                continue
            parent = os.getpid()
            pid = os.fork()
            if not pid:
                pipes = (pipe for _, pipe, _ in running.values())
                sockets = [one.detach() for one in (listener, *clients.values())]
                _become(given, [*sockets, *running, *pipes])
                return None if os.getppid() != parent else dict(json.loads(message))
            for one in given[:3]:
                os.close(one)
            running[os.pidfd_open(pid)] = (pid, given[3], ready)
            clients[ready].send(str(pid).encode())
    return None


def _accept(listener: socket.socket) -> socket.socket:
    """Takes a connection of this user: the listener's name is anybody's to read."""
    while True:
        client = listener.accept()[0]
        _, uid, _ = struct.unpack(
            "3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        )
        if uid == os.getuid():
            return client


def _become(given: list[int], parents: list[int]) -> None:
    """Takes the rank's own descriptors, and leaves those of the parent and of other ranks."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    os.setsid()
    for target, source in enumerate(given[:3]):
        os.dup2(source, target)
    for one in (*given, *parents):
        os.close(one)


def run(program: dict[str, Any]) -> None:
    """Runs a program as `python FILE ARGUMENTS` does: in `__main__`, with its own traceback."""
    os.environ.clear()
    os.environ.update(program["environment"])
    os.chdir(program["folder"])
    file = program["file"]
    sys.argv = [file, *program["arguments"]]
    sys.path[0] = str(Path(file).parent)
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    main = ModuleType("__main__")
    main.__file__ = file
    sys.modules["__main__"] = main
    status = 0
    try:
        exec(compile(Path(file).read_text(), file, "exec"), main.__dict__)
    except Exception as error:  # noqa: BLE001 - as the interpreter
        _report(error, error.__traceback__)
        status = 1
    # Taking torch's modules apart, as the interpreter does last, costs more than most ranks do. A
    # program that ends by `sys.exit` goes the interpreter's whole way.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _report(error: Exception, trace: TracebackType | None) -> None:
    """Does what the interpreter does with an exception that nobody caught."""
    assert trace is not None
    error = error.with_traceback(trace.tb_next)  # without this file's frame
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except Exception:  # noqa: BLE001 - as the interpreter
        traceback.print_exc()


if __name__ == "__main__":
    gc.freeze()  # what a rank does not collect, it does not copy
    if (wanted := serve(socket.socket(fileno=os.dup(0)))) is not None:
        run(wanted)
