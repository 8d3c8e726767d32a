"""`frtop key`: our public key, whom we admit, whom we trust."""

from __future__ import annotations

import argparse
import os
import pwd
import shlex
from typing import Final

from frtop_probe import keys
from frtop_probe.keys import AuthorizedKey, KeyPair, KeyProblem, TrustedKey, editing
from frtop_probe.keys.public import FORMATTED_LENGTH
from frtop_tui.errors import KeyTrouble, UsageError

_MAX_NAME: Final = 80
_RIGHTS: Final = {
    "read": "may look, and ask nothing of the ranks",
    "act": "may look, and ask the ranks what is in their tensors",
}


def run(options: argparse.Namespace) -> int:
    try:
        if options.act == "make":
            _make()
            return 0
        pair = keys.load(create=False)
        match options.act:
            case "admit":
                _admit(pair, options)
            case "trust":
                _trust(pair, options)
            case "remove":
                _remove(pair, options.public)
            case _:
                _show(pair)
    except KeyProblem as problem:
        raise KeyTrouble(problem.text, problem.next) from problem
    return 0


def _show(pair: KeyPair) -> None:
    """Prints what can be read first: a list that is broken must not hide the rest."""
    print(f"our key  {pair.shown}\n         {pair.path}")
    problems = []
    try:
        print("\nwe admit")
        admitted = keys.authorized(pair)
        for one in admitted:
            public = keys.format_public(one.public)
            print(f"  {one.right:4}  {public}  {_printable(one.name)}".rstrip())
        if not admitted:
            print("  nobody else; to let somebody look:   frtop key admit THEIR_KEY --read")
    except KeyProblem as problem:
        problems.append(problem)
    try:
        print("\nwe look at jobs of")
        trusted = keys.trusted(pair)
        for other in trusted:
            print(f"  {keys.format_public(other.public)}  {_printable(other.name)}".rstrip())
        if not trusted:
            print("  nobody else; once they admitted us:  frtop key trust THEIR_KEY")
    except KeyProblem as problem:
        problems.append(problem)
    if problems:
        print(flush=True)
        raise problems[0]


def _make() -> None:
    try:
        pair = keys.load(create=False)
        print(f"there is a key already; it stays\n  {pair.shown}\n  {pair.path}")
    except keys.NoKey:
        pair = keys.load(create=True)
        print(f"made a key\n  {pair.shown}\n  {pair.path}")
        print(
            "hosts where this user has another home need this very file: copy it there "
            "(chmod 600)\nto look at somebody else's jobs: give them the key above, they type\n"
            f"  frtop key admit {pair.shown} --read"
        )


def _admit(pair: KeyPair, options: argparse.Namespace) -> None:
    public = _public(pair, options.public)
    if public == pair.public:
        print("that is our own key: it may look and act anyway; nothing to do")
        return
    right: keys.Right = "read" if options.read else "act"
    one = editing.admit(pair, AuthorizedKey(public, right, _name(options.name)))
    print(
        f"admitted {_who(one)}: {_RIGHTS[right]}\n"
        f"  in {pair.path.with_name(keys.AUTHORIZED)}; agents that run heed it at once\n"
        f"\nthey type, once:\n  frtop key trust {pair.shown}{_ours()}\n"
        "and then:\n  frtop --connect 'HOSTS OF THE JOB'",
        flush=True,
    )
    keys.authorized(pair)  # raises when another line keeps all of them from being heeded


def _trust(pair: KeyPair, options: argparse.Namespace) -> None:
    public = _public(pair, options.public)
    if public == pair.public:
        print("that is our own key: we look at our own jobs anyway; nothing to do")
        return
    one = editing.trust(pair, TrustedKey(public, _name(options.name)))
    print(
        f"we look at jobs of {_who(one)}\n"
        f"  in {pair.path.with_name(keys.TRUSTED)}\n"
        f"\nthey must have admitted us; if not yet, they type:\n  frtop key admit {pair.shown}"
        f" --read{_ours()}\nthen:\n  frtop --connect 'HOSTS OF THE JOB'",
        flush=True,
    )
    keys.trusted(pair)


def _remove(pair: KeyPair, word: str) -> None:
    public = keys.parse_public(word)
    if public is None:
        found = editing.find_by_name(pair, word)
        if not found:
            raise UsageError(
                "no key that we admit or trust goes by that name", "`frtop key` lists them all"
            )
        if len(found) > 1:
            raise UsageError(
                "several keys go by that name: " + ", ".join(map(keys.format_public, found)),
                "name the key itself",
            )
        public = found[0]
    lists = editing.remove(pair, public)
    if not lists:
        raise UsageError("we neither admit nor trust that key", "`frtop key` lists them all")
    print(f"removed {keys.format_public(public)} from {' and '.join(lists)}")
    if keys.AUTHORIZED in lists:
        print(
            "agents that run refuse it from now on; a screen of theirs that is open now may "
            "show\nwhat it is sent until it is closed"
        )


def _public(pair: KeyPair, word: str) -> bytes:
    """The key that was typed; never repeated in an error: it may be the wrong half."""
    public = keys.parse_public(word)
    if public == pair.secret:
        raise UsageError(
            "that is our secret: nobody else may see it",
            f"`frtop key` shows the public key; if the secret has been seen, move {pair.path} "
            "away and make another",
        )
    if public is None:
        raise UsageError(
            "that is no public key, or not all of it",
            f"it is the word of {FORMATTED_LENGTH} characters, frtop_..., that "
            "`frtop key` shows that user",
        )
    return public


def _name(text: str) -> str:
    name = " ".join(text.split())
    if len(name) > _MAX_NAME or not name.isprintable() or "#" in name:
        raise UsageError(
            f"a name is at most {_MAX_NAME} printable characters, without #",
            "it is for people only: --name ann",
        )
    return name


def _who(one: AuthorizedKey | TrustedKey) -> str:
    shown = keys.format_public(one.public)
    return f"{_printable(one.name)} ({shown})" if one.name else shown


def _printable(text: str) -> str:
    """A list may hold what would move the cursor."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _ours() -> str:
    """What the others may call us."""
    try:
        return f" --name {shlex.quote(pwd.getpwuid(os.geteuid()).pw_name)}"
    except KeyError:
        return ""
