"""Kernels on another processor: compiled for it by the wheel's compiler, run by an emulator on this process's memory.

Whoever builds kernels while a ``Machine`` lasts gets functions that run there; see machine.cpp.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import re
import shutil
import struct
import subprocess
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from vgraph import compiler, native_part
from vgraph.api import reduce as reductions
from vgraph.capture import capture
from vgraph.fusion.cpu import compilers
from vgraph.graphs.draw import kernels as drawing
from vgraph.runtime.cpu import frontier_loop, native
from vgraph.runtime.cpu import kernels as cpu
from vgraph.runtime.reductions import reduction

PAGE = 4096
READY, PAGE_OF, CHANGED, MATH, DONE, TAKEN = range(6)
_FLAGS = ("-O3", "-std=c++17", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi", "-ffp-contract=off", "-w")
_ALONE = (
    "-static", "-nostdlib", "-ffreestanding", "-fno-sanitize=all", "-fno-stack-protector",
    "-Wl,-s,--image-base=0x3000000000",  # where no process has memory
)  # fmt: skip
_MATH = ("erf", "sin", "cos", "log1p", "expm1", "exp", "log", "tanh")
_BUILDERS = (compiler, native_part, drawing)
_POOLS = (cpu, native, frontier_loop, reduction, drawing)


def wheel() -> compilers.Command | None:
    return compilers._find_wheel()


def emulator() -> str | None:
    return shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")


# ---------------------------------------------------------------- building
@contextmanager
def collecting(sources: dict[str, int]) -> Generator[None]:
    """Kernels are built as ever, and their sources noted, with the number of their functions."""
    build = compiler.build_kernels

    def noted(source: str, count: int, **level: str) -> Any:
        sources[source] = count
        return build(source, count, **level)

    with _building(noted):
        yield


@contextmanager
def _building(build: Callable[..., Any]) -> Generator[None]:
    """Everything that is built meanwhile is built so, and forgotten afterwards."""
    with ExitStack() as stack:
        for module in _BUILDERS:
            stack.enter_context(mock.patch.object(module, "build_kernels", build))
        _forget()
        yield
    _forget()


def _forget() -> None:
    capture.forget()
    reductions.forget()
    native_part.begin_native.cache_clear()
    drawing.compiled.cache_clear()


_ONCE = "#pragma once"


def joined(sources: Sequence[tuple[str, int]], folder: Path) -> str:
    """Many sources as one, each in a namespace of its own; their functions are ``s0_kernel0``, ``s0_kernel1`` ...

    ``folder`` gets the headers they include, each read once a namespace in place of once.
    """
    guards = list[str]()
    for header in sorted(compilers.HEADERS.glob("*.h")):
        text = header.read_text()
        if _ONCE in text:
            guards.append(f"MACHINE_HAS_{header.stem.upper()}")
            text = text.replace(_ONCE, f"#ifndef {guards[-1]}\n#define {guards[-1]}") + "\n#endif\n"
        (folder / header.name).write_text(text)
    parts = ["#include <stdint.h>"]
    names: list[str] = []
    for number, (source, count) in enumerate(sources):
        text = re.sub(r"\bkernel(\d+)\b", rf"s{number}_kernel\1", source)
        parts += [*(f"#undef {guard}" for guard in guards), f"namespace s{number} {{", text, "}"]
        names += [f"(void*)s{number}::s{number}_kernel{i}" for i in range(count)]
    return "\n".join([*parts, f"static void* machine_functions[] = {{{', '.join(names)}}};"])


def compile_for(target: str, words: Sequence[str], source: str, built: Path) -> None:
    command = wheel()
    assert command is not None
    text = built.with_suffix(".cpp")
    text.write_text(source)
    asked = [*command, "-target", target, *_FLAGS, *words, f"-I{compilers.HEADERS}", str(text), "-o", str(built)]
    done = compilers.run(asked)
    assert done.returncode == 0, done.stderr[:4000]


# ---------------------------------------------------------------- running
class RemoteFunction:
    """As a function that ctypes loaded."""

    def __init__(self, machine: Machine, address: int) -> None:
        self.machine, self.address = machine, address

    def __call__(self, given: Any) -> None:
        """``given``: as ctypes takes for an address."""
        self.machine.run(self.address, ctypes.cast(given, ctypes.c_void_p).value or 0)


class Machine:
    """An emulated processor that has these kernels."""

    def __init__(self, sources: dict[str, int], folder: Path) -> None:
        self.sources, self.program, self.calls = list(sources.items()), folder / "machine", 0
        text = joined(self.sources, folder) + "\n" + (Path(__file__).parent / "machine.cpp").read_text()
        compile_for("aarch64-linux-none", _ALONE, text, self.program)
        library = ctypes.CDLL(ctypes.util.find_library("m") or None)
        self.math = [getattr(library, name + suffix) for name in _MATH for suffix in ("f", "")]
        for i, function in enumerate(self.math):
            function.restype = ctypes.c_double if i % 2 else ctypes.c_float
            function.argtypes = [function.restype]
        self._start()

    def _start(self) -> None:
        started = emulator()
        assert started is not None
        self.process = subprocess.Popen([started, str(self.program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.memory = os.open("/proc/self/mem", os.O_RDWR)
        kind, count, self.pool = self._hear()
        assert kind == READY and count == sum(count for _, count in self.sources)
        addresses = iter(struct.unpack(f"={count}q", self._read(8 * count)))
        self.functions = {
            source: [RemoteFunction(self, next(addresses)) for _ in range(number)] for source, number in self.sources
        }

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        os.close(self.memory)

    def run(self, function: int, address: int) -> None:
        """One call: what the machine asks for is answered until it has done."""
        self.calls += 1
        self._write(struct.pack("=2q", function, address))
        while True:
            kind, a, b = self._hear()
            if kind == DONE:
                return
            if kind == PAGE_OF:
                self._write(os.pread(self.memory, PAGE, a))
            elif kind == CHANGED:
                os.pwrite(self.memory, self._read(b), a)
            elif kind == MATH:
                (x,) = struct.unpack("=d", struct.pack("=q", b))
                self._write(struct.pack("=d", self.math[a](x)))
            else:
                raise RuntimeError(f"the emulator keeps {a:#x} for itself")

    def _hear(self) -> tuple[int, int, int]:
        return struct.unpack("=3q", self._read(24))

    def _read(self, count: int) -> bytes:
        found = self.process.stdout.read(count)
        if len(found) < count:
            raise RuntimeError(f"the emulator ended with {self.process.wait()}")
        return found

    def _write(self, content: bytes) -> None:
        self.process.stdin.write(content)
        self.process.stdin.flush()

    @contextmanager
    def building(self) -> Generator[None]:
        """Kernels that are built meanwhile run on this machine."""

        def build(source: str, count: int, **_: str) -> Any:
            assert source in self.functions, f"a kernel that this machine does not have:\n{source[:2000]}"
            return self.functions[source]

        with ExitStack() as stack:
            for module in _POOLS:
                stack.enter_context(mock.patch.object(module, "pool_address", lambda: self.pool))
            for module in (frontier_loop, native):
                stack.enter_context(mock.patch.object(module, "address_of", lambda function: function.address))
            stack.enter_context(_building(build))
            yield
