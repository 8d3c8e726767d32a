"""What is said of other users' ranks, and who is believed to be root's agent."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from frtop_probe import wire
from frtop_probe.agent import public_card
from frtop_probe.agent.other_users import advice, notes_of
from frtop_probe.agent.public_card import PublicCard
from frtop_probe.all_users import card_file
from frtop_probe.outside.discovery.facts import LeftAlone

CARD = PublicCard(os.getpid(), "127.0.0.1", 7677, "frtop_x")


@pytest.fixture
def run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(public_card.FOLDER, str(tmp_path))
    return tmp_path / "all-users.json"


def test_a_sentence_says_whose_ranks_they_are_and_whom_to_ask() -> None:
    (note,) = notes_of((LeftAlone(7, "ann", 9, 2), LeftAlone(8, "ben", 9, 0)), lambda: None)
    assert note.startswith("2 ranks of user ann: not looked at; ")
    assert wire.OF_OTHERS in note
    assert "frtop agent --all-users" in note


@pytest.mark.parametrize(("card", "as_root", "says"), [
    (None, False, "ann can admit you: `frtop key admit`"),
    (None, False, "root can serve all users: `frtop agent --all-users`"),
    (None, True, "runuser -u ann -- frtop jobs"),
    (CARD, False, "frtop --connect 127.0.0.1:7677"),
    (CARD, False, "`frtop key` prints yours"),
    (CARD, True, "FRTOP_KEY_FILE=/etc/frtop/key frtop --connect 127.0.0.1:7677"),
])  # fmt: skip
def test_the_next_step_depends_on_who_asks_and_on_what_runs(
    card: PublicCard | None, as_root: bool, says: str
) -> None:
    assert says in advice("ann", card, as_root=as_root)


def test_root_of_a_container_goes_in_as_that_user() -> None:
    said = advice("ann", None, as_root=True, contained=True)
    assert "--via 'docker exec -u ann -i {host} sh'" in said
    assert "runuser" not in said


@pytest.mark.skipif(os.geteuid() != 0, reason="the card is root's")
def test_the_card_of_roots_agent_is_believed(run_folder: Path) -> None:
    assert public_card.read() is None
    card_file.write(CARD)
    assert public_card.read() == CARD
    assert run_folder.stat().st_mode & 0o777 == 0o644
    card_file.remove()
    assert public_card.read() is None


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other users")
def test_a_card_that_others_could_have_written_is_not(run_folder: Path) -> None:
    card_file.write(CARD)
    run_folder.chmod(0o666)
    assert public_card.read() is None
    run_folder.chmod(0o644)
    os.chown(run_folder, 65534, 65534)
    assert public_card.read() is None
    os.chown(run_folder, 0, 0)
    assert public_card.read() == CARD
    for broken in (b"", b"[]", b"{", json.dumps({"pid": 1, "address": "x; rm"}).encode()):
        run_folder.write_bytes(broken)
        assert public_card.read() is None
    run_folder.unlink()
    run_folder.symlink_to("/etc/passwd")
    assert public_card.read() is None


def test_an_agent_that_has_ended_has_no_card(run_folder: Path) -> None:
    card_file.write(PublicCard(2**22 - 1, "127.0.0.1", 7677, "frtop_x"))
    assert public_card.read() is None
