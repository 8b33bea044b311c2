"""Fourteen programs in the style of DGL's tutorials: unchanged, and with the results that DGL 1.1.3 gives.

``programs/name.txt`` is what the program printed with DGL 1.1.3. ``VGRAPH_DGL_PYTHON`` names a Python
that has DGL; then the programs run there, too.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests import forked_python

FOLDER = Path(__file__).parent / "programs"
PROJECT = FOLDER.parent.parent.parent
PROGRAMS = sorted(path.stem for path in FOLDER.glob("*.py"))
NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")


# One process runs them all, each as a script of its own: most of the time goes into importing torch.
DRIVER = """
import contextlib, io, json, runpy, sys
found = {}
for path in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()) as text:
        runpy.run_path(path, run_name="__main__")
    found[path] = text.getvalue()
print(json.dumps(found))
"""


def printed(python: list[str], folder: Path, **environment: str) -> dict[str, str]:
    driver = folder / "driver.py"
    driver.write_text(DRIVER, encoding="utf-8")
    paths = [str(FOLDER / f"{name}.py") for name in PROGRAMS]
    done = subprocess.run(
        [*python, str(driver), *paths], capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    return {Path(path).stem: text for path, text in json.loads(done.stdout.splitlines()[-1]).items()}


def assert_alike(ours: str, wanted: str) -> None:
    """Equal words; numbers with a point may differ in the last digit that is printed."""
    assert NUMBER.sub("#", ours) == NUMBER.sub("#", wanted)
    for a, b in zip(NUMBER.findall(ours), NUMBER.findall(wanted), strict=True):
        assert float(a) == pytest.approx(float(b), rel=2e-3, abs=2e-3), (ours, wanted)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    search = os.pathsep.join([str(PROJECT), str(PROJECT / "kernels"), os.environ.get("PYTHONPATH", "")])
    python = [forked_python.command(), "-m", "vgraph.compat"]
    return printed(python, tmp_path_factory.mktemp("programs"), PYTHONPATH=search)


def test_there_are_fourteen() -> None:
    assert len(PROGRAMS) == 14


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gives_what_it_gives_in_dgl(name: str, ours: dict[str, str]) -> None:
    assert_alike(ours[name], (FOLDER / f"{name}.txt").read_text(encoding="utf-8"))


@pytest.mark.skipif("VGRAPH_DGL_PYTHON" not in os.environ, reason="VGRAPH_DGL_PYTHON names no Python that has DGL")
def test_programs_beside_dgl(ours: dict[str, str], tmp_path: Path) -> None:
    theirs = printed([os.environ["VGRAPH_DGL_PYTHON"], "-W", "ignore"], tmp_path, DGLBACKEND="pytorch")
    for name, text in ours.items():
        assert_alike(text, theirs[name])
