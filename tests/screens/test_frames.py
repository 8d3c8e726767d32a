"""Which frames are the user's own, and how files are shortened."""

from __future__ import annotations

from frtop_tui.job.stack_frames import is_user_code, short_file, user_frame_index

from . import scenes


def test_the_users_frame_is_the_innermost_outside_installed_code() -> None:
    assert user_frame_index(scenes.LOADING) == 6
    assert user_frame_index(scenes.PINNING) is None
    assert not is_user_code(scenes.frame_of("run", "<frozen importlib>", 1))
    assert not is_user_code(scenes.frame_of("f", "torch/nn/functional.py", 1))


def test_files_are_shortened_below_their_packages() -> None:
    assert short_file("/opt/v/lib/python3.12/site-packages/torch/_tensor.py") == "torch/_tensor.py"
    assert short_file("/usr/lib/python3.12/queue.py") == "queue.py"
    assert short_file("/home/ml/llama/train.py") == "train.py"
