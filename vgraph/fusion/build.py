"""Build: C++ source to a function in this process, kept on disk.

Takes: source text. Gives: a ctypes function, or None where no compiler works; tempo: once a function.
The cache is keyed by source, prelude, flags, compiler and CPU; files are renamed into place, so several
processes may compile the same kernel at once.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import vgraph_kernels
from vgraph import config

logger = logging.getLogger("vgraph")

FLAGS = (
    "-O3",
    "-march=native",
    "-std=c++17",
    "-shared",
    "-fPIC",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-Wno-psabi",
    "-ffp-contract=off",  # what a backward computes again is the same number, bit for bit
)
_PRELUDE = Path(vgraph_kernels.__file__).parent / "prelude.h"


def build_kernels(source: str, count: int) -> list[Any] | None:
    """The compiled ``kernel0``, ``kernel1`` ...; None (and one line in the log) if that cannot be had."""
    compiler = find_compiler()
    if compiler is None:
        return None
    folder = _cache_folder()
    name = hashlib.sha256("\0".join([source, _fingerprint(compiler)]).encode()).hexdigest()[:32]
    library = folder / f"{name}.so"
    found = _load(library, count) if library.exists() else None
    if found is None and _compile(compiler, source, library):
        found = _load(library, count)
    return found


@cache
def find_compiler() -> str | None:
    """The path of a C++ compiler: ``CXX``, else c++, g++ or clang++; None if there is none."""
    for name in (os.environ.get("CXX", ""), "c++", "g++", "clang++"):
        found = shutil.which(name) if name else None
        if found:
            return found
    logger.info("no C++ compiler found: Programs run on torch's operators alone")
    return None


@cache
def _fingerprint(compiler: str) -> str:
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout
    flags = ""
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return "\0".join([compiler, version, flags, platform.machine(), " ".join(FLAGS), _PRELUDE.read_text()])


@cache
def _cache_folder() -> Path:
    """A private folder for kernels; a temporary one where the usual one cannot be trusted or written."""
    folder = config.cache_dir() / "kernels"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        stat = folder.stat()
        if stat.st_mode & 0o022 or stat.st_uid != os.getuid():
            raise PermissionError("others can write to it")
        with tempfile.NamedTemporaryFile(dir=folder):
            pass
    except OSError as error:
        logger.info("kernels are not kept: %s cannot be used (%s)", folder, error)
        return Path(tempfile.mkdtemp(prefix="vgraph-kernels-"))
    return folder


def _compile(compiler: str, source: str, library: Path) -> bool:
    with tempfile.TemporaryDirectory(prefix="vgraph-") as scratch:
        text, built = Path(scratch) / "kernel.cpp", Path(scratch) / "kernel.so"
        text.write_text(source)
        command = [compiler, *FLAGS, f"-I{_PRELUDE.parent}", str(text), "-o", str(built)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            said = done.stderr.strip().splitlines() or ["no message"]
            reason = next((line for line in said if "error" in line), said[0])
            logger.info("a kernel could not be compiled (%s): torch's operators run instead", reason)
            return False
        return _put(built, library)


def _put(built: Path, library: Path) -> bool:
    """Copies beside the final name first: a reader never sees half a file."""
    try:
        part = library.with_suffix(f".{os.getpid()}.part")
        shutil.copyfile(built, part)
        os.replace(part, library)
    except OSError as error:
        logger.info("a kernel could not be kept in %s: %s", library.parent, error)
        return False
    return True


def _load(library: Path, count: int) -> list[Any] | None:
    try:
        opened = ctypes.CDLL(str(library))
        functions: list[Any] = [getattr(opened, f"kernel{i}") for i in range(count)]
    except (OSError, AttributeError):
        logger.info("%s is damaged and will be built again", library)
        library.unlink(missing_ok=True)
        return None
    for function in functions:
        function.restype, function.argtypes = None, [ctypes.c_void_p]
    return functions
