"""Compilers: which C++ compilers a machine has, in the order in which they are tried, and how each is called.

Takes: ``CXX``, the path, the ``ziglang`` wheel. Gives: commands, their flags, what tells their work apart. Runs once
per process. Nothing here asks for a compiler by its version: what one cannot do shows when it is tried.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shlex
import shutil
import signal
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import vgraph_kernels
from vgraph import config
from vgraph.fusion.kernel_cache import cache_folder, say, warn

Command = tuple[str, ...]

FOR_FUNCTIONS, FOR_ALL = "-O2", "-O3"  # what is generated for one function; what is written by hand, and built once
_NEEDED = ("-std=c++17", "-shared")
OPTIONAL = (  # without these a kernel is slower, or differs in the last place, or a system needs no such word
    "-fPIC",
    "-march=native",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-Wno-psabi",
    "-ffp-contract=off",  # what a backward computes again is the same number, bit for bit
)
_SANITIZE = (
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=undefined",  # what is found ends the process
    "-fno-omit-frame-pointer",
    "-g1",
)
HEADERS = Path(vgraph_kernels.__file__).parent
MOST_SECONDS = 600  # the first call of a compiler from a wheel builds its own libraries


# ---------------------------------------------------------------- which there are
@cache
def find_compilers() -> tuple[Command, ...]:
    """``CXX``, then c++, g++, clang++, then the one of the ``ziglang`` wheel: those that are there."""
    asked = tuple(shlex.split(os.environ.get("CXX", "")))
    found: list[Command] = []
    for command in (asked, ("c++",), ("g++",), ("clang++",)):
        path = shutil.which(command[0]) if command else None
        if path and (path, *command[1:]) not in found:
            found.append((path, *command[1:]))
        if not path and command and command == asked:
            say(f"CXX names {asked[0]}, which cannot be run: another compiler is looked for")
    wheel = _find_wheel()
    if wheel is None and not found:
        warn("no C++ compiler found: Programs run on torch's operators alone; pip install 'vgraph[jit]' brings one")
    if wheel is not None and not found:
        say("no system compiler found: kernels are compiled by the one of the ziglang wheel")
    return (*found, wheel) if wheel is not None else tuple(found)


@cache
def find_compiler() -> Command | None:
    """The C++ compiler that is tried first; None: there is none."""
    return next(iter(find_compilers()), None)


def _find_wheel() -> Command | None:
    wheel = importlib.util.find_spec("ziglang")
    zig = shutil.which("zig", path=str(Path(wheel.origin).parent)) if wheel and wheel.origin else None
    return (zig, "cc") if zig else None  # kernels need nothing of the C++ library, which it would build first


def is_the_same(one: Command, other: Command) -> bool:
    """Whether two commands are one compiler under two names, as c++ and g++ often are."""
    try:
        versions = [_version(command).partition(" ")[2] for command in (one, other)]
    except OSError:  # one that cannot start
        return False
    return one[1:] == other[1:] and versions[0] == versions[1] != ""


# ---------------------------------------------------------------- how they are called
@cache
def _version(compiler: Command) -> str:
    return run([*compiler, "--version"]).stdout


@cache
def fingerprint(compiler: Command, level: str) -> str:
    """All that a kernel depends on beside its source; ``level``: of optimization."""
    known = ""
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        known = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    machine = (_version(compiler), known or platform.processor(), platform.machine())
    words = [*compiler, *machine, level, *_NEEDED, *OPTIONAL, *sanitizer_flags()]
    return "\0".join([*words, *(header.read_text() for header in sorted(HEADERS.glob("*.h")))])


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """A compiler that keeps what it builds for itself where vgraph keeps its own."""
    folder = cache_folder()
    own = {f"ZIG_{kind}_CACHE_DIR": str(folder / "zig") for kind in ("GLOBAL", "LOCAL")} if folder else {}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=MOST_SECONDS, env={**os.environ, **own}
    )
    if done.returncode == -signal.SIGINT:  # Ctrl-C reaches it on whichever thread it runs; it has not failed
        raise KeyboardInterrupt
    return done


def run_on(compiler: Command, text: Path, built: Path, flags: Command) -> subprocess.CompletedProcess[str]:
    """Makes a shared library of a source file; the level of optimization is among the flags."""
    return run([*compiler, *_NEEDED, *sanitizer_flags(), *flags, f"-I{HEADERS}", str(text), "-o", str(built)])


def sanitizer_flags() -> Command:
    """What makes kernels check themselves: see ``config.sanitizes``."""
    return _SANITIZE if config.sanitizes() else ()


_known: dict[Command, Command] = {}


def flags(compiler: Command, *, asked: bool) -> Command:
    """The optional flags; if ``asked`` (once, after a failure), those that the compiler takes one by one."""
    if asked and compiler not in _known:
        with tempfile.TemporaryDirectory(prefix="vgraph-") as scratch:
            text, built = Path(scratch) / "empty.cpp", Path(scratch) / "empty.so"
            text.write_text("")
            is_able = not run_on(compiler, text, built, ()).returncode
            refused = [f for f in OPTIONAL if is_able and run_on(compiler, text, built, (f,)).returncode]
        _known[compiler] = tuple(f for f in OPTIONAL if f not in refused)
        if refused:
            say(f"{compiler[0]} does not know {' '.join(refused)}: kernels are built without")
    return _known.get(compiler, OPTIONAL)


def forget() -> None:
    """As in a process that has asked no compiler yet."""
    for known in (find_compilers, find_compiler, _version, fingerprint):
        known.cache_clear()
    _known.clear()
