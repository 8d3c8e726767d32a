"""The beginning of `frtop.pyz`, which Python runs as a script: from a file, or from a pipe.

Python parses all of it before it runs any: old ones parse it, too, to say why they do not run it.
"""

import os
import re
import sys

ARCHIVE = """@ARCHIVE@"""


def refuse(text, step):
    sys.exit("frtop: %s\n  next: %s" % (text, step))


def program_of(process):
    try:
        return os.readlink("/proc/%s/exe" % process)
    except (IOError, OSError):  # it is another user's
        return ""


def newer_python():
    """A Python 3.10 or later that a process of ours runs, or on PATH; "" if there is none."""
    folders = os.environ.get("PATH", "").split(":")
    names = ["%s/python3.%d" % (one, minor) for minor in range(19, 9, -1) for one in folders]
    names = [program_of(process) for process in os.listdir("/proc")] + names
    names = [one for one in names if re.search(r"/python3\.1\d$", one)]
    return next((one for one in names if os.access(one, os.X_OK)), "")


def unpacked():
    """The archive in a file without a name, which is in memory where the kernel allows it."""
    import binascii
    import lzma

    data = memoryview(lzma.decompress(binascii.a2b_base64(ARCHIVE)))
    try:
        descriptor = os.memfd_create("frtop")
    except (AttributeError, OSError):
        import tempfile

        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    while data:
        data = data[os.write(descriptor, data) :]
    return "/proc/self/fd/%d" % descriptor


def start():
    if sys.version_info < (3, 10):
        refuse(
            "this is Python %d.%d.%d, and frtop needs 3.10 or later" % sys.version_info[:3],
            newer_python() or "run it by the Python of the job: `ls -l /proc/PID/exe` of a rank",
        )
    try:
        sys.path.insert(0, unpacked())
    except ImportError as error:
        refuse("this Python lacks a part of the standard library: %s" % error, newer_python())
    try:
        from frtop_tui.__main__ import run

        run()
    except ModuleNotFoundError as error:
        refuse(
            "this command is not in frtop.pyz: %s" % error,
            "install frtop; frtop.pyz has diagnose, jobs, stacks, doctor and capture",
        )


start()
