"""Makes logs of faults, judges them, and packs them: `cd tests && python -m files.logs.making OUT`.

It takes about 40 minutes on two cores; on a busy machine some jobs do not do what they should.
What `OUT` already has is not made again. Another seed draws other ranks, numbers of ranks and ways
of starting: logs that no rule of the reader has seen.
"""

from __future__ import annotations

import argparse
import re
import shutil
import signal
import socket
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from files.logs.judging import Made, frame_of, judged, named, pack
from files.logs.making import slurm
from files.logs.making.faults import Run, runs
from files.logs.making.ways import Failed, make

_TRIES: Final = 2
ARCHIVE: Final = "made.tar.xz"


def main() -> int:
    options = _options()
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ExitStack() as started:
        place = Path(started.enter_context(tempfile.TemporaryDirectory(prefix="frtop-making-")))
        ways = {"mpirun"} if shutil.which("mpirun") else set[str]()
        env: dict[str, str] = {}
        if slurm.is_installed():
            env = started.enter_context(slurm.slurm(place / "slurm"))
            ways.add("srun")
        for way in {"mpirun", "srun"} - ways:
            print(f"no {way} here: its logs are not made", flush=True)
        wanted = [
            run
            for run in runs(options.seed)
            if fnmatch(run.made.name, options.only)
            and (run.made.way in ways or run.made.way not in ("mpirun", "srun"))
        ]

        def one(run: Run) -> Made | None:
            return _made(run, out, place, env)

        all_made = list[Made]()
        counts = Counter[str]()
        threads = started.enter_context(ThreadPoolExecutor(options.jobs))
        started.callback(threads.shutdown, cancel_futures=True)
        done = zip(wanted, threads.map(one, wanted), strict=True)
        for number, (run, made) in enumerate(done, 1):
            verdict = "not made"
            if made is not None:
                all_made.append(made)
                frame = frame_of(out / made.name)
                verdict = f"{judged(made, frame)}: {sorted(named(frame)) or 'nobody'}"
            counts[verdict.split(":")[0]] += 1
            print(f"{number}/{len(wanted)} {run.made.name}: {verdict}", flush=True)
    print(dict(counts))
    if options.only == "*":
        pack(out, all_made, out / ARCHIVE)
        print(f"{out / ARCHIVE}: {(out / ARCHIVE).stat().st_size:,} bytes")
    return 1 if counts["wrong"] else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="making", description=__doc__)
    parser.add_argument("out", type=Path, help="folder for the logs, one folder each")
    parser.add_argument("--seed", type=int, default=0, help="0 makes the logs that are stored")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="'SIGKILL*', say")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="at the same time")
    return parser.parse_args()


def _made(run: Run, out: Path, place: Path, env: dict[str, str]) -> Made | None:
    """Makes one log, unless it is there. None if that failed again and again."""
    final = out / run.made.name
    if final.exists():
        return run.made
    for number in range(_TRIES):
        folder = place / f"{run.made.name}.{number}"
        folder.mkdir()
        try:
            make(run, folder, env)
        except Failed as failed:
            print(f"{run.made.name}: {failed}", file=sys.stderr, flush=True)
            shutil.copytree(folder, out / "failed" / folder.name, dirs_exist_ok=True)
            continue
        for path in (path for path in folder.rglob("*") if path.is_file()):
            path.write_bytes(_anonymous(path.read_bytes(), folder))
        shutil.copytree(folder, final, symlinks=False, ignore_dangling_symlinks=True)
        return run.made
    return None


def _anonymous(log: bytes, folder: Path) -> bytes:
    """Without names of this machine: its folders, its host, its addresses."""
    host = socket.gethostname()
    addresses = {str(one[4][0]) for one in socket.getaddrinfo(host, None)} - {"127.0.0.1", "::1"}
    text = log.decode("utf-8", "surrogateescape")
    env = str(Path(sys.prefix).resolve())
    for old, new in ((str(folder.resolve()), "/home/me"), (env, "/opt/env"),
                     (sys.base_prefix, "/usr")):  # fmt: skip
        text = text.replace(old, new)
    for word, new in ((host, "node1"), *((one, "10.0.0.1") for one in addresses)):
        text = re.sub(rf"(?<![\w.-]){re.escape(word)}(?![\w-])", new, text)
    return text.encode("utf-8", "surrogateescape")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped; the logs that are made stay")
