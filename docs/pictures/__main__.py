"""Draws the pictures in this folder with the program: `python -m docs.pictures`.

`--live SCENE` shows a scene in the terminal instead, to try its keys.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "tests"))

from connect.scripted_source import ScriptedSource  # noqa: E402
from frtop_tui.app import FrtopApp, run_app  # noqa: E402
from frtop_tui.terminal import end  # noqa: E402
from screens.answer_scenes import SCENES as PREPARED  # noqa: E402
from screens.lane_scenes import SCENES as LANES  # noqa: E402
from screens.mesh_scenes import SCENES as ON_A_MESH  # noqa: E402
from screens.statistics_scenes import SCENES as STATISTICS  # noqa: E402
from screens.unprepared_scenes import SCENES as UNPREPARED  # noqa: E402

SCENES = {**PREPARED, **STATISTICS, **UNPREPARED, **LANES, **ON_A_MESH}

PICTURES = {
    "overview": ("hung", (100, 28), ()),
    "overview-80x24": ("hung", (80, 24), ()),
    "overview-200x60": ("hung", (200, 60), ()),
    "rank": ("hung", (120, 32), ("enter",)),
    "rank-80x24": ("hung", (80, 24), ("enter",)),
    "ranks": ("hung", (120, 28), ("2",)),
    "stacks": ("hung", (100, 20), ("4",)),
    "group": ("mesh_hung", (120, 30), ("shift+tab", "enter")),
    "group-80x24": ("mesh_hung", (80, 24), ("shift+tab", "enter")),
    "group-200x60": ("mesh_hung", (200, 60), ("shift+tab", "enter")),
    "waits": ("mesh_hung", (110, 24), ("w",)),
    "waits-80x24": ("mesh_hung", (80, 24), ("w",)),
    "waits-200x60": ("mesh_hung", (200, 60), ("w",)),
    "slow": ("mesh_slow_told", (120, 32), ()),
    "slow-80x24": ("mesh_slow_told", (80, 24), ()),
    "slow-200x60": ("mesh_slow_told", (200, 60), ()),
    "lens": ("mesh_slow_told", (100, 28), ("v", "v", "v")),
    "lens-80x24": ("mesh_slow_told", (80, 24), ("v", "v", "v")),
    "lens-200x60": ("mesh_slow_told", (200, 60), ("v", "v", "v")),
    "tensors": ("hung", (100, 24), ("slash", *"rank:12", "enter", "t")),
    "hosts": ("hosts", (120, 28), ("3",)),
    "hosts-80x24": ("hosts", (80, 24), ("3",)),
    "hosts-200x60": ("hosts", (200, 60), ("3",)),
    "jobs": ("jobs", (100, 16), ("J",)),
    "recorded": ("recorded", (100, 28), ()),
    "statistics": ("straggling", (120, 26), ("5",)),
    "statistics-80x24": ("straggling", (80, 24), ("5",)),
    "statistics-200x60": ("straggling", (200, 60), ("5", "v", "v", "v")),
    "command": ("hung", (80, 24), ("colon", *"r")),
    "help": ("hung", (100, 36), ("question_mark",)),
    "dead-rank": ("dead", (120, 32), ("enter",)),
    "unprepared": ("unprepared", (100, 24), ()),
    "timeline": ("phases", (120, 24), ("T", "p")),
    "timeline-80x24": ("phases", (80, 24), ("T", "p")),
    "timeline-200x60": ("phases", (200, 60), ("T", "p")),
    "timeline-hung": ("hung", (120, 24), ("T",)),
    "timeline-op": ("trains", (120, 24), ("T", "p", "o")),
    "queues": ("differs", (120, 24), ("2", *("space",) * 8, "c")),
    "queues-80x24": ("differs", (80, 24), ("2", *("space",) * 8, "c")),
    "queues-200x60": ("differs", (200, 60), ("2", *("space",) * 8, "c")),
}
"""By name of the picture: scene, terminal size, keys to press."""
NEXT_SCENE = {"tensors": "tensors", "stacks": "all_stacks"}
"""The scene to show after the keys were pressed."""


async def draw(
    scene: str, size: tuple[int, int], keys: tuple[str, ...], next_scene: str = ""
) -> str:
    """Returns one picture as SVG."""
    source = ScriptedSource([SCENES[scene]()])
    app = FrtopApp(source, auto_capture=False)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        for key in keys:
            await pilot.press(key)
            await pilot.pause()
        if next_scene:
            source.give(SCENES[next_scene]())
            app.tick()
        await pilot.pause(0.3)
        return app.export_screenshot(title=f"frtop {size[0]}x{size[1]}", simplify=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m docs.pictures", description=__doc__)
    parser.add_argument("--live", metavar="SCENE", choices=sorted(SCENES))
    parser.add_argument("only", nargs="*", metavar="NAME", help="draw these only")
    options = parser.parse_args()
    if options.live:
        return end(run_app(ScriptedSource([SCENES[options.live]()]), auto_capture=False))
    for name in options.only or PICTURES:
        drawn = asyncio.run(draw(*PICTURES[name], NEXT_SCENE.get(name, "")))
        # Rich draws random ids: a picture must change only with the program.
        drawn = re.sub(r"terminal-\d+", f"frtop-{name}", drawn)
        (HERE / f"{name}.svg").write_text(drawn, encoding="utf-8")
        sys.stdout.write(f"{name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
