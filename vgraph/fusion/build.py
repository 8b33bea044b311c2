"""Build: C++ source to a function in this process, kept on disk.

Takes: source text. Gives: a ctypes function, or None where no compiler works; tempo: once a function.
The cache is keyed by source, prelude, flags, compiler and CPU. A file is renamed into place and ends with its
own checksum, so several processes may compile the same kernel at once, and none loads half a file.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import vgraph_kernels
from vgraph.fusion.kept import cache_folder, put_whole, read_whole, say

_NEEDED = ("-O3", "-std=c++17", "-shared", "-fPIC")
_OPTIONAL = (  # without these a kernel is slower, or differs in the last place; it is not wrong
    "-march=native",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-Wno-psabi",
    "-ffp-contract=off",  # what a backward computes again is the same number, bit for bit
)
_PRELUDE = Path(vgraph_kernels.__file__).parent / "prelude.h"
_MOST_SECONDS = 600  # the first call of a compiler from a wheel builds its own libraries

Command = tuple[str, ...]


def build_kernels(source: str, count: int) -> list[Any] | None:
    """The compiled ``kernel0``, ``kernel1`` ...; None (and one line in the log) if that cannot be had."""
    compiler = find_compiler()
    folder = None if compiler is None else cache_folder()
    if compiler is None or folder is None or compiler in _hung:
        return None
    try:
        name = hashlib.sha256("\0".join([source, _fingerprint(compiler)]).encode()).hexdigest()[:32]
        library = folder / f"{name}.so"
        return _load_kept(library, count) or _compile(compiler, source, library, count)
    except OSError as error:
        about = Path(str(error.filename)).name if error.filename else compiler[0]
        _give_up(f"{about}: {error.strerror}")
    except subprocess.TimeoutExpired:
        _hung.add(compiler)
        _give_up(f"{compiler[0]} gave no answer within {_MOST_SECONDS} seconds")
    return None


_hung: set[Command] = set()


def _give_up(reason: str) -> None:
    say(f"a kernel could not be compiled ({reason}): torch's operators run instead")


# ---------------------------------------------------------------- the compiler
@cache
def find_compiler() -> Command | None:
    """A C++ compiler's command: ``CXX``, else c++, g++, clang++, else the ``ziglang`` wheel; None: there is none."""
    asked = tuple(shlex.split(os.environ.get("CXX", "")))
    for command in (asked, ("c++",), ("g++",), ("clang++",)):
        found = shutil.which(command[0]) if command else None
        if found:
            return (found, *command[1:])
        if command and command == asked:
            say(f"CXX names {asked[0]}, which cannot be run: another compiler is looked for")
    wheel = importlib.util.find_spec("ziglang")
    zig = shutil.which("zig", path=str(Path(wheel.origin).parent)) if wheel and wheel.origin else None
    if zig is None:
        say("no C++ compiler found: Programs run on torch's operators alone; pip install vgraph[jit] brings one")
        return None
    say("no system compiler found: kernels are compiled by the one of the ziglang wheel")
    return (zig, "cc")  # kernels need nothing of the C++ library, which it would build first


@cache
def _fingerprint(compiler: Command) -> str:
    version = _run([*compiler, "--version"]).stdout
    flags = ""
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    words = [*compiler, version, flags, platform.machine(), *_NEEDED, *_OPTIONAL]
    return "\0".join([*words, *(header.read_text() for header in sorted(_PRELUDE.parent.glob("*.h")))])


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """A compiler that keeps what it builds for itself where vgraph keeps its own."""
    folder = cache_folder()
    own = {f"ZIG_{kind}_CACHE_DIR": str(folder / "zig") for kind in ("GLOBAL", "LOCAL")} if folder else {}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=_MOST_SECONDS, env={**os.environ, **own}
    )


def _compile(compiler: Command, source: str, library: Path, count: int) -> list[Any] | None:
    with tempfile.TemporaryDirectory(prefix="vgraph-") as scratch:
        text, built = Path(scratch) / "kernel.cpp", Path(scratch) / "kernel.so"
        text.write_text(source)
        done = _run_on(compiler, text, built, _flags(compiler, asked=False))
        if done.returncode and _flags(compiler, asked=True) != _OPTIONAL:
            done = _run_on(compiler, text, built, _flags(compiler, asked=True))
        if done.returncode:
            said = done.stderr.strip().splitlines() or [f"{compiler[0]} ended with {done.returncode} and no message"]
            reason = next((line for line in said if "error" in line), said[0]).replace(scratch, "")
            _give_up(reason)
            return None
        kept = put_whole(built.read_bytes(), library)
        found = None if kept is None else _load(kept, count)
        return found or _load(built, count)  # what is loaded stays when its file goes


def _run_on(compiler: Command, text: Path, built: Path, flags: Command) -> subprocess.CompletedProcess[str]:
    return _run([*compiler, *_NEEDED, *flags, f"-I{_PRELUDE.parent}", str(text), "-o", str(built)])


_known_flags: dict[Command, Command] = {}


def _flags(compiler: Command, *, asked: bool) -> Command:
    """The optional flags; if ``asked`` (once, after a failure), those that the compiler takes one by one."""
    if asked and compiler not in _known_flags:
        with tempfile.TemporaryDirectory(prefix="vgraph-") as scratch:
            text, built = Path(scratch) / "empty.cpp", Path(scratch) / "empty.so"
            text.write_text("")
            is_able = not _run_on(compiler, text, built, ()).returncode
            refused = [f for f in _OPTIONAL if is_able and _run_on(compiler, text, built, (f,)).returncode]
        _known_flags[compiler] = tuple(f for f in _OPTIONAL if f not in refused)
        if refused:
            say(f"{compiler[0]} does not know {' '.join(refused)}: kernels are built without")
    return _known_flags.get(compiler, _OPTIONAL)


# ---------------------------------------------------------------- the cache
def _load_kept(library: Path, count: int) -> list[Any] | None:
    """The functions of a file of the cache, unless it is missing or damaged."""
    if read_whole(library) is None:  # loading a damaged one could end the process
        return None
    found = _load(library, count)
    if found is None:
        library.unlink(missing_ok=True)
    return found


def _load(library: Path, count: int) -> list[Any] | None:
    try:
        opened = ctypes.CDLL(str(library))
        functions: list[Any] = [getattr(opened, f"kernel{i}") for i in range(count)]
    except (OSError, AttributeError) as error:
        say(f"a kernel cannot be loaded from {library.parent} ({error})")
        return None
    for function in functions:
        function.restype, function.argtypes = None, [ctypes.c_void_p]
    return functions
