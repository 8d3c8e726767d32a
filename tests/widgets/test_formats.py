"""Tensors, ops, exits and lists of ranks as text."""

from __future__ import annotations

import pytest

from frtop_probe import wire
from frtop_tui.text import rank_words
from frtop_tui.text.rank_words import format_tensors
from frtop_tui.widgets.spans import shorten_ranks


def test_tensors_show_dtype_shape_and_how_many_more() -> None:
    one = wire.TensorSpec("torch.bfloat16", (4096, 8192))
    assert format_tensors((one,)) == "bf16[4096,8192]"
    assert format_tensors((wire.TensorSpec("int64", (1,), count=8), one)) == "i64[1]x8 +1"
    assert format_tensors(None) == format_tensors(()) == ""
    assert format_tensors((wire.TensorSpec("float8_e4m3fn", ()),)) == "float8_e4m3fn[]"


def test_an_op_shows_its_peer_or_root() -> None:
    recv = wire.Op(1, 1, 0, wire.Signature("recv", peer=3), None, 0)
    send = wire.Op(1, 1, 0, wire.Signature("send", peer=3), None, 0)
    cast = wire.Op(1, 1, 7, wire.Signature("broadcast", root=0), None, 0)
    assert rank_words.op_kind(recv) == "recv <-3"
    assert rank_words.op_kind(send) == "send ->3"
    assert rank_words.op_kind(cast) == "broadcast root 0"
    assert rank_words.op_kind(wire.Op(1, 1, 7, None, None, 0)) == "unknown op"


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (wire.ExitInfo(1), "process gone, cause unknown"),
        (wire.ExitInfo(1, clean=True), "exited cleanly"),
        (wire.ExitInfo(1, exit_code=1), "ended with exit status 1"),
        (
            wire.ExitInfo(1, signal=9, oom_kills=1),
            "ended by signal 9, 1 OOM kill in its cgroup meanwhile",
        ),
    ],
)
def test_an_exit_claims_no_more_than_is_known(end: wire.ExitInfo, words: str) -> None:
    assert rank_words.format_exit(end) == words


def test_folded_ranks_are_cut_between_ranges() -> None:
    assert shorten_ranks("0-36,38-63", 20) == "0-36,38-63"
    assert shorten_ranks("0-36,38-63,70", 9) == "0-36,.."
