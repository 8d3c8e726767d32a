"""The packages: made twice they are the same, and they install and work on each Python here."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Mapping
from email.parser import BytesParser
from importlib import metadata
from pathlib import Path

import pytest

from packages.hang import ROOT, bare, clean_pythons, hanging_job
from release import dist

pytestmark = pytest.mark.timeout(3600)
TOOLS = ("build", "hatchling", "twine", "auditwheel")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if lacking := [name for name in TOOLS if importlib.util.find_spec(name) is None]:
        pytest.skip(f"no {lacking[0]}: `make venv` installs it")
    folder = tmp_path_factory.mktemp("dist")
    dist.make(folder, [])
    return folder


def wheel_in(folder: Path) -> Path:
    (found,) = folder.glob("frtop-*.whl")
    return found


def test_the_version_stands_in_one_place() -> None:
    assert metadata.version("frtop") == dist.version()
    assert dist.version() not in (ROOT / "release" / "conda" / "recipe.yaml").read_text()


def test_the_recipe_of_conda_needs_what_the_package_needs() -> None:
    recipe = (ROOT / "release" / "conda" / "recipe.yaml").read_text()
    run = recipe.partition("  run:\n")[2].partition("\n\n")[0]
    listed = {line.strip(" -").replace(" ", "") for line in run.splitlines()}
    names = {"msgpack": "msgpack-python", "ClusterShell": "clustershell"}
    wanted = {"python>=3.10"}
    for one in metadata.requires("frtop") or ():
        plain, _, marker = one.partition(";")
        name = re.match(r"[\w-]+", plain)
        if "extra ==" not in marker and name is not None:
            rest = ",".join(sorted(plain[name.end() :].split(","), reverse=True))
            wanted.add(names.get(name[0], name[0]) + rest.replace(" ", ""))
    assert listed == wanted


@pytest.mark.long
def test_the_same_commit_makes_the_same_bytes(made: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    subprocess.run(["git", "clone", "--quiet", "--shared", ROOT, copy], check=True)
    old = os.umask(0o077)
    try:
        dist.make(tmp_path / "again", [], copy)
    finally:
        os.umask(old)
    for one in made.iterdir():
        assert one.read_bytes() == (tmp_path / "again" / one.name).read_bytes(), one.name


@pytest.mark.long
def test_packages_have_the_sources_of_the_commit_and_nothing_else(made: Path) -> None:
    listed = ["git", "-C", str(ROOT), "ls-tree", "-r", "--name-only", "HEAD"]
    tree = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split("\n")
    rooms = {"probe/frtop_probe/", "tui/frtop_tui/"}
    ours = {name for name in tree if name.startswith(tuple(rooms))}
    with zipfile.ZipFile(wheel_in(made)) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        about = BytesParser().parsebytes(wheel.read(f"frtop-{dist.version()}.dist-info/METADATA"))
    assert names == {name.partition("/")[2] for name in ours}
    assert {"frtop_probe/py.typed", "frtop_tui/py.typed"} <= names
    assert about["License-Expression"] == "Apache-2.0"
    versions = {f"Programming Language :: Python :: 3.{minor}" for minor in range(10, 15)}
    assert versions <= set(about.get_all("Classifier", []))
    with tarfile.open(next(made.glob("frtop-*.tar.gz"))) as source:
        packed = {name.partition("/")[2] for name in source.getnames()}
    beside = {"README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", "PKG-INFO", ".gitignore"}
    assert packed == ours | beside


@pytest.mark.long
@pytest.mark.job
def test_it_installs_and_names_a_hang_on_every_python(made: Path, tmp_path: Path) -> None:
    """By pip, uv and pipx. It needs a package index."""
    wheel = str(wheel_in(made))
    tools = tmp_path / "tools"
    venv.create(tools, with_pip=True)
    packages = ("uv", "pipx", wheel)
    subprocess.run([tools / "bin" / "pip", "install", "--quiet", *packages], check=True)
    uv = str(tools / "bin" / "uv")
    with hanging_job(tmp_path) as pids:
        require_verdict([str(tools / "bin" / "frtop")], pids[0], tools)
        for python in clean_pythons():
            at = tmp_path / Path(python).parent.parent.name
            subprocess.run([uv, "venv", "--quiet", "--python", python, at], check=True)
            install = [uv, "pip", "install", "--quiet", "--python", str(at / "bin/python"), wheel]
            subprocess.run(install, check=True)
            require_verdict([str(at / "bin" / "frtop")], pids[0], at)
        home = tmp_path / "home"
        environment = bare(home) | {"UV_PYTHON_PREFERENCE": "only-system"}
        pinned = ["--python", sys.executable]
        require_verdict([uv, "tool", "run", *pinned, "--from", wheel, "frtop"], pids[0], home)
        install = [uv, "tool", "install", "--quiet", *pinned, wheel]
        subprocess.run(install, env=network(environment), check=True)
        require_verdict([str(home / ".local" / "bin" / "frtop")], pids[0], home)
        pipx = [str(tools / "bin" / "pipx"), "run", *pinned, "--spec", wheel, "frtop"]
        require_verdict(pipx, pids[0], home)


def network(environment: Mapping[str, str]) -> dict[str, str]:
    """With what this host needs to reach a package index."""
    names = ("_proxy", "_PROXY", "PIP_", "UV_", "SSL_CERT", "REQUESTS_CA")
    return dict(environment) | {k: v for k, v in os.environ.items() if any(n in k for n in names)}


def require_verdict(frtop: list[str], pid: int, home: Path) -> None:
    own = {"FRTOP_DIR": str(home / "frtop"), "FRTOP_BIND": "127.0.0.1"}
    (home / "frtop").mkdir(mode=0o700, parents=True, exist_ok=True)
    environment = network(bare(home) | own | {"FRTOP_AGENT_WITH": str(os.getpid())})
    words = [*frtop, "diagnose", "--json", "--wait", "30", "--pid", str(pid)]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 3, (frtop, done.stdout, done.stderr)
    (verdict,) = json.loads(done.stdout)["verdicts"]
    assert verdict["culprits"] == [1]
