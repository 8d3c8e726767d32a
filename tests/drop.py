"""Deletes each feature in a copy of the tree, and shows that everything else goes on without it.

`python tests/drop.py [--all] [FEATURE ...]`: without names, all features. A feature passes if the
rest is clean, typed and layered, its tests can be collected and those of the core pass, `frtop`
starts, and the demo finds its fault. `--all` runs all tests that are left, not a quick selection.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
SIDES: Final = ("probe/frtop_probe/features", "tui/frtop_tui/features", "tests/features")
QUICK: Final = ("tests/job", "tests/diagnosis")
SHOWN: Final = 12
"""Last lines of a step that fails."""
PYTHON: Final = sys.executable


def features() -> list[str]:
    """Those that have a folder on a side."""
    folders = (path for side in SIDES[:2] for path in (ROOT / side).iterdir())
    return sorted({path.name for path in folders if (path / "__init__.py").exists()})


def copy(to: Path) -> None:
    """Copies what git knows, as it is now."""
    shutil.rmtree(to, ignore_errors=True)
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.check_output(words, cwd=ROOT, text=True).split("\0"):
        if name and (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)


def delete(feature: str, tree: Path) -> None:
    """Deletes its folders, tests, page, bench, links to the page, lines in pyproject.toml."""
    for side in SIDES:
        shutil.rmtree(tree / side / feature, ignore_errors=True)
    (tree / "docs" / "features" / f"{feature}.md").unlink(missing_ok=True)
    (tree / "bench" / "features" / f"{feature}.py").unlink(missing_ok=True)
    link = re.compile(rf"\[([^\]\n]*)\]\([^)\s]*\b{feature}\.md[^)]*\)")
    for page in (tree / "README.md", *(tree / "docs").rglob("*.md")):
        page.write_text(link.sub(r"\1", page.read_text()))
    project = tree / "pyproject.toml"
    text = project.read_text()
    named = rf"frtop_(?:probe|tui)\.features\.{feature}\b"
    text = re.sub(rf'^ *"[^"\n]*{named}[^"\n]*",\n', "", text, flags=re.MULTILINE)
    text = re.sub(rf'"{named}[^"]*" *,? *', "", text)
    text = re.sub(rf'^ignore_imports = \["{named}.*\n', "", text, flags=re.MULTILINE)
    project.write_text(text)


def steps(everything: bool) -> dict[str, list[str]]:
    """The steps by name, in the order in which they cost more."""
    tests = ["tests"] if everything else list(QUICK)
    return {
        "frtop --help": [PYTHON, "-m", "frtop_tui", "--help"],
        "screens": [PYTHON, "-c", "import frtop_tui.app"],
        "ruff": [PYTHON, "-m", "ruff", "check", "-q", "."],
        "imports": [str(Path(PYTHON).with_name("lint-imports")), "--no-cache"],
        "collect": [PYTHON, "-m", "pytest", "-q", "--collect-only", "tests"],
        "mypy": [PYTHON, "-m", "mypy", "--cache-dir", "../mypy"],
        "demo": [PYTHON, "-m", "frtop_tui", "demo", "--headless"],
        "tests": [PYTHON, "-m", "pytest", "-q", "-x", "-n", "2", *tests],
    }


def failures(tree: Path, *, everything: bool) -> dict[str, str]:
    """By step what went wrong."""
    path = os.pathsep.join(str(tree / side) for side in ("tui", "probe", "tests"))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    found: dict[str, str] = {}
    for name, words in steps(everything).items():
        done = subprocess.run(
            words,
            cwd=tree,
            env=environment,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if done.returncode:
            found[name] = "\n".join(done.stdout.rstrip().splitlines()[-SHOWN:])
    return found


def main() -> int:
    """Returns 0 if all pass."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("features", nargs="*", metavar="FEATURE")
    parser.add_argument("--all", action="store_true", help="run all tests that are left")
    options = parser.parse_args()
    stopped = []
    with tempfile.TemporaryDirectory(prefix="frtop-drop-") as folder:
        for feature in options.features or features():
            tree = Path(folder) / "tree"
            copy(tree)
            delete(feature, tree)
            found = failures(tree, everything=options.all)
            said = f"stopped by {', '.join(found)}" if found else "passes"
            print(f"{feature}: {said}", flush=True)
            for name, text in found.items():
                print(f"--- {name}\n{text}", flush=True)
            if found:
                stopped.append(feature)
    return 1 if stopped else 0


if __name__ == "__main__":
    sys.exit(main())
