"""What a user is told when keys cannot be used as they are."""

from __future__ import annotations


class KeyProblem(Exception):
    """The keys cannot be used as they are; `next` says what to do about it."""

    def __init__(self, text: str, next_step: str) -> None:
        super().__init__(f"{text}\n{next_step}")
        self.text = text
        self.next = next_step


class NoKey(KeyProblem):
    """There is no key file yet."""
