"""Build for CUDA: CUDA C++ source to the machine code of one GPU architecture, kept on disk.

Takes: source text, an architecture such as sm_90. Gives: a cubin, or None where there is no NVRTC. Runs once per
function. NVRTC needs no GPU. The cache is keyed by source, headers, options, architecture and NVRTC's version.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

import vgraph_kernels
from vgraph.fusion import notice
from vgraph.fusion.kernel_cache import cache_folder, put_whole, read_whole, say, warn

OPTIONS = ("--std=c++17", "--fmad=false", "-diag-suppress=550,177")  # no fmad: a backward computes the same again
_HEADERS = ("prelude.cuh", "teams.cuh", "walk.cuh", "reduction.cuh")
_FOLDERS = {"13": ("cu13/lib", "cu13/bin"), "12": ("cuda_nvrtc/lib", "cu12/lib", "cuda_nvrtc/bin")}


@dataclass(frozen=True)
class Usage:
    """What one function takes of a GPU: registers a thread, bytes spilled, bytes of shared memory a block."""

    registers: int
    spilled: int
    shared: int


@dataclass(frozen=True, eq=False)
class Nvrtc:
    """The library, and its version."""

    library: ctypes.CDLL
    version: tuple[int, int]

    def compile(self, source: str, architecture: str) -> tuple[bytes, str]:
        """The cubin and what the compiler said; no bytes where it refused."""
        folder = Path(vgraph_kernels.__file__).parent
        texts = [(folder / name).read_bytes() for name in _HEADERS]
        program = ctypes.c_void_p()
        count = len(_HEADERS)
        contents = (ctypes.c_char_p * count)(*texts)
        names = (ctypes.c_char_p * count)(*(name.encode() for name in _HEADERS))
        _check(
            self.library.nvrtcCreateProgram(
                ctypes.byref(program), source.encode(), b"kernels.cu", count, contents, names
            )
        )
        try:
            given = [f"--gpu-architecture={architecture}", "-Xptxas=-v", *OPTIONS]
            options = (ctypes.c_char_p * len(given))(*(word.encode() for word in given))
            refused = self.library.nvrtcCompileProgram(program, len(given), options)
            said = self._text(program, "ProgramLog").decode().rstrip("\0")
            return (b"" if refused else self._text(program, "CUBIN"), said)
        finally:
            self.library.nvrtcDestroyProgram(ctypes.byref(program))

    def _text(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        _check(getattr(self.library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
        room = ctypes.create_string_buffer(size.value)
        _check(getattr(self.library, f"nvrtcGet{what}")(program, room))
        return room.raw


_USED = re.compile(
    r"Function properties for (\w+).*?(\d+) bytes spill stores.*?Used (\d+) registers(?:[^\n]*?(\d+) bytes smem)?",
    re.DOTALL,
)


def usages(said: str) -> dict[str, Usage]:
    """By function, what the compiler said that each takes."""
    return {
        name: Usage(int(regs), int(spilt), int(room or 0)) for name, spilt, regs, room in _USED.findall(said + "\n")
    }


def _check(code: int) -> None:
    assert code == 0, f"NVRTC gave the error {code}"


@cache
def find_nvrtc() -> Nvrtc | None:
    """NVRTC as torch or pip installed it, else as the system has it; None: there is none."""
    for name in _candidates():
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        major, minor = ctypes.c_int(), ctypes.c_int()
        if library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)) == 0:
            return Nvrtc(library, (major.value, minor.value))
    return None


def _candidates() -> list[str]:
    """Files of the packages of pip, each after what it loads by name, then names that the system knows.

    Those of torch's own CUDA come first: a driver may refuse machine code of a newer one.
    """
    found: list[str] = []
    majors = sorted(_FOLDERS, key=lambda major: major != (torch.version.cuda or "").partition(".")[0])
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or ()) if spec else ():
        for folder in (name for major in majors for name in _FOLDERS[major]):
            libraries = sorted((Path(root) / folder).glob("*nvrtc*"))
            for path in libraries:
                if "builtins" in path.name and "alt" not in path.name:
                    _preload(path)
            found += [str(p) for p in libraries if "builtins" not in p.name and "alt" not in p.name]
    system = "nvrtc64_{}0_0.dll" if sys.platform == "win32" else "libnvrtc.so.{}"
    return [*found, *map(system.format, majors), "libnvrtc.so"]


def _preload(path: Path) -> None:
    try:
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    except OSError:
        say(f"{path.name} cannot be loaded: kernels for GPUs may not compile")


def build_cubin(source: str, architecture: str) -> bytes | None:
    """The machine code of all functions of ``source``; None (and one line in the log) if that cannot be had."""
    nvrtc = find_nvrtc()
    if nvrtc is None:
        warn("there is no NVRTC for kernels (pip install 'vgraph[cuda12]' or 'vgraph[cuda13]'): torch's operators run")
        return None
    folder = cache_folder()
    kept = None if folder is None else folder / f"{_key(source, architecture, nvrtc.version)}.cubin"
    found = None if kept is None else read_whole(kept)
    if found is not None:
        return found
    with notice.of_process.compiling():
        cubin, said = nvrtc.compile(source, architecture)
    if not cubin:
        reason = next((line for line in said.splitlines() if "error" in line), said[:200])
        warn(f"a kernel for {architecture} could not be compiled ({reason}): torch's operators run instead")
        return None
    if kept is not None:
        put_whole(cubin, kept)
    return cubin


def _key(source: str, architecture: str, version: tuple[int, int]) -> str:
    folder = Path(vgraph_kernels.__file__).parent
    words = [source, architecture, str(version), *OPTIONS, *((folder / name).read_text() for name in _HEADERS)]
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:32]
