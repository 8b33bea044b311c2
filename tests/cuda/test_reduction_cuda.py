"""Reductions for a GPU: the generated CUDA on the CPU against torch, and as machine code."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import partial
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

import vgraph
import vgraph.api.reduce as reducing
from tests.cuda import shim
from tests.fusion.test_reduction import agrees, last, numbers
from vgraph import compiler
from vgraph.fusion.cpu import build
from vgraph.fusion.cuda import build as build_cuda
from vgraph.ir.modes import virtual_modes
from vgraph.runtime.reductions.cuda import bind_device, plan_device
from vgraph.runtime.reductions.reduction import torch_reduce

pytestmark = pytest.mark.skipif(build.find_compiler() is None, reason="there is no C++ compiler")


@pytest.fixture(autouse=True)
def in_place_of_cpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    reducing.forget()
    with mock.patch.dict(compiler.REDUCTIONS, cpu=partial(bind_device, load=shim.load_reduction)):
        yield
    reducing.forget()


SHAPES = [(3000,), (33, 17, 8), (3, 4, 1, 4, 3, 4), (2, 3, 9000), (40, 12)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_subset_of_modes(shape: tuple[int, ...]) -> None:
    shim.launched.clear()
    given = numbers(shape, "max", torch.float32)
    chosen = [dims for n in range(1, len(shape) + 1) for dims in itertools.combinations(range(len(shape)), n)]
    for x, dims in itertools.product((given, given.transpose(0, -1)), chosen[:: 1 + len(chosen) // 16]):
        agrees(vgraph.reduce(x, dims, "max"), x, dims, "max")
    assert shim.launched


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min"])
def test_orders_to_six(name: str, dtype: torch.dtype) -> None:
    for shape, dims in [((6, 40), (1,)), ((4, 3, 8), (0, 2)), ((3, 2, 4, 8), (0, 1)), ((2, 3, 2, 3, 4), (1, 3, 4)),
                        ((2, 3, 2, 3, 2, 4), (0, 2, 4)), ((2, 3, 2, 3, 2, 4), (1, 3, 5))]:  # fmt: skip
        x = numbers(shape, name, dtype)
        agrees(vgraph.reduce(x, dims, name), x, dims, name)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtypes(dtype: torch.dtype) -> None:
    x = numbers((16, 9, 40), "sum", dtype)
    for dims in [(0, 2), (0, 1), (1,)]:
        agrees(vgraph.reduce(x, dims, "sum"), x, dims, "sum")


def test_a_slice_that_fills_many_blocks_is_cut_and_combined_in_order() -> None:
    shim.launched.clear()
    x = torch.rand(30000, 3)
    assert vgraph.reduce(x, 0, last).equal(x[-1])
    assert vgraph.reduce(x.T.contiguous(), 1, last).equal(x[-1])
    agrees(vgraph.reduce(x, 0), x, (0,), "sum")
    assert "kernel1" in shim.launched


def test_functions_in_order() -> None:
    x = torch.rand(7, 70, 6)
    for dims in [(0,), (1,), (2,), (0, 2), (0, 1, 2)]:
        assert vgraph.reduce(x, dims, last).equal(torch_reduce(x, dims, "", last))


def test_what_follows() -> None:
    for shape, dims in [((16, 9, 40), (0, 2)), ((30000, 3), (0,)), ((3, 30000), (1,))]:
        x = torch.rand(shape)
        got = vgraph.reduce((x,), dims, of=lambda x: x * x, then=lambda r: torch.sqrt(r) + 1)
        torch.testing.assert_close(got, (x * x).sum(dims).sqrt() + 1)


def test_producers_and_gradients() -> None:
    a, b = torch.randn(6, 5, 16, requires_grad=True), torch.randn(5, 1, requires_grad=True)

    def product(a: Tensor, b: Tensor) -> Tensor:
        return torch.tanh(a) * b

    got = vgraph.reduce((a, b), (0, 2), of=product)
    want = product(a, b).sum((0, 2))
    torch.testing.assert_close(got, want)
    for mine, theirs in zip(*(torch.autograd.grad(y.square().sum(), (a, b)) for y in (got, want)), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_two_runs_and_any_order_of_threads_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(64, 300, 3)
    first = vgraph.reduce(x, (0, 1))
    assert vgraph.reduce(x, (0, 1)).equal(first)
    monkeypatch.setattr(shim, "_backwards", [1])
    assert vgraph.reduce(x, (0, 1)).equal(first)


def test_blocks_of_large_tensors_fill_a_gpu() -> None:
    """64 M elements, which nothing here computes."""
    for shape, dims in [
        ((500000, 8, 16), (1, 2)),
        ((8, 500000, 16), (0, 2)),
        ((256, 512, 512), (1, 2)),
        ((1 << 26,), (0,)),
    ]:
        strides = [tuple(4 * math.prod(shape[d + 1 :]) for d in range(len(shape)))]
        modes = virtual_modes(shape, dims, strides, in_order=False)
        plan = plan_device(modes, ("unit",), [4], aligned=True, in_order=False)
        assert plan is not None and plan.shape.lanes == 4
        assert plan.blocks * plan.chunks >= 1024


@pytest.mark.skipif(build_cuda.find_nvrtc() is None, reason="there is no NVRTC")
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_machine_code_spills_nothing(architecture: str) -> None:
    shim.reduction_sources.clear()
    x: Any = torch.randn(16, 9, 40)
    for dims, op in [((0, 2), "sum"), ((0, 1), "max"), ((0, 1, 2), last)]:
        vgraph.reduce(x, dims, op)
    vgraph.reduce((x, x[0], x[..., :1]), (0, 2), of=lambda a, b, c: torch.sigmoid(a * b) + c, then=torch.exp)
    nvrtc = build_cuda.find_nvrtc()
    assert nvrtc is not None and len(shim.reduction_sources) == 4
    for source in shim.reduction_sources:
        cubin, said = nvrtc.compile(source, architecture)
        assert cubin[:4] == b"\x7fELF", said
        assert said.count("0 bytes spill stores, 0 bytes spill loads") == source.count("__global__"), said
