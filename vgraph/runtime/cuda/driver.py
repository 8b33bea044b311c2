"""CUDA: machine code loaded and launched on torch's current stream, through CuPy.

Takes: cubins and arguments. Gives: functions that launch. Runs once per function. Every step.
CuPy is imported when a GPU is first asked for: a machine without it never notices.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, Protocol

import torch
from torch import Tensor

from vgraph import config
from vgraph.errors import DeviceError
from vgraph.runtime.cuda.cuda_graphs import Record
from vgraph.runtime.cuda.side_stream import SideStream
from vgraph.runtime.outcome import Outcome

_MOST_PLAIN = 48 * 1024  # bytes of a block's own memory that need no asking
_MOST_ROOM = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
Three = tuple[int, int, int]


class Launch(Protocol):
    """``room``: bytes of a block's own memory; ``together``: all blocks are resident at once."""

    def __call__(
        self, grid: Three, block: Three, words: Sequence[int], room: int = 0, together: bool = False, /
    ) -> None: ...


@cache
def limits(device: torch.device) -> tuple[int, int]:
    """Processors of a GPU, each of which has at least one block resident; bytes that a block can have to itself."""
    found: Any = torch.cuda.get_device_properties(device)
    return found.multi_processor_count, found.shared_memory_per_block_optin


def missing() -> str | None:
    """What kernels on a GPU lack here, in words; None: nothing."""
    if not torch.cuda.is_available():
        return "torch finds no GPU"
    if importlib.util.find_spec("cupy") is None:
        return "there is no CuPy: pip install 'vgraph[cuda12]' or 'vgraph[cuda13]', whichever torch.version.cuda says"
    return None


def architecture(device: int | None = None) -> str:
    """The architecture of a GPU (the current one), as NVRTC calls it: sm_90 ..."""
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"


_sides: dict[torch.device, torch.cuda.Stream] = {}


def two_streams(device: torch.device) -> SideStream | None:
    """The caller's stream and a second one, with ``VGRAPH_STREAMS=1``; None: all goes to the caller's."""
    if device.type != "cuda" or not config.streams():
        return None
    if device not in _sides:  # pragma: no cover - needs a GPU
        _sides[device] = torch.cuda.Stream(device)
    main = torch.cuda.current_stream(device)  # pragma: no cover
    return SideStream(main, _sides[device], torch.cuda.stream, Tensor.record_stream)  # pragma: no cover


def recorder(kind: str) -> Record | None:
    """What records work as a CUDA graph, with ``VGRAPH_GRAPHS=1``; None: every call is launched piece by piece."""
    return _record if kind == "cuda" and config.graphs() else None


def _record(work: Callable[[], Outcome]) -> tuple[Outcome, Callable[[], None]]:  # pragma: no cover - needs a GPU
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        made = work()
    return made, graph.replay


def on(device: torch.device) -> AbstractContextManager[object]:
    """While it lasts, that GPU is the current one: what is compiled, loaded and launched is for it."""
    if device.type != "cuda" or device.index in (None, torch.cuda.current_device()):
        return nullcontext()
    return torch.cuda.device(device)


def load(build: Callable[[str], bytes | None], names: Sequence[str]) -> dict[str, Launch] | None:
    """Functions ready to launch on the current GPU, whichever it is then; None: ``build`` gives no cubin for it now.

    All arguments are 64-bit integers.
    """
    loaded = _Loaded(build)
    return {name: loaded.launcher(name) for name in names} if loaded.on(torch.cuda.current_device()) else None


@cache
def _driver() -> Any:
    return importlib.import_module("cupy").cuda.driver


@cache
def _module(cubin: bytes, device: int) -> int:  # keyed by device; never unloaded, as recorded calls may hold on to it
    return _driver().moduleLoadData(cubin)


_thread = threading.local()


def _enter(device: int) -> None:
    """Before a thread's first call of the driver: the context that torch works in becomes the thread's."""
    known: set[int] = _thread.__dict__.setdefault("devices", set[int]())
    if device not in known:
        torch.cuda.mem_get_info(device)
        known.add(device)


class _Loaded:
    """The functions of one source, loaded on each GPU that launches them."""

    def __init__(self, build: Callable[[str], bytes | None]) -> None:
        self.build = build
        self.modules: dict[int, int] = {}

    def on(self, device: int) -> int:
        """The module on a GPU; 0: there is none."""
        if device not in self.modules:
            cubin = self.build(architecture(device))
            _enter(device)
            self.modules[device] = 0 if cubin is None else _module(cubin, device)
        return self.modules[device]

    def launcher(self, name: str) -> Launch:
        """Through the driver itself: a list of numbers costs a few microseconds, CuPy's own conversions cost more."""
        functions: dict[int, int] = {}
        asked: dict[int, int] = {}

        def launch(grid: Three, block: Three, words: Sequence[int], room: int = 0, together: bool = False, /) -> None:
            driver, device = _driver(), torch.cuda.current_device()
            _enter(device)
            if device not in functions:
                functions[device] = driver.moduleGetFunction(self._needed(device), name)
            function = functions[device]
            if room > asked.get(device, _MOST_PLAIN):
                driver.funcSetAttribute(function, _MOST_ROOM, room)
                asked[device] = room
            count = len(words)
            values = (ctypes.c_int64 * count)(*words)
            first = ctypes.addressof(values)
            places = (ctypes.c_int64 * count)(*range(first, first + 8 * count, 8))
            last = (room, torch.cuda.current_stream(device).cuda_stream, ctypes.addressof(places))
            if together:
                driver.launchCooperativeKernel(function, *grid, *block, *last)
            else:
                driver.launchKernel(function, *grid, *block, *last, 0)

        return launch

    def _needed(self, device: int) -> int:
        module = self.on(device)
        if not module:
            cure = "see `VGRAPH_LOG=kernels` for what NVRTC said, or VGRAPH_KERNELS=0"
            raise DeviceError(f"kernels were compiled for another GPU and cannot be had for cuda:{device}", cure=cure)
        return module
