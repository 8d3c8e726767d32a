"""frtop on the way to other hosts: runs a command for each, passes lines on, writes no file."""

# The shell of the host on the way starts this in place of stage 0. It labels the output of commands
# with their numbers, like `srun --label`. Input names the commands that it is for: `to 0,3 LINE`.
# Lines that all commands get come once: `store NAME LINE`, then `give NAME 0,3`. `start 3` restarts
# a command that has ended, `end 3` ends one. The source goes to `python -c` between single quotes,
# so it must contain none. `ps` shows the line above.
import json
import os
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any, NoReturn

MAX_LINE = 1 << 18
MAX_COMMANDS = 1024
MAX_WAITING = 8 << 20
MAX_STORED = 4 << 20
MAX_WRITE = 1 << 16
STUCK_S = 5.0
SILENT_S = 60
LEAVE_S = 2.0
SAID = 20
SSH = shlex.split(os.environ.get("FRTOP_SSH", "")) or ["ssh"]


def say(word: str, **fields: Any) -> bytes:
    return f"frtop-{word} {json.dumps(fields)}\n".encode()


def refuse(text: str, advice: str) -> NoReturn:
    write(say("error", text=text, next=advice))
    sys.exit(1)


def write(data: bytes) -> None:
    # A blocked operator blocks everything: nothing is buffered for it here.
    while data:
        data = data[os.write(1, data) :]


class Lines:
    """Splits bytes into lines; drops the rest of a line that is too long."""

    def __init__(self) -> None:
        self.rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        *lines, self.rest = (self.rest + data).split(b"\n")
        self.rest = self.rest[:MAX_LINE]
        return lines


class Command:
    """One of the commands."""

    def __init__(self, number: int, words: list[str]) -> None:
        self.number = number
        self.label = b"%d: " % number
        self.said: list[str] = []
        self.waiting = bytearray()
        self.is_watched = False
        self.moved = 0.0
        self.lines = Lines()
        self.errors = Lines()
        self.open = 2
        self.process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        for end in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert end is not None
            os.set_blocking(end.fileno(), False)

    @property
    def is_full(self) -> bool:
        return len(self.waiting) > MAX_WAITING

    def give(self, data: bytes) -> None:
        if not self.waiting:
            self.moved = time.monotonic()
        self.waiting += data
        self.flush()

    def flush(self) -> None:
        stdin = self.process.stdin
        assert stdin is not None
        try:
            while self.waiting:
                with memoryview(self.waiting) as view:
                    sent = os.write(stdin.fileno(), view[:MAX_WRITE])
                del self.waiting[:sent]
                self.moved = time.monotonic()
        except BlockingIOError:
            return
        except (OSError, ValueError):
            self.waiting.clear()  # it has ended, as its output will show

    def leave(self) -> None:
        self.waiting.clear()
        if self.process.stdin is not None:
            with suppress(OSError):
                self.process.stdin.close()

    def release(self) -> None:
        self.leave()
        for end in (self.process.stdout, self.process.stderr):
            if end is not None:
                end.close()


class FanOut:
    """All commands, and the operator."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.input = Lines()
        self.later: list[bytes] = []
        self.words: list[list[str]] = []
        self.commands: dict[int, Command] = {}
        self.stored: dict[bytes, bytearray] = {}

    def next_line(self) -> bytes:
        while True:
            data = os.read(0, MAX_LINE)
            if not data:
                sys.exit(0)  # the operator has left
            lines = self.input.feed(data)
            if lines:
                self.later = lines[1:]
                return lines[0]

    def start(self, line: bytes) -> None:
        word, _, text = line.partition(b" ")
        commands: list[Any] = []
        with suppress(ValueError):
            commands = json.loads(text) if word == b"hosts" else []
        proper = isinstance(commands, list) and 0 < len(commands) <= MAX_COMMANDS
        if not proper or not all(isinstance(words, list) and words for words in commands):
            refuse("the list of hosts arrived damaged", "try again")
        for number, words in enumerate(commands):
            self.words.append([*SSH, *map(str, words[1:])] if words[0] == "ssh" else words)
            self.begin(number)

    def begin(self, number: int) -> None:
        try:
            one = Command(number, self.words[number])
        except (OSError, TypeError, ValueError) as error:
            write(b"%d: " % number + say("ended", status=127, errors=[str(error)]))
            return
        self.commands[number] = one
        for end, handler in ((one.process.stdout, "out"), (one.process.stderr, "errors")):
            assert end is not None
            self.selector.register(end, selectors.EVENT_READ, (one, handler))

    def take(self, line: bytes) -> None:
        word, _, text = line.partition(b" ")
        first, _, rest = text.partition(b" ")
        if word == b"to":
            self.give(first, rest + b"\n")
        elif word == b"store":
            stored = self.stored.setdefault(first, bytearray())
            if len(stored) < MAX_STORED:
                stored += rest + b"\n"
        elif word == b"give":
            self.give(rest, bytes(self.stored.get(first, b"")))
        elif word == b"end":
            for one in self.named(first):
                self.leave(one)
        elif word == b"start" and first.isdigit() and len(first) < 6:
            number = int(first)
            if number < len(self.words) and number not in self.commands:
                self.begin(number)

    def give(self, numbers: bytes, data: bytes) -> None:
        for one in self.named(numbers):
            if one.process.stdin is not None and not one.process.stdin.closed:
                one.give(data)
                self.watch(one)

    def watch(self, one: Command) -> None:
        if one.is_watched == bool(one.waiting):
            return
        one.is_watched = bool(one.waiting)
        assert one.process.stdin is not None
        if one.waiting:
            self.selector.register(one.process.stdin, selectors.EVENT_WRITE, (one, "in"))
        else:
            self.selector.unregister(one.process.stdin)

    def leave(self, one: Command) -> None:
        one.waiting.clear()
        self.watch(one)
        one.leave()

    def named(self, numbers: bytes) -> list[Command]:
        found = [int(one) for one in numbers.split(b",") if one.isdigit() and len(one) < 6]
        return [self.commands[number] for number in found if number in self.commands]

    def run(self) -> None:
        os.set_blocking(0, False)
        self.selector.register(0, selectors.EVENT_READ, (None, "input"))
        for line in self.later:
            self.take(line)
        reported = time.monotonic()
        while time.monotonic() - reported < SILENT_S:
            # While a command is far behind, read no more input: it would have to be buffered.
            full = any(one.is_full for one in self.commands.values())
            for key, _ in self.selector.select(1.0):
                one, handler = key.data
                if handler == "in":
                    one.flush()
                    self.watch(one)
                    continue
                if one is not None:
                    self.read(one, handler, key.fileobj)
                    continue
                reported = time.monotonic()
                if full:
                    time.sleep(0.01)
                elif not self.read_input():
                    return
            self.kill_stuck()

    def kill_stuck(self) -> None:
        for one in self.commands.values():
            if one.is_full and time.monotonic() - one.moved > STUCK_S:
                one.process.kill()  # it no longer reads: the others go on
                self.leave(one)

    def read_input(self) -> bool:
        try:
            data = os.read(0, MAX_LINE)
        except BlockingIOError:
            return True
        for line in self.input.feed(data):
            self.take(line)
        return bool(data)

    def read(self, one: Command, handler: str, end: Any) -> None:
        try:
            data = os.read(end.fileno(), MAX_LINE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if handler == "out":
            write(b"".join(one.label + line + b"\n" for line in one.lines.feed(data)))
        else:
            one.said += [line.decode("utf-8", "replace")[:400] for line in one.errors.feed(data)]
            del one.said[:-SAID]
        if not data:
            self.selector.unregister(end)
            one.open -= 1
            if not one.open:
                self.end(one)

    def end(self, one: Command) -> None:
        try:
            status = one.process.wait(LEAVE_S)
        except subprocess.TimeoutExpired:
            one.process.kill()
            status = one.process.wait()
        del self.commands[one.number]
        self.leave(one)
        one.release()
        write(one.label + say("ended", status=status, errors=one.said))

    def close(self) -> None:
        for one in self.commands.values():
            one.leave()
        until = time.monotonic() + LEAVE_S
        for step in (0, signal.SIGTERM, signal.SIGKILL):
            for one in self.commands.values():
                if step and one.process.poll() is None:
                    with suppress(OSError):
                        os.killpg(one.process.pid, step)
            while time.monotonic() < until and any(
                one.process.poll() is None for one in self.commands.values()
            ):
                time.sleep(0.02)
            until = time.monotonic() + LEAVE_S


def start() -> None:
    def leave(*_: object) -> NoReturn:
        sys.exit(1)

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, leave)
    fan_out = FanOut()
    signal.alarm(SILENT_S)  # a killed operator does not always close the pipe
    write(say("relay", python=sys.version.split()[0], host=socket.gethostname()))
    try:
        fan_out.start(fan_out.next_line())
        signal.alarm(0)
        fan_out.run()
    except BrokenPipeError:
        pass  # the operator has left
    finally:
        fan_out.close()


if __name__ == "__main__":
    start()
