"""Measure: seconds of every op of a Program on a device, and of copies between two.

Takes: a dense Program with real inputs, a DeviceStream. Gives: median seconds by position. Runs once per model.
Source: depth-first placement, the offline profiler. Whole steps are run op by op, so that each op finds the caches
as the step leaves them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import torch
from torch import Tensor

from vgraph.ir.moves import Random
from vgraph.ir.program import Op, Program, Value, map_leaves
from vgraph.runtime.distributed.shards import last_uses
from vgraph.runtime.distributed.streams import DeviceStream, link_device, one_copy
from vgraph.runtime.extent import draw_random
from vgraph.runtime.python_codegen import fast_callable

COPY_SIZES = (1 << 12, 1 << 20, 1 << 24)  # bytes


def measure_ops(
    program: Program,
    inputs: Sequence[Tensor],
    device: DeviceStream,
    *,
    repeats: int,
    tick: Callable[[], object] = lambda: None,
) -> dict[int, float]:
    """Median seconds of every op that can be run, over ``repeats`` steps after one to warm up.

    An op that fails, and what needs its results, is left out. ``tick`` is called once an op and step.
    """
    return device.submit(_measure, program, inputs, device, repeats, tick).result()


@torch.no_grad()
def _measure(
    program: Program, inputs: Sequence[Tensor], device: DeviceStream, repeats: int, tick: Callable[[], object]
) -> dict[int, float]:
    here = [tensor.detach().to(device.torch_device) for tensor in inputs]
    found: dict[int, list[float]] = {}
    for step in range(repeats + 1):
        times = _time_step(program, here, device, tick)
        for position, seconds in times.items() if step else ():
            found.setdefault(position, []).append(seconds)
    return {position: median(seconds) for position, seconds in found.items()}


def _time_step(
    program: Program, inputs: Sequence[Tensor], device: DeviceStream, tick: Callable[[], object]
) -> dict[int, float]:
    env: dict[int, Tensor] = {given.value.id: tensor for given, tensor in zip(program.inputs, inputs, strict=True)}
    dead, times = last_uses(program), dict[int, float]()
    for position, op in enumerate(program.ops):
        tick()
        if all(value.id in env for value in op.operands()):
            seconds = _time_op(op, env, device)
            if seconds is not None:
                times[position] = seconds
        for number in dead.get(position, ()):
            env.pop(number, None)
    return times


def _time_op(op: Op, env: dict[int, Tensor], device: DeviceStream) -> float | None:
    """Runs an op and keeps its results; None if it cannot be run here."""

    def swap(leaf: object) -> object:
        if isinstance(leaf, Value):
            return env[leaf.id]
        return device.torch_device if isinstance(leaf, torch.device) else leaf

    function = _callable(op)
    args, kwargs = map_leaves(op.args, swap), {key: map_leaves(value, swap) for key, value in op.kwargs.items()}
    try:
        device.finish()
        start = time.perf_counter()
        result = function(*args, **kwargs)
        device.finish()
        seconds = time.perf_counter() - start
    except (RuntimeError, NotImplementedError):
        return None
    results = result if isinstance(result, (tuple, list)) else (result,)
    env.update({value.id: tensor for value, tensor in zip(op.results, results, strict=True) if tensor is not None})
    return seconds


def _callable(op: Op) -> Callable[..., Any]:
    """What generated code calls for the op."""
    if not isinstance(op.target, Random):
        return fast_callable(op)
    target = op.target

    def draw(shape: Any, dtype: torch.dtype, extra: Any, *, seed: Tensor) -> Tensor:
        return draw_random(target.distribution, target.number, seed, None, tuple(shape), dtype, extra)

    return draw


def measure_link(source: DeviceStream, target: DeviceStream, repeats: int = 7) -> tuple[float, float]:
    """(seconds to begin, bytes a second) of copies from one device to another, by medians of three sizes.

    They go the way of a run: from the source's thread over that of a link to the target's.
    """
    link = DeviceStream(f"{source.name} to {target.name}", link_device(source, target))
    seconds: list[float] = []
    for size in COPY_SIZES:
        times = [_time_copy(size, source, link, target) for _ in range(repeats + 1)]
        seconds.append(median(times[1:]))
    bandwidth = (COPY_SIZES[-1] - COPY_SIZES[0]) / max(seconds[-1] - seconds[0], 1e-9)
    return max(seconds[0] - COPY_SIZES[0] / bandwidth, 1e-7), bandwidth


def _time_copy(size: int, source: DeviceStream, link: DeviceStream, target: DeviceStream) -> float:
    tensor = torch.ones(size // 4, device=source.torch_device)
    send, receive = one_copy(link, target.torch_device)

    def begin() -> float:
        source.finish()
        start = time.perf_counter()
        send(tensor)
        return start

    def end() -> float:
        receive()
        return time.perf_counter()

    ended, begun = target.submit(end), source.submit(begin)
    return ended.result() - begun.result()
