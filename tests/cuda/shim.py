"""Kernels for a GPU on the CPU: the generated CUDA source behind shim.h, compiled by the machine's own compiler."""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest import mock

import vgraph_kernels
from vgraph import compiler
from vgraph.fusion.cpu import build
from vgraph.fusion.cuda.emit import emit_cuda
from vgraph.fusion.reduction import emit_reduction_cuda
from vgraph.ir.kernel import KernelSpec
from vgraph.ir.loop_body import LoopOnDevice
from vgraph.ir.program import Reduction
from vgraph.ir.reduction import DeviceShape
from vgraph.runtime.cuda.driver import Launch
from vgraph.runtime.cuda.frontier_loop import DeviceFrontiers
from vgraph.runtime.cuda.kernel import DeviceKernel
from vgraph.runtime.reductions.cuda import bind_device

_FOLDER, _HEADERS = Path(__file__).parent, Path(vgraph_kernels.__file__).parent
_FLAGS = ("-O0", "-std=c++17", "-shared", "-fPIC", "-fno-math-errno", "-ffp-contract=off", "-w")
_PREFIX = '#include "shim.h"\n#include "prelude.cuh"\n'


@cache
def _room() -> Path:
    """A folder with the headers, compiled ahead for all kernels."""
    folder = Path(tempfile.mkdtemp(prefix="vgraph-shim-"))
    (folder / "first.h").write_text(_PREFIX)
    _compile("-x", "c++-header", str(folder / "first.h"), "-o", str(folder / "first.h.gch"))
    return folder


def _compile(*words: str) -> None:
    compiler_ = build.find_compiler()
    assert compiler_ is not None
    flags = [f for f in _FLAGS if f != "-shared" or "c++-header" not in words]
    done = subprocess.run(
        [*compiler_, *flags, f"-I{_FOLDER}", f"-I{_HEADERS}", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[:4000]


@cache
def load(source: str, names: tuple[str, ...]) -> dict[str, Launch]:
    """The functions of a CUDA source, each launched by ``(grid, block, words)``."""
    counts = {name: source.split(f" {name}(")[1].split(")", 1)[0].count(",") + 1 for name in names}
    text = ['#include "first.h"', source.replace('#include "prelude.cuh"', "")]
    for name, count in counts.items():
        words = ", ".join(f"a[{i}]" for i in range(count))
        text.append(f"static void enter_{name}(const int64_t* a) {{ {name}({words}); }}")
        text.append(
            f'extern "C" void run_{name}(const int64_t* a, const int64_t* g, const int64_t* b, const int64_t* m)'
            f" {{ vg_launch(enter_{name}, a, g, b, m); }}"
        )
    folder = _room()
    stem = hashlib.sha256(source.encode()).hexdigest()[:24]
    (folder / f"{stem}.cpp").write_text("\n".join(text))
    _compile(f"-I{folder}", str(folder / f"{stem}.cpp"), "-o", str(folder / f"{stem}.so"))
    library = ctypes.CDLL(str(folder / f"{stem}.so"))
    return {name: _launcher(library, name, count) for name, count in counts.items()}


def _launcher(library: Any, name: str, count: int) -> Launch:
    function, backwards = getattr(library, f"run_{name}"), ctypes.c_int.in_dll(library, "vg_backwards")

    def launch(
        grid: Sequence[int], block: Sequence[int], words: Sequence[int], room: int = 0, together: bool = False, /
    ) -> None:
        assert len(words) == count, f"{name} takes {count} arguments, not {len(words)}"
        backwards.value = _backwards[0]
        launched.append(name)
        if tapes:
            tapes[-1].append(lambda: launch(grid, block, words, room, together))
        function(*((ctypes.c_int64 * len(given))(*given) for given in (words, grid, block, (room, int(together)))))

    return launch


launched: list[str] = []  # names, in order
tapes: list[list[Callable[[], object]]] = []  # where launches are recorded, to be repeated
_backwards = [0]


def runners(specs: Sequence[KernelSpec]) -> list[DeviceKernel]:
    """In the place of a compiler's target: kernels for a GPU that read the memory of the CPU."""
    source, loops = emit_cuda(specs)
    functions = load(source, tuple(entry.name for loop in loops for entry in loop.entries))
    return [DeviceKernel(spec, loop, functions) for spec, loop in zip(specs, loops, strict=True)]


def loops(emitted: Sequence[tuple[str, LoopOnDevice]]) -> list[DeviceFrontiers]:
    """Loops over frontiers, likewise."""
    source = "\n".join(['#include "prelude.cuh"', *(text for text, _ in emitted)])
    functions = load(source, tuple(name for _, loop in emitted for name in loop.names))
    return [DeviceFrontiers(loop, functions, lambda _: limits[0]) for _, loop in emitted]


def load_reduction(reduction: Reduction, shape: DeviceShape) -> Mapping[str, Launch]:
    """A reduction over modes, likewise."""
    source = emit_reduction_cuda(reduction, shape)
    reduction_sources.append(source)
    return load(source, ("kernel0", "kernel1"))


reduction_sources: list[str] = []  # in order
limits = [(6, 1 << 17)]  # blocks that are resident together, bytes of a block's own memory


@contextmanager
def in_place_of_cpu(*, backwards: bool = False) -> Generator[None]:
    """While it lasts, Programs run as on a GPU; ``backwards``: the threads of a block in the opposite order."""
    with (
        mock.patch.dict(compiler.TARGETS, cpu=runners),
        mock.patch.dict(compiler.LOOPS, cpu=loops),
        mock.patch.dict(compiler.REDUCTIONS, cpu=partial(bind_device, load=load_reduction)),
        mock.patch.object(compiler, "load_native", lambda: None),
    ):
        _backwards[0] = int(backwards)
        yield
        _backwards[0] = 0
