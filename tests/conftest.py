"""What every test may ask for: golden files, public data, seeds, scripts run as by a user."""

from __future__ import annotations

import difflib
import gc
import os
import random
import signal
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch

from tests import apart, forked_python
from vgraph.capture import capture
from vgraph.fusion.cpu import build
from vgraph.graphs.seed import _Holder

PROJECT = Path(__file__).resolve().parent.parent
GOLDEN = PROJECT / "tests" / "golden"
SCRIPT_SECONDS = 900  # on a machine that is busy with other work; none takes 60 on an idle one
collect_ignore = ["distributed/dist_dgl_program.py"]  # a program for DGL: torchrun starts it through vgraph.compat

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as for a shell's jobs in the background; tests send it
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A failure on one machine must be found again on the next, and a first call may compile.
hypothesis.settings.register_profile("dev", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "dev")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite the files of tests/golden/ from what is printed now",
    )


_cache_folder = pytest.StashKey[tempfile.TemporaryDirectory[str]]()


def pytest_configure(config: pytest.Config) -> None:
    # Torch's operators are the oracle, and need no compiler; tests/fusion compares compiled loops with them.
    os.environ.setdefault("VGRAPH_KERNELS", "0")
    os.environ["VGRAPH_TUNE"] = "0"  # what is measured differs from run to run
    # Before any module of vgraph is imported, doctests included: nothing reaches the user's cache.
    # Workers inherit the folder of the process that started them, and leave its removal to it.
    if not hasattr(config, "workerinput"):
        config.stash[_cache_folder] = tempfile.TemporaryDirectory(prefix="vgraph-tests-")
        os.environ["VGRAPH_CACHE_DIR"] = config.stash[_cache_folder].name
    os.environ["MPLBACKEND"] = "Agg"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays to the end: no search for garbage need go through it, now or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of what guards find, and of what is known of a function then, have nothing to say where none is trusted."""
    if os.environ.get("VGRAPH_CAPTURE") == "lookup":
        for item in items:
            if item.get_closest_marker("guards") is not None:
                item.add_marker(pytest.mark.skip(reason="with VGRAPH_CAPTURE=lookup no guard is asked"))


def pytest_unconfigure(config: pytest.Config) -> None:
    folder = config.stash.get(_cache_folder, None)
    if folder is not None:
        folder.cleanup()


@pytest.fixture(autouse=True)
def _seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Holder, "generator", None)  # what an earlier test has seeded
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _no_group_stays() -> Iterator[None]:
    """A process group that a test joined in this process would be the next test's, too."""
    yield
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compiled kernels, for functions of which nothing is known before the test, nor after it.

    A kernel that no compiler takes fails the test: torch's operators would give the same result in its place.
    """
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    monkeypatch.setattr(build, "warn", pytest.fail)
    capture.forget()
    yield
    capture.forget()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], str]:
    """``golden("name", text)``: how the text differs from that of ``tests/golden/name.txt``; "": it does not."""
    update = bool(request.config.getoption("--update-golden"))

    def compare(name: str, text: str) -> str:
        path = GOLDEN / f"{name}.txt"
        text = text.rstrip("\n") + "\n"
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return ""
        shown = path.relative_to(PROJECT)
        if not path.exists():
            return f"{shown} is missing; `make golden` writes it"
        wanted = path.read_text(encoding="utf-8")
        if text == wanted:
            return ""
        diff = difflib.unified_diff(wanted.splitlines(), text.splitlines(), str(shown), "printed now", lineterm="")
        return "\n".join([*diff, "", "if the new text is right: make golden"])

    return compare


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of public data sets; a test that asks for it is skipped where there is none."""
    chosen = os.environ.get("VGRAPH_TEST_DATA")
    folder = Path(chosen).expanduser() if chosen else PROJECT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no public data at {folder}; VGRAPH_TEST_DATA names the folder that has it")
    return folder


@pytest.fixture
def run_script(tmp_path: Path) -> Callable[..., str]:
    """``run_script(path, *arguments)`` runs a file as its user does and gives what it printed.

    Processes that it starts with ``sys.executable`` are forked, as it is.
    """

    def run(path: Path, *arguments: str) -> str:
        env = {apart.PYTHON: forked_python.command()}
        status, said = apart.run([str(path), *arguments], env, tmp_path, strict=True, seconds=SCRIPT_SECONDS)
        if status:
            pytest.fail(f"{' '.join([path.name, *arguments])} ended with {status}\n{said}", pytrace=False)
        return said

    return run
