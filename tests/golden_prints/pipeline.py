"""What the pipeline makes of a training call, all of it, without a compiler and without a GPU.

The call itself runs on torch's operators, as where there is no compiler. What it captured is then compiled once more
for either kind of device, with compilers in whose place nothing is compiled; ``Made`` holds the texts they were given.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch

from tests.golden_prints.models import Training
from vgraph import compiler, native_part
from vgraph.capture import capture
from vgraph.capture.capture import Captured, Run, watch_runs
from vgraph.ir.kernel import DeviceLoop, KernelSpec
from vgraph.ir.loop_body import LoopBody, LoopOnDevice
from vgraph.ir.program import Reduction
from vgraph.ir.topology import Topology
from vgraph.runtime.call_rows import CallContext
from vgraph.runtime.compiled import CompiledProgram, Plan
from vgraph.runtime.cpu.native import Native
from vgraph.runtime.cuda import driver as cuda
from vgraph.runtime.reductions.reduction import CompiledReduction

# Switches keep what they are without a setting, but where that would ask the machine.
SETTINGS = {"VGRAPH_KERNELS": "1", "VGRAPH_PRODUCTS": "1"}
KEPT = ("VGRAPH_CACHE_DIR", "VGRAPH_LOG")
KINDS = ("cpu", "cuda")
_Function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)


@dataclass
class Texts:
    """What compilers were given: C++, or CUDA and how its functions are launched; sums over rows as they are."""

    kernels: list[str] = field(default_factory=list[str])
    launches: list[Sequence[DeviceLoop]] = field(default_factory=list[Sequence[DeviceLoop]])
    loops: list[tuple[str, LoopOnDevice]] = field(default_factory=list[tuple[str, LoopOnDevice]])
    reductions: list[Reduction] = field(default_factory=list[Reduction])


@dataclass(frozen=True)
class Target:
    """A Program compiled for one kind of device, its plan on the call's graph, and its texts."""

    compiled: CompiledProgram
    topology: Topology  # of the plan, which does not hold it
    plan: Plan
    texts: Texts


@dataclass(frozen=True)
class Made:
    """A Program of a call; ``plain``: on torch's operators alone; ``targets``: by kind of device.

    ``is_paired``: it saves for another one, or reads what that saved.
    """

    title: str
    is_paired: bool
    plain: CompiledProgram
    targets: Mapping[str, Target]


def make_all(model: Callable[[], Training]) -> list[Made]:
    """Everything that a training call made, in the order in which it was first needed."""
    with _settings():
        capture.forget()
        runs = _train(model)
        found: list[Made] = []
        for captured, call_context in _distinct(runs):
            for title, is_paired, plain in _programs(captured):
                targets = {kind: _compile_for(kind, plain, call_context) for kind in KINDS}
                found.append(Made(f"{captured.name} {title}", is_paired, plain, targets))
        capture.forget()
    return found


def _train(model: Callable[[], Training]) -> list[Run]:
    with _without_compilers(), watch_runs() as runs:
        made = model()
        grads = torch.autograd.grad(made.loss, made.leaves, create_graph=made.is_twice)
        if made.is_twice:
            torch.stack([grad.square().sum() for grad in grads]).sum().backward()
    return runs


def _distinct(runs: Sequence[Run]) -> list[tuple[Captured, CallContext]]:
    """Each capture once, with the first graph that it ran on."""
    found: dict[int, tuple[Captured, CallContext]] = {}
    for name, bound, call_context in runs:
        assert isinstance(bound, capture.Bound) and isinstance(call_context, CallContext), f"{name} was not captured"
        found.setdefault(id(bound.captured), (bound.captured, call_context))
    return list(found.values())


def _programs(captured: Captured) -> list[tuple[str, bool, CompiledProgram]]:
    """By order of derivative; what a level saves depends on whether it is differentiated again."""
    found: list[tuple[str, bool, CompiledProgram]] = []
    for (derivation, _), pair in captured.pairs.items():
        order = len(derivation)
        found += [(f"order {order}, saving", True, pair.forward), (f"order {order + 1}", True, pair.backward)]
    return [*found, *((f"order {len(steps)}, alone", False, one) for steps, one in captured.programs.items())]


# ---------------------------------------------------------------- compilers that compile nothing
@contextmanager
def _settings() -> Generator[None]:
    """Nothing that this process or its tests were told."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("VGRAPH_") or name in KEPT}
    with mock.patch.dict(os.environ, own | SETTINGS, clear=True):
        yield


@contextmanager
def _without_compilers() -> Generator[None]:
    with (
        mock.patch.dict(compiler.TARGETS, cpu=lambda specs: None),
        mock.patch.object(compiler, "load_native", lambda: None),
        mock.patch.object(compiler, "build_kernels", _refuse),
    ):
        yield


def _refuse(*given: Any) -> Any:
    raise AssertionError("a print needs no compiler")


@contextmanager
def _noting(texts: Texts) -> Generator[None]:
    """Compilers note what they are given, and give functions that nobody may call."""
    emit_kernels, emit_cuda, emit_loop = compiler.emit_kernels, compiler.emit_cuda, compiler.emit_loop
    compile_reduction = compiler.compile_reduction

    def kernels(specs: Sequence[KernelSpec]) -> str:
        texts.kernels.append(emit_kernels(specs))
        return texts.kernels[-1]

    def kernels_on_device(specs: Sequence[KernelSpec]) -> tuple[str, list[DeviceLoop]]:
        source, loops = emit_cuda(specs)
        texts.kernels.append(source)
        texts.launches.append(loops)
        return source, loops

    def loop(body: LoopBody, name: str) -> tuple[str, LoopOnDevice] | None:
        made = emit_loop(body, name)
        texts.loops += [made] if made is not None else []
        return made

    def reduction(given: Reduction) -> CompiledReduction:
        texts.reductions.append(given)
        return compile_reduction(given)

    native = native_part.build_native  # without the cache that others share
    parts: dict[str, Callable[..., Any]] = {"emit_kernels": kernels, "emit_cuda": kernels_on_device, "emit_loop": loop}
    parts |= {"compile_reduction": reduction, "load_native": native}
    functions = {"build_kernels": lambda source, count, level="": [_Function(0)] * count}
    parts |= {"find_known": lambda specs: None, "remember": lambda specs, source: None}  # else nothing may be printed
    joined = functions | {"join_native": lambda parts, **settings: Native(*parts[0], **settings)}
    with ExitStack() as stack:
        stack.enter_context(mock.patch.multiple(compiler, **(parts | functions)))
        stack.enter_context(mock.patch.multiple(native_part, **joined))
        stack.enter_context(mock.patch.object(cuda, "missing", lambda: None))
        stack.enter_context(mock.patch.object(cuda, "load", lambda build, names: dict.fromkeys(names, _refuse)))
        yield


def _compile_for(kind: str, plain: CompiledProgram, call_context: CallContext) -> Target:
    """As for a call of that kind of device on the same graph."""
    degree = plain.inner_degree
    if plain.varies and call_context.types is None:
        with _without_compilers():
            degree = plain.make_plan(plain, call_context).schedule.inner_degree
    texts = Texts()
    with _noting(texts):
        compiled = plain.make_for(kind, degree)
    with _without_compilers():
        plan = compiled.make_plan(compiled, call_context)
        assert plan.memory is not None
    return Target(compiled, call_context.topology, plan, texts)
