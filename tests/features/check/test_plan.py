"""Plans as files and as words: their keys, their values, and what is said of mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from frtop_tui.errors import FrtopError
from frtop_tui.features.check.plan import Figures, dotted, plan_of_words, read_plan

PLAN = """
[job]
world-size = 8

[settings]
OMP_NUM_THREADS = "1"
NCCL_P2P_DISABLE = "not set"

[groups."unnamed of 2"]
ranks = 2

[step]
seconds = [0.5, 1.5]
other-ops = false

[ops.mesh_dp]
all_gather = {}

[ops.mesh_dp.all_reduce]
count = 3
dtypes = ["bfloat16"]
"""


def test_a_plan_has_what_its_file_says(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(PLAN)
    plan = read_plan(tmp_path / "plan.toml")
    assert {one.key: one.value for one in plan.expectations} == {
        "job.world-size": Figures(8, 8),
        "settings.OMP_NUM_THREADS": "1",
        "settings.NCCL_P2P_DISABLE": "not set",
        'groups."unnamed of 2".ranks': Figures(2, 2),
        "step.seconds": Figures(0.5, 1.5),
        "step.other-ops": False,
        "ops.mesh_dp.all_reduce.count": Figures(3, 3),
        "ops.mesh_dp.all_reduce.dtypes": frozenset({"bfloat16"}),
    }
    assert plan.ops == {("mesh_dp", "all_gather"), ("mesh_dp", "all_reduce")}


FIGURES = "takes a number of at least 0, or a range"
COUNT = "ops.mesh_dp.all_reduce"
NAMELESS = 'groups."unnamed of 2"'
MISTAKES = [
    ("world-size", "world_sise", 3, "no key job.world_sise", "did you mean job.world-size?"),
    ("[step]", "[steps]", 12, "no key steps", "did you mean step?"),
    ("count", "number", 20, f"no key {COUNT}.number", "known: count, bytes, dtypes"),
    ("ranks = 2", "rank = 2", 10, f"no key {NAMELESS}.rank", f"did you mean {NAMELESS}.ranks?"),
    ("[0.5, 1.5]", "[1.5, 0.5]", 13, f"step.seconds {FIGURES}", "docs/features/check.md"),
    ("[0.5, 1.5]", '"1 s"', 13, f"step.seconds {FIGURES}", "docs/features/check.md"),
    ("count = 3", "count = true", 20, f"{COUNT}.count {FIGURES}", "docs/features/check.md"),
    ('["bfloat16"]', "[16]", 21, f"{COUNT}.dtypes takes names", "docs/features/check.md"),
    ("false", '"no"', 14, "step.other-ops takes true or false", "docs/features/check.md"),
    ("= {}", "= 3", 17, "ops.mesh_dp.all_gather is no table", "write [ops.NAME.NAME]"),
    ('"1"', "1.", 6, "Expected newline", "names and text need quotes"),
]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_with_its_line(
    mistake: tuple[str, str, int, str, str], tmp_path: Path
) -> None:
    was, now, line, told, step = mistake
    path = tmp_path / "plan.toml"
    path.write_text(PLAN.replace(was, now, 1))
    with pytest.raises(FrtopError) as error:
        read_plan(path)
    assert str(path) in error.value.text
    assert f"line {line}" in error.value.text
    assert told in error.value.text
    assert step in error.value.next_step
    assert error.value.exit_status == 2


@pytest.mark.parametrize("content", [b"\xff\xfe", b"a = " + b"[" * 9000, b"#" * 2_000_000])
def test_what_is_no_plan_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_bytes(content)
    with pytest.raises(FrtopError, match=r"plan\.toml"):
        read_plan(tmp_path / "plan.toml")


def test_words_need_no_quotes() -> None:
    words = ["job.world-size=8", "settings.torch=2.13.0", "settings.OMP_NUM_THREADS=01",
             "ops.dp.all_reduce.dtypes=bfloat16", "step.seconds=[1, 2.5]",
             'groups."unnamed of 2".backend=gloo', "settings.X=a=b"]  # fmt: skip
    assert [(dotted(one.path), one.value) for one in plan_of_words(words).expectations] == [
        ("job.world-size", Figures(8, 8)),
        ("settings.torch", "2.13.0"),
        ("settings.OMP_NUM_THREADS", "01"),
        ("ops.dp.all_reduce.dtypes", frozenset({"bfloat16"})),
        ("step.seconds", Figures(1, 2.5)),
        ('groups."unnamed of 2".backend', "gloo"),
        ("settings.X", "a=b"),
    ]


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("world-size", "no KEY=VALUE"),
        ("job.world size=3", "job.world size is not a key"),
        ("job.wordl-size=3", "--expect job.wordl-size=3: no key job.wordl-size"),
        ("step=5%", "step is no table"),
    ],
)
def test_a_wrong_word_is_named(word: str, told: str) -> None:
    with pytest.raises(FrtopError, match=told) as error:
        plan_of_words([word])
    assert error.value.exit_status == 2
