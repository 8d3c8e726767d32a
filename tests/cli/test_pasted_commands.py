"""What frtop prints to be pasted into a shell names the path that it means, whatever is in it."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from frtop_probe import keys
from frtop_probe.keys import KeyProblem
from frtop_probe.ring import folder
from frtop_probe.ring.folder import FolderError
from frtop_tui.cli.files import require_writable
from frtop_tui.cli.run import _cannot_run
from frtop_tui.cli.settings import read_config
from frtop_tui.errors import FrtopError

ODD = "a b; $(touch x) 'q"


def missing_folder(path: Path) -> str:
    require_writable(path / "hang.cap")
    return ""


def open_key(path: Path) -> str:
    path.write_text("{}")
    path.chmod(0o644)
    keys.load(create=False)
    return ""


def broken_key(path: Path) -> str:
    path.write_text("{}")
    path.chmod(0o600)
    keys.load(create=False)
    return ""


def folder_of_others(path: Path) -> str:
    path.mkdir(mode=0o755)
    folder.folder()
    return ""


def open_configuration(path: Path) -> str:
    path.write_text("")
    path.chmod(0o666)
    read_config(path, required=True)
    return ""


def not_executable(path: Path) -> str:
    path.write_text("")
    return _cannot_run(str(path)).next_step


@pytest.mark.parametrize(
    ("cause", "command"),
    [
        (missing_folder, ["mkdir", "-p"]), (open_key, ["chmod", "600"]), (broken_key, ["mv"]),
        (folder_of_others, ["chmod", "700"]), (open_configuration, ["chmod", "go-w"]),
        (not_executable, ["chmod", "+x"]),
    ],
)  # fmt: skip
def test_a_path_is_one_word(
    cause: Callable[[Path], str], command: list[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    path = tmp_path / ODD
    monkeypatch.setenv("FRTOP_KEY_FILE", str(path))
    monkeypatch.setenv("FRTOP_DIR", str(path))
    try:
        said = cause(path)
    except FrtopError as error:
        said = error.next_step
    except (KeyProblem, FolderError) as problem:
        said = str(problem)
    pasted = said[said.index(" ".join(command)) :].partition(", or ")[0]
    assert shlex.split(pasted)[: len(command) + 1] == [*command, str(path)]


def test_a_list_that_others_may_write_is_one_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ODD).mkdir()
    monkeypatch.setenv("FRTOP_KEY_FILE", str(tmp_path / ODD / "key"))
    pair = keys.load(create=True)
    listed = pair.path.with_name(keys.AUTHORIZED)
    listed.write_text("")
    listed.chmod(0o666)
    with pytest.raises(KeyProblem) as caught:
        keys.authorized(pair)
    said = str(caught.value)
    assert shlex.split(said[said.index("chmod go-w") :]) == ["chmod", "go-w", str(listed)]
