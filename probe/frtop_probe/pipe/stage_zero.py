"""frtop at the end of a pipe: reads jobs of this user, and writes no file."""

# The shell starts this: it receives the archive and runs the agent in it. The source goes to
# `python -c` between single quotes, so it must contain none. It imports only the standard library
# (-I -S). `ps` shows the line above.
import base64
import binascii
import fcntl
import hashlib
import json
import os
import signal
import socket
import sys
from typing import NoReturn

MAX_ARCHIVE = 16 << 20
MAX_LINE = 1 << 16
SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
TASK = os.environ.get("SLURM_PROCID", "")
PATIENCE_S = 120
AGAIN = "try again; if this persists, something on the way changes the input"

rest = b""
program = "pipe.agent"


def say(word: str, **fields: str) -> None:
    os.write(1, f"frtop-{word} {json.dumps(fields)}\n".encode())


def refuse(text: str, advice: str) -> NoReturn:
    say("error", text=text, next=advice)
    sys.exit(1)


def line() -> bytes:
    global rest  # noqa: PLW0603 - what was read behind a line
    while True:
        while b"\n" not in rest:
            if len(rest) > MAX_LINE:
                refuse("a line of the archive is too long", AGAIN)
            piece = os.read(0, MAX_LINE)
            if not piece:
                sys.exit(0)  # the operator has left
            rest += piece
        found, _, rest = rest.partition(b"\n")
        found = found.strip()
        if found.startswith(b"to "):
            task, _, found = found[3:].partition(b" ")
            if task != TASK.encode():
                continue
        return found


def receive() -> bytes:
    global program  # noqa: PLW0603 - a module of the archive, named behind its size and sum
    words = line().split()
    while words[:1] != [b"archive"]:
        if words[:1] == [b"bye"]:
            sys.exit(0)
        if words and words[0] != b"ping":
            refuse("the archive was announced in a way that is not understood", AGAIN)
        words = line().split()
    size = int(words[1]) if len(words) in (3, 4) and words[1].isdigit() else 0
    program = b"".join(words[3:]).decode("ascii", "replace") or program
    if not 0 < size <= MAX_ARCHIVE or not program.replace(".", "_").isidentifier():
        refuse("the archive was announced in a way that is not understood", AGAIN)
    data = b""
    while len(data) < size:
        found = line()
        if found.startswith(b"ping "):
            continue
        try:
            data += base64.b64decode(found, validate=True)
        except binascii.Error:
            refuse("the archive did not arrive as it was sent", AGAIN)
    if len(data) != size or hashlib.sha256(data).hexdigest().encode() != words[2]:
        refuse("the archive did not arrive as it was sent", AGAIN)
    return data


def store(data: bytes) -> int:
    sealed = True
    try:
        descriptor = os.memfd_create("frtop", os.MFD_ALLOW_SEALING)
    except (AttributeError, OSError):
        sealed = False
        import tempfile  # noqa: PLC0415 - seldom needed, and slow

        try:
            with tempfile.TemporaryFile() as file:
                descriptor = os.dup(file.fileno())
        except OSError as error:
            refuse(
                f"there is no room for a file without a name: {error}",
                "allow memfd_create there, or set TMPDIR to a folder that can be written",
            )
    while data:
        data = data[os.write(descriptor, data) :]
    if sealed:  # nobody can change what children import
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
    return descriptor


def start() -> NoReturn:
    signal.alarm(PATIENCE_S)  # a killed operator does not always close the pipe
    say(
        "boot",
        python=".".join(map(str, sys.version_info[:3])),
        machine=os.uname().machine,
        host=socket.gethostname(),
        task=TASK,
    )
    descriptor = store(receive())
    place = f"/proc/self/fd/{descriptor}"
    if not os.path.exists(place):  # noqa: PTH110 - pathlib is slow to import
        refuse("there is no /proc there", "mount it: without it frtop sees no process")
    sys.path.insert(0, place)
    from importlib import import_module  # noqa: PLC0415 - it is in the archive

    run = import_module(f"frtop_probe.{program}").main
    signal.alarm(0)
    sys.exit(run(descriptor, rest))


if __name__ == "__main__":
    start()
