# What the shell starts: receives the archive, and runs the agent in it. It is given to `python -c`
# between single quotes: so it has none. Any Python 3 parses it. Nothing is imported from the disk
# but the standard library (-I -S).
import base64
import binascii
import hashlib
import json
import os
import signal
import socket
import sys

MAX_ARCHIVE = 16 << 20
MAX_LINE = 1 << 16
TASK = os.environ.get("SLURM_PROCID", "")
PATIENCE_S = 120  # for the archive; an operator that was killed may not close the pipe

rest = b""


def say(word, **fields):
    os.write(1, ("frtop-%s %s\n" % (word, json.dumps(fields))).encode())


def refuse(text, advice):
    say("error", text=text, next=advice)
    sys.exit(1)


def line():
    """The next line for this task."""
    global rest
    while True:
        while b"\n" not in rest:
            piece = os.read(0, MAX_LINE)
            if not piece:
                sys.exit(0)  # the operator has left
            if len(rest) > MAX_LINE:
                refuse("a line of the archive is too long", "compare `frtop --version` with others")
            rest += piece
        found, _, rest = rest.partition(b"\n")
        found = found.strip()
        if found.startswith(b"to "):
            task, _, found = found[3:].partition(b" ")
            if task != TASK.encode():
                continue
        return found


def receive():
    """The archive, checked."""
    words = line().split()
    while words[:1] != [b"archive"]:
        if words[:1] == [b"bye"]:
            sys.exit(0)
        words = line().split()  # a ping, or an empty line
    try:
        size, digest = int(words[1]), words[2].decode()
    except (IndexError, ValueError):
        size, digest = -1, ""
    if not 0 < size <= MAX_ARCHIVE:
        refuse("the announcement of the archive is malformed", "please report this")
    parts, left = [], size
    while left > 0:
        try:
            parts.append(base64.b64decode(line(), validate=True))
        except binascii.Error:
            refuse("the archive did not arrive as it was sent", "try again")
        left -= len(parts[-1])
    data = b"".join(parts)
    if left or hashlib.sha256(data).hexdigest() != digest:
        refuse("the archive did not arrive as it was sent", "try again")
    return data


def store(data):
    """A descriptor with the archive, of a file that has no name."""
    try:
        descriptor = os.memfd_create("frtop")
    except (AttributeError, OSError):
        import tempfile

        try:
            with tempfile.TemporaryFile() as file:
                descriptor = os.dup(file.fileno())
        except OSError as error:
            refuse(
                "there is no room for a file without a name: %s" % error,
                "allow memfd_create, or make a folder that TMPDIR names writable there",
            )
    while data:
        data = data[os.write(descriptor, data) :]
    return descriptor


def start():
    signal.alarm(PATIENCE_S)
    version = "%d.%d.%d" % sys.version_info[:3]
    say(
        "boot",
        python=version,
        machine=os.uname().machine,
        host=socket.gethostname(),
        task=TASK,
    )
    descriptor = store(receive())
    place = "/proc/self/fd/%d" % descriptor
    if not os.path.exists(place):
        refuse("there is no /proc there", "mount it: without it no process can be seen")
    sys.path.insert(0, place)
    from frtop_probe.pipe.agent import main

    signal.alarm(0)
    sys.exit(main(descriptor, rest))


start()
