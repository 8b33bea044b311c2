"""CUDA: machine code loaded and launched on torch's current stream, through CuPy.

Takes: cubins and arguments. Gives: functions that launch; tempo: once a function; every step.
CuPy is imported when a GPU is first asked for: a machine without it never notices.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Protocol

import torch
from torch import Tensor

from vgraph import config
from vgraph.runtime.beside import Beside
from vgraph.runtime.replay import Record

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
        return "there is no CuPy: pip install vgraph[cuda12] or vgraph[cuda13], whichever torch.version.cuda says"
    return None


def architecture(device: int | None = None) -> str:
    """The architecture of a GPU (the current one), as NVRTC calls it: sm_90 ..."""
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"


_sides: dict[torch.device, Any] = {}


def two_streams(device: torch.device) -> Beside | None:
    """The caller's stream and a second one, with ``VGRAPH_STREAMS=1``; None: all goes to the caller's."""
    if device.type != "cuda" or not config.streams():
        return None
    if device not in _sides:  # pragma: no cover - needs a GPU
        _sides[device] = torch.cuda.Stream(device)
    main = torch.cuda.current_stream(device)  # pragma: no cover
    return Beside(main, _sides[device], torch.cuda.stream, Tensor.record_stream)  # pragma: no cover


def recorder(kind: str) -> Record | None:
    """What records work as a CUDA graph, with ``VGRAPH_GRAPHS=1``; None: every call is launched piece by piece."""
    return _record if kind == "cuda" and config.graphs() else None


def _record(work: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:  # pragma: no cover - needs a GPU
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        made = work()
    return made, graph.replay


@cache
def _cupy() -> Any:
    return importlib.import_module("cupy")


def load(cubin: bytes, names: Sequence[str]) -> dict[str, Launch]:
    """The functions of a cubin on the current GPU, ready to launch; all arguments are 64-bit integers."""
    module = _cupy().cuda.function.Module()
    module.load(cubin)
    return {name: _launcher(module, module.get_function(name)) for name in names}


def _launcher(module: Any, function: Any) -> Launch:
    stream_of, driver = _cupy().cuda.ExternalStream, _cupy().cuda.driver
    asked = [_MOST_PLAIN]

    def launch(
        grid: Three, block: Three, words: Sequence[int], room: int = 0, together: bool = False, /, keep: Any = module
    ) -> None:
        if room > asked[0]:
            driver.funcSetAttribute(function.ptr, _MOST_ROOM, room)
            asked[0] = room
        with stream_of(torch.cuda.current_stream().cuda_stream):
            function(grid, block, tuple(words), room, None, together)

    return launch
