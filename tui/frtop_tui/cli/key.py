"""`frtop key`: shows and changes our key, and the lists of keys that we admit and trust."""

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
from frtop_tui.job.naming import printable

_MAX_NAME: Final = 80
_RIGHTS: Final = {
    "read": "may look, but not ask the ranks for tensors",
    "act": "may look, and ask the ranks for tensors",
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


def without_dash(word: str) -> str:
    """A z85 key that begins with a dash in its other form; any other word is unchanged.

    argparse takes it for an option.
    """
    public = keys.parse_public(word) if word.startswith("-") else None
    return keys.format_public(public) if public is not None else word


def _show(pair: KeyPair) -> None:
    """Prints both lists; if one is invalid, it raises after printing the other one."""
    print(f"our key  {pair.shown}\n         {pair.path}")
    problems = []
    try:
        print("\nwe admit")
        admitted = keys.authorized(pair)
        for one in admitted:
            shown = keys.format_public(one.public)
            print(f"  {one.right:4}  {shown}  {printable(one.name)}".rstrip())
        if not admitted:
            print("  nobody else; to let a user look:  frtop key admit THEIR_KEY --read")
    except KeyProblem as problem:
        problems.append(problem)
    try:
        print("\nwe look at jobs of")
        trusted = keys.trusted(pair)
        for other in trusted:
            print(f"  {keys.format_public(other.public)}  {printable(other.name)}".rstrip())
        if not trusted:
            print("  nobody else; after they have admitted us:  frtop key trust THEIR_KEY")
    except KeyProblem as problem:
        problems.append(problem)
    if problems:
        print(flush=True)
        raise problems[0]


def _make() -> None:
    try:
        pair = keys.load(create=False)
        print(f"you already have a key; it is unchanged\n  {pair.shown}\n  {pair.path}")
    except keys.NoKey:
        pair = keys.load(create=True)
        print(f"made a key\n  {pair.shown}\n  {pair.path}")
        print(
            "hosts where this user has another home need this same file: copy it there "
            "(chmod 600)\nto look at another user's jobs: give them the key above, they run\n"
            f"  frtop key admit {pair.shown} --read"
        )


def _admit(pair: KeyPair, options: argparse.Namespace) -> None:
    public = _public(pair, options.public)
    if public == pair.public:
        print("that is our own key, which is always admitted; nothing to do")
        return
    right: keys.Right = "read" if options.read else "act"
    one = editing.admit(pair, AuthorizedKey(public, right, _name(options.name)))
    print(
        f"admitted {_who(one)}: {_RIGHTS[right]}\n"
        f"  in {pair.path.with_name(keys.AUTHORIZED)}; running agents apply it at once\n"
        f"\nthey run, once:\n  frtop key trust {pair.shown}{_ours()}\n"
        "and then:\n  frtop --connect 'HOSTS OF THE JOB'",
        flush=True,
    )
    keys.authorized(pair)  # raises when an invalid line makes agents ignore the list


def _trust(pair: KeyPair, options: argparse.Namespace) -> None:
    public = _public(pair, options.public)
    if public == pair.public:
        print("that is our own key, whose jobs we can always look at; nothing to do")
        return
    one = editing.trust(pair, TrustedKey(public, _name(options.name)))
    print(
        f"now trusted: the jobs of {_who(one)}\n"
        f"  in {pair.path.with_name(keys.TRUSTED)}\n"
        f"\nthey must have admitted us; if not yet, they run:\n  frtop key admit {pair.shown}"
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
                "no key that we admit or trust has that name", "`frtop key` lists them all"
            )
        if len(found) > 1:
            raise UsageError(
                "several keys have that name: " + ", ".join(map(keys.format_public, found)),
                "give the key itself",
            )
        public = found[0]
    lists = editing.remove(pair, public)
    if not lists:
        raise UsageError("we neither admit nor trust that key", "`frtop key` lists them all")
    print(f"removed {keys.format_public(public)} from {' and '.join(lists)}")
    if keys.AUTHORIZED in lists:
        print(
            "running agents refuse it from now on; a screen that is already open may show\n"
            "updates until it is closed"
        )


def _public(pair: KeyPair, word: str) -> bytes:
    """The typed key. Errors never repeat it: it may be secret."""
    public = keys.parse_public(word)
    if public == pair.secret:
        raise UsageError(
            "that is our secret key: nobody else may see it",
            f"`frtop key` shows the public key; if others have seen the secret, move {pair.path} "
            "away and make another key",
        )
    if public is None:
        raise UsageError(
            "that is not a public key, or not all of it",
            f"a public key has {FORMATTED_LENGTH} characters, frtop_...; `frtop key` shows it to "
            "its user",
        )
    return public


def _name(text: str) -> str:
    name = " ".join(text.split())
    if len(name) > _MAX_NAME or not name.isprintable() or "#" in name:
        raise UsageError(
            f"a name is at most {_MAX_NAME} printable characters, without #",
            "for example --name ann",
        )
    return name


def _who(one: AuthorizedKey | TrustedKey) -> str:
    shown = keys.format_public(one.public)
    return f"{printable(one.name)} ({shown})" if one.name else shown


def _ours() -> str:
    """`--name` with our user name, for the command that the others run."""
    try:
        return f" --name {shlex.quote(pwd.getpwuid(os.geteuid()).pw_name)}"
    except KeyError:
        return ""
