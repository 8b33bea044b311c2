"""Whatever ails the cache, the result is right and one line says what happened."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import PROJECT
from tests.fusion.build_cases import kernels_in
from vgraph.fusion import kernel_cache as kept
from vgraph.fusion.cpu import build

needs_compiler = pytest.mark.skipif(build.find_compiler() is None, reason="there is no C++ compiler")
pytestmark = pytest.mark.usefixtures("fresh_build")


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
def test_another_kernel_under_a_name_is_refused(said: Any, tmp_path: Path) -> None:
    """Its checksum is right, but not for this name."""
    one, other = (build.build_kernels(f'extern "C" long kernel0(const long*) {{ return {i}; }}', 1) for i in (1, 2))
    assert one is not None and other is not None
    assert [one[0](None), other[0](None)] == [1, 2]
    first, second = kernels_in(tmp_path / "cache")
    content = kept.read_whole(first)
    second.unlink()  # it is loaded: writing into it would change this process
    second.write_bytes(first.read_bytes())
    assert content is not None
    assert kept.read_whole(second) is None
    assert not second.exists()
    assert kept.read_whole(first) == content


@needs_compiler
def test_an_entry_that_cannot_be_read(said: Any, tmp_path: Path) -> None:
    """A folder in the place of a kernel: it is built for this process alone, and no operator of torch's runs."""
    assert said() == []
    for library in kernels_in(tmp_path):
        library.unlink()
        library.mkdir()
    read, told = said()
    assert "cannot be read (Is a directory), which are built again" in read
    assert "kept for this process alone" in told


@needs_compiler
def test_a_folder_that_is_removed_while_in_use(said: Any, tmp_path: Path) -> None:
    assert said() == []
    shutil.rmtree(tmp_path / "cache")
    (line,) = said()
    assert "kept for this process alone" in line and "No such file or directory" in line


@needs_compiler
def test_kernels_are_their_owners_alone(said: Any, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir(mode=0o700)
    before = os.umask(0)
    try:
        assert said() == []
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in kernels_in(tmp_path)} == {0o600}


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
def test_a_system_without_users(monkeypatch: pytest.MonkeyPatch, said: Any, tmp_path: Path) -> None:
    """As Windows is: every folder's modes say that all may write, which means nothing there."""
    (tmp_path / "cache" / "kernels").mkdir(parents=True)
    (tmp_path / "cache" / "kernels").chmod(0o777)
    import_module("torch._dynamo")  # torch loads it late, and asks for a user then
    monkeypatch.delattr(os, "getuid")
    assert said() == [] and kernels_in(tmp_path)


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

    monkeypatch.setattr(os, "replace", full)
    (line,) = said()
    assert "cannot be written" in line and "No space left" in line
    assert not list((tmp_path / "cache" / "kernels").glob("*"))


@needs_compiler
def test_no_room_anywhere(monkeypatch: pytest.MonkeyPatch, said: Any, tmp_path: Path) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(kept.tempfile, "mkdtemp", full)
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
