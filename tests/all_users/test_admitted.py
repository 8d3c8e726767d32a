"""Root's list: who may see whose ranks, and what is wrong with a line."""

from __future__ import annotations

from pathlib import Path

import pytest
import zmq

from frtop_probe.all_users.admitted import AdmittedKeys, parse, read
from frtop_probe.keys import KeyProblem, format_public

BOB, CAROL = zmq.curve_keypair()[0], zmq.curve_keypair()[0]
UIDS = {"ann": 1001, "ben": 1002}


def parsed(*lines: str) -> AdmittedKeys:
    shown = [
        line.replace("BOB", format_public(BOB)).replace("CAROL", format_public(CAROL))
        for line in lines
    ]
    return parse(shown, "admitted", UIDS.get)


def test_a_key_has_a_right_on_the_ranks_of_the_users_that_are_named() -> None:
    bob = parsed("BOB read ann,ben bob", "BOB act 77 bob").keys[BOB]
    assert (bob.right(1001), bob.right(1002), bob.right(77), bob.right(78)) == (
        "read", "read", "act", None,
    )  # fmt: skip
    assert bob.most == "act"
    assert bob.name == "bob"


def test_everybody_is_a_star_and_a_named_user_may_have_another_right() -> None:
    bob = parsed("BOB read * bob on call", "BOB act ann bob").keys[BOB]
    assert (bob.right(1001), bob.right(1002)) == ("act", "read")
    assert bob.name == "bob on call"


@pytest.mark.parametrize("lines", [
    ("BOB act ann bob", "BOB read ann bob"), ("BOB read ann bob", "BOB act ann bob"),
])  # fmt: skip
def test_where_lines_contradict_each_other_the_lesser_right_counts(lines: tuple[str, ...]) -> None:
    assert parsed(*lines).keys[BOB].right(1001) == "read"


def test_comments_blank_lines_and_unknown_users() -> None:
    found = parsed("# on call", "", "BOB read ann,nobody-here bob  # since May", "CAROL act zoe c")
    assert found.unknown == ("nobody-here", "zoe")
    assert found.keys[BOB].name == "bob"
    assert [one.public for one in found.authorized()] == [BOB]  # carol would see nobody


@pytest.mark.parametrize(("line", "says"), [
    ("frtop_broken read ann bob", "'frtop_broken' is no public key"),
    ("BOB ann bob", "neither `read` nor `act`"),
    ("BOB all ann bob", "neither `read` nor `act`"),
    ("BOB read ann", "a name of who has the key is missing"),
    ("BOB read", "a name of who has the key is missing"),
])  # fmt: skip
def test_a_broken_line_is_named_by_its_number(line: str, says: str) -> None:
    with pytest.raises(KeyProblem) as caught:
        parsed("# first", "CAROL read ann carol", line)
    assert caught.value.text.startswith("admitted, line 3: ")
    assert says in caught.value.text
    assert "PUBLIC read|act USERS NAME" in caught.value.next


def test_a_list_that_others_may_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "admitted"
    assert read(file) == AdmittedKeys()
    file.write_text(f"{format_public(BOB)} read root bob\n")
    file.chmod(0o644)
    with pytest.raises(KeyProblem, match="chmod 600"):
        read(file)
    file.chmod(0o600)
    assert read(file).keys[BOB].right(0) == "read"
