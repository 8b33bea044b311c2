"""Whatever ails compiler or cache, the result is right and one line says what happened."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import vgraph
import vgraph.function as fn
from tests.conftest import PROJECT
from vgraph.api import capture
from vgraph.fusion import build, kept

needs_compiler = pytest.mark.skipif(build.find_compiler() is None, reason="there is no C++ compiler")
_CACHES = (build.find_compiler, kept.cache_folder, build._fingerprint, kept.say)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """As in a process that has compiled nothing yet, with an empty cache."""
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    monkeypatch.setenv("VGRAPH_NATIVE", "0")  # what loops over frontiers share is built apart
    monkeypatch.setenv("VGRAPH_CACHE_DIR", str(tmp_path / "cache"))
    forget()
    yield
    monkeypatch.undo()
    forget()


def forget() -> None:
    for known in _CACHES:
        known.cache_clear()
    build._known_flags.clear()
    build._hung.clear()
    capture.forget()


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What the log said of kernels while a function ran whose result was right."""

    def run() -> list[str]:
        caplog.clear()
        capture.forget()
        with caplog.at_level(logging.INFO, "vgraph"):
            assert tanh_sum()
        return caplog.messages

    return run


def tanh_sum() -> bool:
    g = vgraph.graph(([0, 1, 2, 0], [1, 2, 3, 3]))
    h = torch.randn(4, 5, requires_grad=True)
    g.ndata["h"] = h
    g.update_all(lambda e: {"m": torch.tanh(e.src["h"])}, fn.sum("m", "o"))
    t = torch.tanh(h)
    expected = torch.stack([torch.zeros(5), t[0], t[1], t[2] + t[0]])
    (grad,) = torch.autograd.grad(g.ndata["o"].sum(), h)
    (wanted,) = torch.autograd.grad(expected.sum(), h)
    return torch.allclose(g.ndata["o"], expected, atol=1e-6) and torch.allclose(grad, wanted, atol=1e-6)


def script(folder: Path, name: str, body: str) -> str:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def kernels_in(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.so"))


# ---------------------------------------------------------------- compilers
def test_no_compiler(monkeypatch: pytest.MonkeyPatch, said: Any, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(build.importlib.util, "find_spec", lambda name: None)
    (line,) = said()
    assert "no C++ compiler found" in line and "vgraph[jit]" in line
    assert said() == []


def test_a_compiler_that_fails(monkeypatch: pytest.MonkeyPatch, said: Any, tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", script(tmp_path, "c++", "echo internal error >&2; exit 1"))
    (line,) = said()
    assert "could not be compiled (internal error)" in line
    assert said() == []


def test_a_compiler_that_fails_without_a_word(monkeypatch: pytest.MonkeyPatch, said: Any, tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", script(tmp_path, "c++", "exit 3"))
    (line,) = said()
    assert "c++ ended with 3 and no message" in line


def test_a_compiler_that_cannot_start(monkeypatch: pytest.MonkeyPatch, said: Any, tmp_path: Path) -> None:
    path = Path(script(tmp_path, "c++", ""))
    path.write_text("#!/there/is/no/such/shell\n")
    monkeypatch.setenv("CXX", str(path))
    (line,) = said()
    assert "could not be compiled" in line and "No such file" in line


def test_a_compiler_that_hangs(monkeypatch: pytest.MonkeyPatch, said: Any, tmp_path: Path) -> None:
    monkeypatch.setattr(build, "_MOST_SECONDS", 0.2)
    monkeypatch.setenv("CXX", script(tmp_path, "c++", "exec sleep 30"))
    (line,) = said()
    assert "could not be compiled" in line and "gave no answer within 0.2 seconds" in line


def test_a_compiler_that_writes_nothing(monkeypatch: pytest.MonkeyPatch, said: Any, tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", script(tmp_path, "c++", "exit 0"))
    (line,) = said()
    assert "could not be compiled" in line and "kernel.so" in line


@needs_compiler
def test_cxx_that_is_not_there(monkeypatch: pytest.MonkeyPatch, said: Any) -> None:
    monkeypatch.setenv("CXX", "g++-999 -v")
    (line,) = said()
    assert "CXX names g++-999" in line


@needs_compiler
def test_cxx_with_arguments(monkeypatch: pytest.MonkeyPatch, said: Any, tmp_path: Path) -> None:
    compiler = build.find_compiler()
    assert compiler is not None
    through = script(tmp_path, "through", f"echo $1 > {tmp_path}/seen; exec {' '.join(compiler)} $@")
    monkeypatch.setenv("CXX", f"{through} -DANY_WORD=1")
    build.find_compiler.cache_clear()
    assert said() == []
    assert (tmp_path / "seen").read_text() == "-DANY_WORD=1\n" and kernels_in(tmp_path)


@needs_compiler
def test_a_flag_that_the_compiler_does_not_know(monkeypatch: pytest.MonkeyPatch, said: Any, tmp_path: Path) -> None:
    compiler = build.find_compiler()
    assert compiler is not None
    refuse = 'for flag; do case "$flag" in -march=*|-ffp*) echo "error: $flag?" >&2; exit 1;; esac; done'
    monkeypatch.setenv("CXX", script(tmp_path, "old", f"{refuse}\nexec {' '.join(compiler)} $@"))
    build.find_compiler.cache_clear()
    (line,) = said()
    assert line.endswith("does not know -march=native -ffp-contract=off: kernels are built without")
    assert kernels_in(tmp_path)


def test_the_compiler_of_the_wheel(monkeypatch: pytest.MonkeyPatch, said: Any, tmp_path: Path) -> None:
    """Found where there is no other; it builds its own libraries first, which takes seconds."""
    pytest.importorskip("ziglang")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    (line,) = said()
    assert line == "no system compiler found: kernels are compiled by the one of the ziglang wheel"
    assert build.find_compiler()[1] == "cc" and kernels_in(tmp_path)


# ---------------------------------------------------------------- the cache
@needs_compiler
def test_a_kernel_is_compiled_once(monkeypatch: pytest.MonkeyPatch, said: Any, tmp_path: Path) -> None:
    assert said() == []
    before = {path: path.stat().st_ino for path in kernels_in(tmp_path)}
    monkeypatch.setattr(build, "_compile", lambda *_: pytest.fail("it was there"))
    assert before and said() == []
    assert {path: path.stat().st_ino for path in kernels_in(tmp_path)} == before


@needs_compiler
@pytest.mark.parametrize("part", [0.0, 0.01, 0.3, 0.6, 0.95, 0.9999])
def test_a_file_cut_short(part: float, said: Any, tmp_path: Path) -> None:
    assert said() == []
    whole, cut = tmp_path / "cache", tmp_path / "cut"
    shutil.copytree(whole, cut)  # elsewhere: what this process has opened stays open
    for library in kernels_in(cut):
        content = library.read_bytes()
        library.write_bytes(content[: int(len(content) * part)])
    os.environ["VGRAPH_CACHE_DIR"] = str(cut)
    kept.cache_folder.cache_clear()
    (line,) = said()
    assert "damaged kernels, which are built again" in line
    assert [path.stat().st_size for path in kernels_in(cut)] == [path.stat().st_size for path in kernels_in(whole)]


@needs_compiler
def test_a_folder_that_others_can_write(said: Any, tmp_path: Path) -> None:
    (tmp_path / "cache" / "kernels").mkdir(parents=True)
    (tmp_path / "cache" / "kernels").chmod(0o777)
    (line,) = said()
    assert "others can write" in line
    assert not kernels_in(tmp_path)


@needs_compiler
@pytest.mark.parametrize(("mode", "is_refused"), [(0o777, True), (0o770, True), (0o1777, False), (0o755, False)])
def test_a_folder_whose_place_others_can_take(mode: int, is_refused: bool, said: Any, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(mode)
    assert [f"others can write to {tmp_path / 'cache'}" in line for line in said()] == [True] * is_refused
    assert bool(kernels_in(tmp_path)) is not is_refused


@needs_compiler
def test_a_folder_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch, said: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("VGRAPH_CACHE_DIR", str(tmp_path / "file"))
    (line,) = said()
    assert "kept for this process alone" in line and "Not a directory" in line


@needs_compiler
@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_is_read_only(said: Any, tmp_path: Path) -> None:
    (tmp_path / "cache" / "kernels").mkdir(parents=True)
    (tmp_path / "cache" / "kernels").chmod(0o500)
    (line,) = said()
    assert "kept for this process alone" in line and "Permission denied" in line


@needs_compiler
def test_a_folder_that_is_full(monkeypatch: pytest.MonkeyPatch, said: Any, tmp_path: Path) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(build.os, "replace", full)
    (line,) = said()
    assert "cannot be written" in line and "No space left" in line
    assert not list((tmp_path / "cache" / "kernels").glob("*"))


@needs_compiler
def test_no_room_anywhere(monkeypatch: pytest.MonkeyPatch, said: Any, tmp_path: Path) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(build.tempfile, "mkdtemp", full)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("VGRAPH_CACHE_DIR", str(tmp_path / "file"))
    (line,) = said()
    assert "have no place" in line


_RACE = """
import sys, torch, vgraph, vgraph.function as fn
g = vgraph.graph(([0, 1, 2, 0], [1, 2, 3, 3]))
g.ndata["h"] = torch.ones(4, 5)
sys.stdin.readline()
g.update_all(lambda e: {"m": torch.tanh(e.src["h"]) * 0.125}, fn.sum("m", "o"))
print(g.ndata["o"].sum().item())
"""


@needs_compiler
def test_two_processes_compile_the_same_kernel(tmp_path: Path) -> None:
    """Both wait at the same line until both are there; neither leaves half a file."""
    path = os.pathsep.join([str(PROJECT), str(PROJECT / "kernels")])
    options: dict[str, Any] = {"text": True, "env": {**os.environ, "PYTHONPATH": path}, "cwd": tmp_path}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    both = [subprocess.Popen([sys.executable, "-W", "error", "-c", _RACE], **pipes, **options) for _ in range(2)]
    for one in both:
        one.stdin.write("\n")
        one.stdin.flush()
    ends = [one.communicate(timeout=300) for one in both]
    assert ends[0] == ends[1] and abs(float(ends[0][0]) - 20 * 0.125 * 0.76159) < 1e-3, ends
    assert len(kernels_in(tmp_path)) == 1
    assert not list(tmp_path.rglob("*.part"))
