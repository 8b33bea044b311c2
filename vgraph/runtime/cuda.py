"""CUDA: machine code loaded and launched on torch's current stream, through CuPy.

Takes: cubins and arguments. Gives: functions that launch; tempo: once a function; every step.
CuPy is imported when a GPU is first asked for: a machine without it never notices.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch

Launch = Callable[[tuple[int, int, int], tuple[int, int, int], Sequence[int]], None]  # grid, block, arguments


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


@cache
def _cupy() -> Any:
    return importlib.import_module("cupy")


def load(cubin: bytes, names: Sequence[str]) -> dict[str, Launch]:
    """The functions of a cubin on the current GPU, ready to launch; all arguments are 64-bit integers."""
    module = _cupy().cuda.function.Module()
    module.load(cubin)
    return {name: _launcher(module, module.get_function(name)) for name in names}


def _launcher(module: Any, function: Any) -> Launch:
    stream_of = _cupy().cuda.ExternalStream

    def launch(
        grid: tuple[int, int, int], block: tuple[int, int, int], words: Sequence[int], keep: Any = module
    ) -> None:
        with stream_of(torch.cuda.current_stream().cuda_stream):
            function(grid, block, tuple(words))

    return launch
