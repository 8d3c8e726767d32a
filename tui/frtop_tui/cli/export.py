"""`frtop export`: what is known about a job, in a file for people or other programs."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from frtop_tui.cli.capture import VERDICT_S
from frtop_tui.cli.file_options import open_files
from frtop_tui.cli.files import require_writable, say_written, wait_for_file
from frtop_tui.cli.live import connected, require_ranks, wait_for_report
from frtop_tui.cli.output import show_progress
from frtop_tui.cli.settings import folder_of
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import FrtopError, UsageError
from frtop_tui.files.formats.registry import FORMATS
from frtop_tui.files.formats.writing import encoded, write_export
from frtop_tui.files.output_path import default_path
from frtop_tui.job.coverage import coverage_text
from frtop_tui.job.units import counted

STDOUT: Final = "-"


def run(options: argparse.Namespace) -> int:
    """Returns 0 when everything is written, whatever the state of the job."""
    name = options.format
    path = _path(options, name)
    if options.paths:
        return _export_recorded(options, name, path)
    return _export_live(options, name, path)


def _path(options: argparse.Namespace, name: str) -> Path | None:
    """Where to write; None: a new name, or standard output."""
    if options.output is None:
        return None
    if options.output == STDOUT:
        if FORMATS[name].is_folder:
            raise UsageError(f"{name} is a folder of files", "name it: -o FOLDER")
        return None
    path = Path(options.output)
    if FORMATS[name].is_folder:
        _require_new_folder(path)
        return path
    require_writable(path)
    if path.exists() and not options.force:
        raise UsageError(f"{path} already exists", "name another file, or replace it: --force")
    return path


def _unnamed_path(frame: Frame, name: str, options: argparse.Namespace) -> Path:
    suffix, folder = FORMATS[name].suffix, folder_of(options)
    return default_path(frame, time.time_ns(), suffix, redact=options.redact, folder=folder)


def _require_new_folder(path: Path) -> None:
    if path.is_dir():
        if any(path.iterdir()):
            raise UsageError(f"{path} already exists and is not empty", "name a new folder with -o")
    elif path.exists():
        raise UsageError(f"{path} already exists, and is a file", "name a new folder with -o")
    else:
        require_writable(path)


def _export_recorded(options: argparse.Namespace, name: str, path: Path | None) -> int:
    frame = open_files(options)
    show_progress(f"exporting {counted(len(frame.ranks), 'rank')} as {name}")
    if options.output == STDOUT:
        content = encoded(frame, name, redact=options.redact)
        show_progress("")
        assert isinstance(content, bytes)
        return _print_bytes(content, frame)
    path = path or _unnamed_path(frame, name, options)
    try:
        size = write_export(path, frame, name, over=options.force, redact=options.redact)
    except FileExistsError as error:
        raise FrtopError(f"{path} already exists", "name another one with -o") from error
    show_progress("")
    say_written(path, size, "", frame)
    return 0


def _export_live(options: argparse.Namespace, name: str, path: Path | None) -> int:
    with connected(options, judges=True) as source:
        frame = wait_for_report(source, VERDICT_S, show_progress)
        require_ranks(frame)
        if options.output == STDOUT:
            with tempfile.TemporaryDirectory(prefix="frtop-") as folder:
                path = Path(folder) / f"export{FORMATS[name].suffix}"
                source.export(path, name, redact=options.redact)
                wait_for_file(source, "export", path, "ranks")
                show_progress("")
                return _print_bytes(path.read_bytes(), source.frame())
        path = path or _unnamed_path(frame, name, options)
        source.export(path, name, over=options.force, redact=options.redact)
        writing = wait_for_file(source, "export", path, "ranks")
        show_progress("")
        say_written(writing.path, writing.size, str(writing.problem or ""), source.frame())
    return 0


def _print_bytes(content: bytes, frame: Frame) -> int:
    """Writes only the content to standard output, and what is missing to standard error."""
    if not frame.coverage.complete:
        print(coverage_text(frame.coverage), file=sys.stderr)
    if sys.stdout.isatty():
        print(content.decode(errors="replace"))
        return 0
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()
    return 0
