"""The archive of sources and the wheel: built, installed where nothing else of the project is, and used.

The empty environment finds torch and its like where this interpreter has them, by a line in a .pth file; an editable
install there is not followed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest

import vgraph
from tests.test_architecture import PROJECT, project_files

FROM_PROJECT = ("vgraph/", "kernels/", "tests/test_", "MANIFEST.in", "pyproject.toml", "README.md", "LICENSE")
SUFFIXES = (".py", ".h", ".cuh", "py.typed")


def run(command: list[str | Path], folder: Path) -> str:
    """What a command prints; it runs in ``folder``, and knows nothing of where the project lies."""
    known = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    done = subprocess.run(command, cwd=folder, env=known, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(kind: str, sources: Path, folder: Path) -> Path:
    """An "sdist" or a "wheel" of ``sources``, by the project's own build backend."""
    code = f"from setuptools.build_meta import build_{kind} as build; print(build({str(folder)!r}))"
    return folder / run([sys.executable, "-c", code], sources).splitlines()[-1]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of sources."""
    folder = tmp_path_factory.mktemp("dist")
    for name in project_files():
        if name.startswith(FROM_PROJECT):
            (folder / "project" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(PROJECT / name, folder / "project" / name)
    return build("sdist", folder / "project", folder)


@pytest.fixture(scope="module")
def wheel(sources: Path) -> Path:
    """The wheel that the archive of sources gives."""
    with tarfile.open(sources) as archive:
        archive.extractall(sources.parent / "unpacked", filter="data")
    return build("wheel", sources.parent / "unpacked" / f"vgraph-{vgraph.__version__}", sources.parent)


def empty_environment(wheel: Path, folder: Path) -> Path:
    """The programs of an environment that has the wheel."""
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    run([sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel], folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(f"{Path(np.__file__).parents[1]}\n", encoding="utf-8")
    return folder / "bin"


def test_the_archive_of_sources_has_no_part_of_the_tests(sources: Path) -> None:
    """Setuptools packs ``tests/test_*.py`` by itself, which without what they import cannot run."""
    with tarfile.open(sources) as archive:
        folders = {Path(name).parts[1] for name in archive.getnames() if len(Path(name).parts) > 2}
    assert folders == {"vgraph", "kernels", "vgraph.egg-info"}


def test_the_wheel_has_every_file_of_the_packages(wheel: Path) -> None:
    wanted = {name.removeprefix("kernels/") for name in project_files() if name.startswith(("vgraph/", "kernels/"))}
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert packed == {name for name in wanted if name.endswith(SUFFIXES)}


def test_a_bare_machine_imports_it_and_runs_its_command_and_an_example(wheel: Path, tmp_path: Path) -> None:
    programs = empty_environment(wheel, tmp_path)
    where = run(
        [programs / "python", "-c", "import importlib.util as u; print(u.find_spec('vgraph').origin)"], tmp_path
    )
    assert Path(where.strip()).is_relative_to(tmp_path)
    assert vgraph.__version__ in run([programs / "vgraph", "info"], tmp_path)
    assert run([programs / "python", PROJECT / "examples" / "tree_fc.py", "--smoke"], tmp_path).strip()
