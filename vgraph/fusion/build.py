"""Build: C++ source to a function in this process, kept on disk.

Takes: source text. Gives: a ctypes function, or None where no compiler works; tempo: once a function.
The cache is keyed by source, prelude, flags, compiler and CPU. A file is renamed into place and ends with its
own checksum, so several processes may compile the same kernel at once, and none loads half a file.
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import importlib.util
import logging
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
from vgraph import config

logger = logging.getLogger("vgraph")

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
_DIGEST = hashlib.sha256().digest_size

Command = tuple[str, ...]


def build_kernels(source: str, count: int) -> list[Any] | None:
    """The compiled ``kernel0``, ``kernel1`` ...; None (and one line in the log) if that cannot be had."""
    compiler = find_compiler()
    folder = None if compiler is None else _cache_folder()
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
    _say(f"a kernel could not be compiled ({reason}): torch's operators run instead")


@cache
def _say(line: str) -> None:
    """Each line once: what ails one kernel ails them all."""
    logger.info("%s", line)


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
            _say(f"CXX names {asked[0]}, which cannot be run: another compiler is looked for")
    wheel = importlib.util.find_spec("ziglang")
    zig = shutil.which("zig", path=str(Path(wheel.origin).parent)) if wheel and wheel.origin else None
    if zig is None:
        _say("no C++ compiler found: Programs run on torch's operators alone; pip install vgraph[jit] brings one")
        return None
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
    folder = _cache_folder()
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
            said = done.stderr.strip().splitlines() or ["no message"]
            reason = next((line for line in said if "error" in line), said[0]).replace(scratch, "")
            _give_up(reason)
            return None
        kept = _put(built, library)
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
            _say(f"{compiler[0]} does not know {' '.join(refused)}: kernels are built without")
    return _known_flags.get(compiler, _OPTIONAL)


# ---------------------------------------------------------------- the cache
@cache
def _cache_folder() -> Path | None:
    """A private folder for kernels; a temporary one where the usual one cannot be trusted or written."""
    try:
        folder = config.cache_dir() / "kernels"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        stat = folder.stat()
        if stat.st_mode & 0o022 or stat.st_uid != os.getuid():
            raise PermissionError(f"others can write to {folder}")
        with tempfile.NamedTemporaryFile(dir=folder):
            pass
    except (OSError, RuntimeError) as error:  # RuntimeError: nobody's home
        return _temporary_folder(error)
    return folder


def _temporary_folder(why: Exception) -> Path | None:
    try:
        folder = Path(tempfile.mkdtemp(prefix="vgraph-kernels-"))
    except OSError as error:
        _say(f"kernels have no place, in the cache ({why}) or elsewhere ({error}): torch's operators run instead")
        return None
    _say(f"kernels are kept for this process alone: the cache cannot be used ({why})")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _put(built: Path, library: Path) -> Path | None:
    """The library in the cache, under a name that no reader sees before it is whole; None: there is no room."""
    content = built.read_bytes()
    part = None
    try:
        handle, part = tempfile.mkstemp(suffix=".part", dir=library.parent)
        with open(handle, "wb") as file:
            file.write(content + hashlib.sha256(content).digest())
        os.replace(part, library)
    except OSError as error:
        if part is not None:
            Path(part).unlink(missing_ok=True)
        _say(f"kernels are kept for this process alone: {library.parent} cannot be written ({error})")
        return None
    return library


def _load_kept(library: Path, count: int) -> list[Any] | None:
    """The functions of a file of the cache, unless it is missing or damaged."""
    try:
        content = library.read_bytes()
    except FileNotFoundError:
        return None
    if hashlib.sha256(content[:-_DIGEST]).digest() == content[-_DIGEST:]:
        found = _load(library, count)
        if found is not None:
            return found
    else:  # loading it could end the process: pages that a file lacks are fatal when touched
        _say(f"{library} is damaged and is built again")
    library.unlink(missing_ok=True)
    return None


def _load(library: Path, count: int) -> list[Any] | None:
    try:
        opened = ctypes.CDLL(str(library))
        functions: list[Any] = [getattr(opened, f"kernel{i}") for i in range(count)]
    except (OSError, AttributeError) as error:
        _say(f"a kernel cannot be loaded from {library.parent} ({error})")
        return None
    for function in functions:
        function.restype, function.argtypes = None, [ctypes.c_void_p]
    return functions
