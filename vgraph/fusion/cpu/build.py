"""Build: C++ source to functions in this process, kept on disk.

Takes: source text. Gives: ctypes functions, or None where no compiler works. Runs once per function.
The cache is keyed by source, prelude, flags, compiler and CPU. A file is renamed into place and ends with its
own checksum, so several processes may compile the same kernel at once, and none loads half a file. Where a
compiler fails the next one is tried, and used from then on; the log says why.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from vgraph.forks import held_by_forks
from vgraph.fusion import notice
from vgraph.fusion.cpu import compilers
from vgraph.fusion.cpu.compilers import FOR_ALL, FOR_FUNCTIONS, Command, find_compiler
from vgraph.fusion.kernel_cache import cache_folder, put_whole, read_whole, say, warn

__all__ = ["FOR_ALL", "build_kernels", "digest_of", "find_compiler", "find_kept", "forget"]


Compiled: TypeAlias = Callable[..., int]  # takes addresses; gives whether there was no memory


class _CompilerFailed(Exception):
    """In its own words."""


_HANGS = "gave no answer"
_building: dict[str, threading.Lock] = {}  # by name of a library
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_building.clear)  # who held one is another process's
_judging = held_by_forks(threading.Lock(), last=False)  # which compilers work
_set_aside: set[Command] = set()  # compilers that failed where another did not, or that gave no answer


def build_kernels(source: str, count: int, *, level: str = FOR_FUNCTIONS) -> list[Compiled] | None:
    """The compiled ``kernel0``, ``kernel1`` ...; None (and one line in the log) if that cannot be had.

    Each gives whether there was no memory. ``level``: of optimization.
    """
    folder, failed, first = cache_folder(), dict[Command, str](), _first_compiler()
    if folder is None or first is None:
        return None
    try:
        return _build_with(first, source, level, folder, count)
    except _CompilerFailed as failure:
        failed[first] = str(failure)
    with _judging:  # one after another, so that each failure is told once
        return _build_with_others(source, level, folder, count, failed)


def find_kept(digest: str, count: int) -> list[Compiled] | None:
    """What ``build_kernels`` made of the source with this ``digest_of``, where it is kept; nothing is compiled."""
    folder, first = cache_folder(), _first_compiler()
    try:
        if folder is None or first is None:
            return None
        return _load_kept(_library(folder, digest, first, FOR_FUNCTIONS), count)
    except OSError:  # a compiler that cannot start: who compiles says so
        return None


def digest_of(text: str) -> str:
    """A name for a text that no other text has."""
    return hashlib.sha256(text.encode()).hexdigest()


def _first_compiler() -> Command | None:
    """The one that is tried first; None: there is none."""
    return next((one for one in compilers.find_compilers() if one not in _set_aside), None)


def _library(folder: Path, digest: str, compiler: Command, level: str) -> Path:
    """The file that a compiler makes of a source."""
    return folder / f"{digest_of(digest + compilers.fingerprint(compiler, level))[:32]}.so"


def _build_with_others(
    source: str, level: str, folder: Path, count: int, failed: dict[Command, str]
) -> list[Compiled] | None:
    """By the first compiler that works beside those that ``failed``, which are said why."""
    for given_up in failed.keys() & _set_aside:  # by another thread, which said so
        del failed[given_up]
    _set_aside.update(compiler for compiler, reason in failed.items() if reason.startswith(_HANGS))
    for compiler in compilers.find_compilers():
        if compiler in _set_aside or compiler in failed:
            continue
        if any(compilers.is_the_same(compiler, other) for other in failed.keys() - _set_aside):
            continue
        try:
            found = _build_with(compiler, source, level, folder, count)
        except _CompilerFailed as failure:
            failed[compiler] = str(failure)
            _set_aside.update({compiler} if failed[compiler].startswith(_HANGS) else ())
            continue
        for other, reason in failed.items():
            _set_aside.add(other)
            say(f"{other[0]} cannot compile a kernel ({reason}): {compiler[0]} does so instead")
        return found
    if failed:
        _set_aside.update(list(failed)[1:])  # they were no better: later kernels are tried by the first alone
        reasons = "; ".join(f"{compiler[0]}: {reason}" for compiler, reason in failed.items())
        warn(f"a kernel could not be compiled ({reasons}): torch's operators run instead")
    return None


def _build_with(compiler: Command, source: str, level: str, folder: Path, count: int) -> list[Compiled]:
    try:
        library = _library(folder, digest_of(source), compiler, level)
        with _building.setdefault(library.name, threading.Lock()):  # other threads want the same kernels, or others
            found = _load_kept(library, count)
            if found is not None:
                return found
            with notice.of_process.compiling():
                return _compile(compiler, source, level, library, count)
    except OSError as error:
        about = f"{Path(str(error.filename)).name}: " if error.filename else ""
        raise _CompilerFailed(f"{about}{error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise _CompilerFailed(f"{_HANGS} within {compilers.MOST_SECONDS} seconds") from error


def _compile_file(compiler: Command, level: str, text: Path, built: Path) -> subprocess.CompletedProcess[str]:
    """A shared library of a source file, with the flags that the compiler knows."""
    done = compilers.run_on(compiler, text, built, (level, *compilers.flags(compiler, asked=False)))
    if done.returncode and compilers.flags(compiler, asked=True) != compilers.OPTIONAL:
        done = compilers.run_on(compiler, text, built, (level, *compilers.flags(compiler, asked=True)))
    return done


def _compile(compiler: Command, source: str, level: str, library: Path, count: int) -> list[Compiled]:
    # a system may keep files that are loaded from being removed
    with tempfile.TemporaryDirectory(prefix="vgraph-", ignore_cleanup_errors=True) as scratch:
        text, built = Path(scratch) / "kernel.cpp", Path(scratch) / "kernel.so"
        text.write_text(source)
        done = _compile_file(compiler, level, text, built)
        if done.returncode:
            said = done.stderr.strip().splitlines() or [f"ended with {done.returncode} and no message"]
            raise _CompilerFailed(next((line for line in said if "error" in line), said[0]).replace(scratch, ""))
        kept = put_whole(built.read_bytes(), library)
        found = None if kept is None else _load(kept, count)
        found = found or _load(built, count)  # what is loaded stays when its file goes
    if found is None:
        raise _CompilerFailed("what it makes cannot be loaded")
    return found


def forget() -> None:
    """As in a process that has compiled nothing yet."""
    _set_aside.clear()
    compilers.forget()


# ---------------------------------------------------------------- the cache
def _load_kept(library: Path, count: int) -> list[Compiled] | None:
    """The functions of a file of the cache, unless it is missing or damaged."""
    if read_whole(library) is None:  # loading a damaged one could end the process
        return None
    found = _load(library, count)
    if found is None:
        with suppress(OSError):  # in a folder that cannot be written it stays
            library.unlink()
    return found


def _load(library: Path, count: int) -> list[Compiled] | None:
    try:
        opened = ctypes.CDLL(str(library))
        functions = [opened[f"kernel{i}"] for i in range(count)]
    except (OSError, AttributeError) as error:
        say(f"a kernel cannot be loaded from {library.parent} ({error})")
        return None
    for function in functions:
        function.restype, function.argtypes = ctypes.c_int64, [ctypes.c_void_p]
    return list[Compiled](functions)
