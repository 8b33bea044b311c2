"""Files that vgraph writes: whole or not at all, whoever is killed, and nobody else's are touched."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import vgraph
from vgraph import atomic_file as module
from vgraph.atomic_file import atomic_file, write_text
from vgraph.cli.checkpoint import Progress, load_checkpoint, save_checkpoint
from vgraph.cli.checkpoint_checks import HISTORY
from vgraph.cli.report import write_log
from vgraph.compat.data import save_info
from vgraph.compat.files import save_tensors
from vgraph.errors import CheckpointError, DataError
from vgraph.partition.placement.profile import Profile

PROJECT = Path(__file__).resolve().parent.parent

needs_unix = pytest.mark.skipif(os.name != "posix", reason="modes, links and locks of files are Unix's")


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def killed_while_writing(path: Path, where: str) -> None:
    """Another process that dies at once where it would sync, rename, or has written half."""
    program = (
        "import os, sys\n"
        "from vgraph import atomic_file as module\n"
        "die = lambda *_, **__: os._exit(9)\n"
        "if sys.argv[2] != 'write': setattr(os, sys.argv[2], die)\n"
        "with module.atomic_file(sys.argv[1]) as file:\n"
        "    file.write(b'half'); file.flush()\n"
        "    if sys.argv[2] == 'write': die()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", "import sys, types; m = types.ModuleType('vgraph'); "
         f"m.__path__ = [{str(PROJECT / 'vgraph')!r}]; sys.modules['vgraph'] = m\n{program}", str(path), where],
        check=False,
    )  # fmt: skip
    assert done.returncode == 9


@needs_unix
@pytest.mark.parametrize("where", ["write", "fsync", "replace"])
def test_what_a_killed_process_left_is_removed(tmp_path: Path, where: str) -> None:
    path = tmp_path / "kept.txt"
    write_text(path, "first")
    killed_while_writing(path, where)
    assert path.read_text() == "first" and len(names(tmp_path)) == 2
    write_text(path, "second")
    assert path.read_text() == "second" and names(tmp_path) == ["kept.txt"]


@needs_unix
def test_what_another_is_writing_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "kept.txt"
    with atomic_file(path) as slow:
        slow.write(b"slow")
        write_text(path, "fast")
        assert path.read_text() == "fast" and len(names(tmp_path)) == 2
    assert path.read_text() == "slow" and names(tmp_path) == ["kept.txt"]


@needs_unix
def test_more_writers_than_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_NUM_NAMES", 1)
    with atomic_file(tmp_path / "a") as one, atomic_file(tmp_path / "a") as two, atomic_file(tmp_path / "a"):
        one.write(b"1"), two.write(b"2")
    assert (tmp_path / "a").read_bytes() == b"1" and names(tmp_path) == ["a"]


def test_many_threads_write_one_file(tmp_path: Path) -> None:
    path, failed = tmp_path / "kept.txt", list[BaseException]()

    def write(number: int) -> None:
        try:
            for _ in range(20):
                write_text(path, f"{number}" * 1000)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and names(tmp_path) == ["kept.txt"]
    assert len(path.read_text()) == 1000 and len(set(path.read_text())) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), ValueError("told")])
def test_an_error_leaves_the_file_as_it_was(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "kept.txt"
    write_text(path, "first")
    with pytest.raises(type(error)), atomic_file(path) as file:
        file.write(b"second")
        raise error
    assert path.read_text() == "first" and names(tmp_path) == ["kept.txt"]


@needs_unix
def test_modes_and_links(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "new", "x")
        assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
        (tmp_path / "new").chmod(0o606)
        write_text(tmp_path / "new", "y")
        assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o606
    finally:
        os.umask(before)
    (tmp_path / "folder").mkdir()
    for name, target in (("link", "folder/there"), ("dangling", "folder/not yet"), ("twice", "link")):
        (tmp_path / "folder" / "there").write_text("old")
        (tmp_path / name).symlink_to(tmp_path / target)
        write_text(tmp_path / name, f"by {name}")
        assert (tmp_path / name).is_symlink() and (tmp_path / target).read_text() == f"by {name}"
    assert names(tmp_path / "folder") == ["not yet", "there"]
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(OSError, match="loop"):
        write_text(tmp_path / "loop", "x")


@needs_unix
def test_what_is_no_regular_file_is_written_in_place(tmp_path: Path) -> None:
    write_text("/dev/null", "x")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    with pytest.raises(IsADirectoryError):
        write_text(tmp_path, "x")
    fifo, read = tmp_path / "fifo", list[str]()
    os.mkfifo(fifo)
    reader = threading.Thread(target=lambda: read.append(fifo.read_text()))
    reader.start()
    write_text(fifo, "through")
    reader.join()
    assert read == ["through"]


def test_what_cannot_be_written_names_the_users_file(tmp_path: Path) -> None:
    path = tmp_path / "no" / "kept.txt"
    with pytest.raises(FileNotFoundError) as told:
        write_text(path, "x")
    assert told.value.filename == str(path)


@needs_unix
def test_foreign_files_under_our_names_are_passed_by(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("theirs")
    (tmp_path / ".kept.txt.0.tmp").symlink_to(tmp_path / "other")
    (tmp_path / ".kept.txt.1.tmp").mkdir()
    write_text(tmp_path / "kept.txt", "x")
    assert (tmp_path / "other").read_text() == "theirs" and (tmp_path / "kept.txt").read_text() == "x"


# ------------------------------------------------------------------ who writes


WRITERS: dict[str, Callable[[Path], object]] = {
    "graphs": lambda path: vgraph.save_graphs(path, [vgraph.graph(([0], [1]))]),
    "checkpoint": lambda path: save_checkpoint(path, {}, {}, Progress(0)),
    "log": lambda path: write_log(path, {}, []),
    "profile": lambda path: Profile({}, {}).save(path),
    "tensors": lambda path: save_tensors(path, {"x": torch.ones(2)}),
    "info": lambda path: save_info(path, {"n": 1}),
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_writer_is_atomic(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Synced before it is renamed, and its folder after; a failing disk leaves what was there, and no litter."""
    path, calls = tmp_path / "kept", list[str]()
    WRITERS[name](path)
    before = path.read_bytes()
    sync, rename = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append("fsync"), sync(fd))[1])
    monkeypatch.setattr(os, "replace", lambda a, b: (calls.append("rename"), rename(a, b))[1])
    WRITERS[name](path)
    assert calls[:2] == ["fsync", "rename"] and calls[-1] == "fsync" and len(calls) > 2

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises((OSError, DataError, CheckpointError), match="No space left on device"):
        WRITERS[name](path)
    assert path.read_bytes() == before
    assert {"kept", "kept.previous"} >= set(names(tmp_path))


def test_no_writer_was_forgotten() -> None:
    """Whatever opens a file to write does so by ``atomic_file``."""
    words = (".write_text(", ".write_bytes(", "os.rename(", "os.replace(", "savefig(path", "mkstemp(", "torch.save(")
    compiled = {"vgraph/fusion/cpu/build.py", "vgraph/fusion/cpu/compilers.py"}  # sources that a compiler reads, once
    folders = {"vgraph/distributed/stored/writer.py"}  # whole folders, renamed when all their files are on the disk
    known = {"vgraph/atomic_file.py", *compiled, *folders}
    wrong = [
        f"{path}: {line.strip()}"
        for path in sorted(p.relative_to(PROJECT).as_posix() for p in (PROJECT / "vgraph").rglob("*.py"))
        if path not in known
        for line in (PROJECT / path).read_text().splitlines()
        if any(word in line for word in words) and ", file)" not in line and not line.strip().startswith((">>>", "..."))
    ]
    assert not wrong, wrong


# ------------------------------------------------------------------ the checkpoint before


def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, measured = tmp_path / "c.pt", [dict.fromkeys(HISTORY, 1.0)]
    save_checkpoint(path, {"a": 1}, {}, Progress(0, epoch=1, history=measured))
    assert names(tmp_path) == ["c.pt"]
    save_checkpoint(path, {"a": 1}, {}, Progress(0, epoch=2, history=measured))
    assert load_checkpoint(path, {"a": 1}).progress.epoch == 2 and not caplog.records
    path.write_bytes(path.read_bytes()[:-30])
    assert load_checkpoint(path, {"a": 1}).progress.epoch == 1
    assert "damaged" in caplog.text and "goes on from the one before, c.pt.previous" in caplog.text
    (tmp_path / "c.pt.previous").write_bytes(b"")
    with pytest.raises(CheckpointError, match="damaged"):
        load_checkpoint(path, {"a": 1})


def test_a_checkpoint_that_nobody_may_read(tmp_path: Path) -> None:
    (tmp_path / "c.pt").mkdir()
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_checkpoint(tmp_path / "c.pt", {})


@needs_unix
def test_a_full_disk_in_the_midst_of_an_archive(tmp_path: Path) -> None:
    """torch's writer of archives says that its position is wrong; the user wants to know what the disk said."""
    program = (
        "import resource, signal, sys, torch, vgraph\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "g = vgraph.graph(([0], [1])); g.ndata['x'] = torch.ones(2, 100000)\n"
        "vgraph.save_graphs(sys.argv[1], g.local_var())\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try: vgraph.save_graphs(sys.argv[1], g)\n"
        "except vgraph.errors.DataError as error: print(error.fact)\n"
        "print(vgraph.load_graphs(sys.argv[1])[0][0].ndata['x'].shape)\n"
    )
    path = tmp_path / "g.bin"
    search = os.pathsep.join([str(PROJECT), str(PROJECT / "kernels")])
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": search},
    )  # fmt: skip
    assert done.stdout.splitlines() == [f"cannot write {path}: File too large", "torch.Size([2, 100000])"]
    assert names(tmp_path) == ["g.bin"]
