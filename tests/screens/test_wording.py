"""How values read, and how lines are cut, wrapped and compared."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.diagnosis.judged import Frame
from frtop_tui.job.model import Health, RankState
from frtop_tui.job.stack_frames import is_user_code, short_file, user_frame_index
from frtop_tui.widgets import spans, wording
from frtop_tui.widgets.grid_layout import lay_out, natural, short_hosts
from frtop_tui.widgets.groups import rows_of, state_of
from frtop_tui.widgets.headline import folded_hosts, health_line
from frtop_tui.widgets.rank_table import cpu_share
from frtop_tui.widgets.spans import (
    TONES,
    changed_columns,
    clip,
    fit,
    spread,
    text_of,
    width_of,
    wrap,
)
from frtop_tui.widgets.verdict import no_verdict, status, verdict_lines

from . import scenes
from .scenes import S


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0.0s"),
        (0.29, "0.2s"),
        (9.99, "9.9s"),
        (12.9, "12s"),
        (59.9, "59s"),
        (60, "1m00s"),
        (252, "4m12s"),
        (3600, "1h00m"),
        (11520, "3h12m"),
        (86400, "1d00h"),
        (-1, "0.0s"),
    ],
)
def test_ages_never_run_ahead(seconds: float, words: str) -> None:
    assert wording.age(seconds) == words


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.3, "<1s"), (1.9, "1s"), (9.9, "9s"), (12.5, "12s"), (61, "1m01s")]
)
def test_ages_in_tables_do_not_flicker(seconds: float, words: str) -> None:
    assert wording.calm(seconds) == words


@pytest.mark.parametrize(
    ("nanoseconds", "words"),
    [
        (350_000, "350 us"),
        (18_200_000, "18.2 ms"),
        (2_350_000_000, "2.35 s"),
        (252 * S, "4m12s"),
    ],
)
def test_durations_have_the_unit_that_fits(nanoseconds: int, words: str) -> None:
    assert wording.duration(nanoseconds) == words


@pytest.mark.parametrize(
    ("size", "words"), [(0, "0 B"), (1536, "1.5 K"), (41 << 30, "41 G"), (3 << 40, "3.0 T")]
)
def test_sizes(size: int, words: str) -> None:
    assert wording.amount(size) == words


def test_tensors_say_dtype_shape_and_how_many_more() -> None:
    one = wire.TensorSpec("torch.bfloat16", (4096, 8192))
    assert wording.tensors((one,)) == "bf16[4096,8192]"
    assert wording.tensors((wire.TensorSpec("int64", (1,), count=8), one)) == "i64[1]x8 +1"
    assert wording.tensors(None) == wording.tensors(()) == ""
    assert wording.tensors((wire.TensorSpec("float8_e4m3fn", ()),)) == "float8_e4m3fn[]"


def test_an_op_says_its_peer_or_root() -> None:
    recv = wire.Op(1, 1, 0, wire.Signature("recv", peer=3), None, 0)
    send = wire.Op(1, 1, 0, wire.Signature("send", peer=3), None, 0)
    cast = wire.Op(1, 1, 7, wire.Signature("broadcast", root=0), None, 0)
    assert wording.kind(recv) == "recv <-3"
    assert wording.kind(send) == "send ->3"
    assert wording.kind(cast) == "broadcast root 0"
    assert wording.kind(wire.Op(1, 1, 7, None, None, 0)) == "unknown op"


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (wire.ExitInfo(1), "process gone, cause unknown"),
        (wire.ExitInfo(1, clean=True), "left cleanly"),
        (wire.ExitInfo(1, exit_code=1), "ended with exit code 1"),
        (
            wire.ExitInfo(1, signal=9, oom_kills=1),
            "ended by signal 9, 1 oom kills in its cgroup then",
        ),
    ],
)
def test_an_ending_claims_no_more_than_is_known(end: wire.ExitInfo, words: str) -> None:
    assert wording.ending(end) == words


def test_folded_ranks_are_cut_between_ranges() -> None:
    assert wording.cut("0-36,38-63", 20) == "0-36,38-63"
    assert wording.cut("0-36,38-63,70", 9) == "0-36,.."


def test_text_is_fitted_to_cells_not_characters() -> None:
    assert fit("abc", 5) == "abc  "
    assert fit("abc", 5, right=True) == "  abc"
    assert fit("abcdef", 4) == "abc~"
    assert width_of(((fit("日本語データ", 7), ""),)) == 7


def test_a_clipped_line_shows_that_something_is_missing() -> None:
    line = (("rank 37", "strong"), (" late", "late"))
    assert text_of(clip(line, 80)) == "rank 37 late"
    assert text_of(clip(line, 10)) == "rank 37 l~"
    assert text_of(clip(line, 7)) == "rank 3~"


def test_spread_lets_the_left_side_give_way() -> None:
    line = spread((("left side", ""),), (("right", ""),), 12)
    assert text_of(line) == "left ~ right"


def test_wrapped_text_stands_under_its_label_and_ranges_stay_whole() -> None:
    rows = wrap("ranks 0-36,38-63 wait for it", 22, first=("why   ", "dim"))
    assert [text_of(row) for row in rows] == ["why   ranks 0-36,38-63", "      wait for it"]


def test_only_the_cells_that_differ_are_repainted() -> None:
    old = (("37 ", ""), ("late ", "late"), ("4m11s", ""))
    new = (("37 ", ""), ("late ", "late"), ("4m12s", ""))
    assert changed_columns(old, new) == [(8, 5)]
    assert changed_columns(old, old) == []
    assert changed_columns(old, (("37 ", ""), ("late ", "dim"), ("4m12s", ""))) == [(3, 5), (8, 5)]


def test_a_cell_of_another_width_repaints_the_rest_of_its_line() -> None:
    assert changed_columns((("ab", ""), ("cd", "")), (("abc", ""), ("d", ""))) == [(0, 4)]
    assert changed_columns((("ab", ""), ("cd", "")), (("ab", ""),)) == [(2, 2)]
    assert changed_columns((), (("ab", ""),)) == [(0, 2)]


def test_the_users_line_is_the_innermost_outside_of_what_is_installed() -> None:
    assert user_frame_index(scenes.LOADING) == 6
    assert user_frame_index(scenes.PINNING) is None
    assert not is_user_code(scenes.frame_of("run", "<frozen importlib>", 1))
    assert not is_user_code(scenes.frame_of("f", "torch/nn/functional.py", 1))


def test_files_are_shortened_to_what_finds_them() -> None:
    assert short_file("/opt/v/lib/python3.12/site-packages/torch/_tensor.py") == "torch/_tensor.py"
    assert short_file("/usr/lib/python3.12/queue.py") == "queue.py"
    assert short_file("/home/ml/llama/train.py") == "train.py"


def test_hosts_are_folded_and_odd_addresses_left_alone() -> None:
    assert folded_hosts(("node0", "node1", "node2")) == "node[0-2]"
    assert folded_hosts(()) == ""


def test_hosts_lose_their_domain_only_while_they_differ() -> None:
    assert short_hosts(["a.x.org", "b.x.org"]) == {"a.x.org": "a", "b.x.org": "b"}
    assert short_hosts(["a.x.org", "a.y.org"]) == {"a.x.org": "a.x.org", "a.y.org": "a.y.org"}
    assert sorted(["n10", "n9"], key=natural) == ["n9", "n10"]


def test_every_rank_has_its_own_place_in_the_grid() -> None:
    for ranks_per_host, width in ((8, 78), (8, 58), (4, 20), (200, 78), (1, 10)):
        hosts = {f"node{h}": range(h * ranks_per_host, (h + 1) * ranks_per_host) for h in range(20)}
        layout = lay_out(hosts, width)
        assert len(set(layout.places.values())) == 20 * ranks_per_host
        assert max(x for _, x in layout.places.values()) < width


def test_cpu_is_known_only_from_two_looks() -> None:
    old = wire.Snapshot(1, 10**9, processes=(wire.Process(7, "R", cpu_ns=0),))
    new = wire.Snapshot(1, 3 * 10**9, processes=(wire.Process(7, "R", cpu_ns=10**9),))
    assert cpu_share(new, old, 7) == pytest.approx(0.5)
    assert cpu_share(new, None, 7) is None
    assert cpu_share(new, old, 8) is None
    assert cpu_share(old, new, 7) is None


def test_quiet_groups_of_a_kind_fold_and_troubled_ones_stand_first() -> None:
    rows = rows_of(scenes.hung().groups)
    assert [row.label for row in rows] == ["dp:0", "tp:* x8"]
    assert state_of(rows[0], scenes.NOW) == ("1 late, 63 wait", "late")
    assert state_of(rows_of(scenes.healthy().groups)[0], scenes.NOW) == ("active", "moving")


def test_a_verdict_without_anything_but_a_headline_can_be_read() -> None:
    verdict = replace(scenes.hung().verdicts[0], evidence=(), next="")
    bare = replace(verdict, why=replace(verdict.why, text=""), since_ns=0)
    assert len(verdict_lines(bare, 200)) == 1
    assert status(bare, scenes.NOW) == "not entered · confirmed · no progress"


def test_a_layer_is_said_once() -> None:
    verdict = scenes.hung().verdicts[0]
    said = replace(verdict, why=replace(verdict.why, text="data: a worker reads"))
    assert text_of(verdict_lines(said, 200)[1]) == "why   data: a worker reads"


def test_without_a_verdict_only_what_was_heard_is_said() -> None:
    healthy = scenes.healthy()
    assert no_verdict(healthy) == "no verdict: all 64 ranks moving"
    partly = replace(healthy, coverage=replace(healthy.coverage, unheard=(64, 65)))
    assert no_verdict(partly) == "no verdict: 64 moving, 2 never heard"
    assert no_verdict(Frame(1, 1)) == "connecting: nothing heard yet"


@pytest.mark.parametrize("posture", get_args(RankState))
def test_every_posture_has_a_letter_a_meaning_and_a_tone(posture: RankState) -> None:
    assert wording.LETTERS[posture]
    assert wording.MEANINGS[posture]
    assert posture in TONES
    assert f".tone--{posture} " in (Path(spans.__file__).parent / "tones.tcss").read_text()


def test_no_two_postures_share_a_letter() -> None:
    assert len(set(wording.LETTERS.values())) == len(get_args(RankState))


@pytest.mark.parametrize("health", get_args(Health))
def test_every_health_has_a_tone(health: Health) -> None:
    assert wording.HEALTH_TONE[health] in TONES


def test_a_wait_is_no_longer_than_those_who_waited() -> None:
    frame = scenes.hung()
    later = replace(frame, now_ns=frame.now_ns + 3600 * S)
    gone = {
        rank: replace(view, state="dead", state_since_ns=frame.now_ns)
        for rank, view in frame.ranks.items()
    }
    over = replace(later, ranks=gone)
    assert "HUNG 4m12s" in spans.text_of(health_line(over))
    assert "HUNG 1h04m" in spans.text_of(health_line(later))
