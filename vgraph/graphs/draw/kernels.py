"""Kernels: the functions of kernels/vgraph_kernels/sampling.h, compiled where there is a compiler.

Takes: arrays of numbers, addresses among them. Gives: what they are afterwards. Runs at every step.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import vgraph_kernels
from vgraph.fusion.cpu.build import FOR_ALL, build_kernels
from vgraph.graphs.draw.random_numbers import Array
from vgraph.runtime.cpu.kernels import no_memory, pool_address

_EXPORTS = ("vg_spans", "vg_sample", "vg_fetch", "vg_rows", "vg_renumber", "vg_group", "vg_walk", "vg_remember")


@cache
def compiled() -> dict[str, Callable[[int], int]] | None:
    """The functions of sampling.h by name; None where nothing compiles."""
    text = (Path(vgraph_kernels.__file__).parent / "sampling.h").read_text().replace("#pragma once", "")
    exports = [f'extern "C" int64_t kernel{i}(int64_t* a) {{ return {name}(a); }}' for i, name in enumerate(_EXPORTS)]
    built = build_kernels("\n".join([text, *exports]), len(exports), level=FOR_ALL)
    return None if built is None else dict(zip(_EXPORTS, built, strict=True))


def run(name: str, words: Sequence[int]) -> list[int] | None:
    """Runs a compiled function of one array of numbers; the numbers afterwards, or None without a compiler."""
    functions = compiled()
    if functions is None:
        return None
    array = (ctypes.c_int64 * len(words))(*words)
    if functions[name](ctypes.addressof(array)):  # ctypes lets other threads run meanwhile
        raise no_memory("sampling")
    return list(array)


def address(array: Array | None) -> int:
    """Where an array lies; 0 for none."""
    return 0 if array is None else int(array.__array_interface__["data"][0])


def pool() -> int:
    """Torch's threads, for the thread of the program; a loader's workers are as many as it was told."""
    return pool_address() if threading.current_thread() is threading.main_thread() else 0
