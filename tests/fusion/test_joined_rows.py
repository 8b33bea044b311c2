"""Rows of vertices that are joined of several: kernels put the pieces in their place, on CPUs and as CUDA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import vgraph
import vgraph.function as fn
from tests.cuda import shim
from tests.tables import table
from vgraph.api.messages.update_all import capture_update
from vgraph.capture import capture
from vgraph.fusion.cpu import build
from vgraph.ir.program import op_name
from vgraph.passes import join_once

pytestmark = [
    pytest.mark.skipif(build.find_compiler() is None, reason="there is no C++ compiler"),
    pytest.mark.usefixtures("kernels"),
]
N = 40
Join = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def aggregations_by_degrees(mean: Tensor, most: Tensor, least: Tensor, degree: Tensor) -> Tensor:
    """Corso et al. 2020: each aggregation, and each scaled by two functions of the degree."""
    rows = torch.cat([mean, most, least, torch.sqrt(mean * mean + 1)], -1)
    return torch.cat([rows, rows * torch.log(degree + 1), rows / torch.log(degree + 2)], -1)


def deeper(mean: Tensor, most: Tensor, least: Tensor, degree: Tensor) -> Tensor:
    """What is joined is joined, mapped and joined again; one of the pieces is read besides."""
    pair = torch.cat([mean, most], -1)
    twice = torch.cat([pair.tanh(), least, -pair], -1)
    return torch.cat([twice * degree, most, twice], -1) + most.sum(-1, keepdim=True)


def stacked(mean: Tensor, most: Tensor, least: Tensor, degree: Tensor) -> Tensor:
    return torch.stack([mean, most * degree, least], 1)


def stacked_last(mean: Tensor, most: Tensor, least: Tensor, degree: Tensor) -> Tensor:
    return torch.stack([mean, most, least + degree], -1)


def of_several_widths(mean: Tensor, most: Tensor, least: Tensor, degree: Tensor) -> Tensor:
    return torch.cat([mean[:, :1], degree, most * mean, least.sum(-1, keepdim=True), least.repeat(1, 2)], -1)


def along_the_first_of_two_dims(mean: Tensor, most: Tensor, least: Tensor, degree: Tensor) -> Tensor:
    """Heads, not features, are joined: each piece is a range of the whole row."""
    rows = [t.unflatten(-1, (1, -1)) for t in (mean, most, least)]
    return torch.cat([rows[0], torch.cat(rows, 1) * degree.unsqueeze(-1), rows[2]], 1)


def among_the_last_of_two_dims(mean: Tensor, most: Tensor, least: Tensor, degree: Tensor) -> Tensor:
    """A piece of every head lies beside those of others."""
    rows = [t.unflatten(-1, (-1, 1)) for t in (mean, most, least)]
    return torch.cat([torch.cat(rows, 2), rows[1] * degree.unsqueeze(-1)], 2)


def given_as_it_is_too(mean: Tensor, most: Tensor, least: Tensor, degree: Tensor) -> Tensor:
    """A product reads the joined row, too, and it is added to what is made of that."""
    rows = torch.cat([mean, most * degree, least], -1)
    return rows @ torch.ones(rows.shape[1], 3, dtype=rows.dtype) + rows[:, :3].sin()


JOINS: list[Join] = [
    aggregations_by_degrees,
    deeper,
    stacked,
    stacked_last,
    of_several_widths,
    along_the_first_of_two_dims,
    among_the_last_of_two_dims,
    given_as_it_is_too,
]


def graph() -> vgraph.Graph:
    """Some vertices have no in-edges, some no out-edges."""
    made = torch.Generator().manual_seed(0)
    src, dst = torch.randint(0, N - 3, (150,), generator=made), torch.randint(4, N, (150,), generator=made)
    return vgraph.graph((src, dst), num_nodes=N)


def run(join: Join, width: int, dtype: torch.dtype, *, orders: int) -> list[Tensor]:
    """The result, and derivatives of as many orders."""
    g, made = graph(), torch.Generator().manual_seed(1)
    x = torch.randn(N, width, dtype=torch.float64, generator=made).to(dtype).requires_grad_()
    weight = torch.randn(N, width, dtype=torch.float64, generator=made).to(dtype)
    g.ndata["x"], g.ndata["d"] = x * weight, g.in_degrees().to(dtype).unsqueeze(-1)
    g.update_all(fn.u_mul_v("x", "x", "m"), _in_degree(join))
    found = [g.ndata["h"]]
    for _ in range(orders):
        found += torch.autograd.grad((found[-1] * found[-1].detach().cos()).sum(), [x], create_graph=True)
    return [t.detach() for t in found]


def _in_degree(join: Join) -> Callable[[Any], dict[str, Tensor]]:
    def reduce(nodes: Any) -> dict[str, Tensor]:
        m = nodes.mailbox["m"]
        return {"h": join(m.mean(1), m.amax(1), m.amin(1), nodes.data["d"])}

    return reduce


@pytest.mark.parametrize(
    ("join", "width", "dtype"), table(JOINS, [1, 5, 16, 33], [torch.float32, torch.float64, torch.bfloat16])
)
def test_as_the_library(join: Join, width: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    if width < 3 and join is given_as_it_is_too:
        width = 3
    orders = {torch.float64: 2, torch.float32: 1, torch.bfloat16: 0}[dtype]  # rounded, other edges have the extremes
    fused = run(join, width, dtype, orders=orders)
    monkeypatch.setenv("VGRAPH_KERNELS", "0")
    capture.forget()
    exact = run(join, width, torch.float64 if dtype != torch.bfloat16 else dtype, orders=orders)
    close = {torch.float32: 2e-4, torch.float64: 1e-11, torch.bfloat16: 0.05}[dtype]
    for mine, theirs in zip(fused, exact, strict=True):
        assert mine.dtype == dtype and mine.is_contiguous()
        assert (mine.double() - theirs.double()).abs().max() <= close * theirs.double().abs().max().clamp(min=1)


@pytest.mark.parametrize("join", [aggregations_by_degrees, stacked, along_the_first_of_two_dims])
def test_one_kernel_and_no_library_call(join: Join) -> None:
    g = graph()
    g.ndata["x"], g.ndata["d"] = torch.randn(N, 8), g.in_degrees().float().unsqueeze(-1)
    bound, _ = capture_update(g, fn.copy_u("x", "m"), _in_degree(join))
    units = [unit for code in bound.plain(()).codes for unit in code.units]
    assert [unit.op for unit in units] == [None]


def test_rows_that_no_kernel_makes_stay_the_librarys() -> None:
    """Nothing is won by copying what lies in memory in another way than torch does."""
    g = graph()
    g.ndata["x"], g.ndata["d"] = torch.randn(N, 8), torch.randn(N, 3)

    def reduce(nodes: Any) -> dict[str, Tensor]:
        return {"h": torch.cat([nodes.data["x"], nodes.data["d"]], -1), "s": nodes.mailbox["m"].sum(1)}

    bound, _ = capture_update(g, fn.copy_u("x", "m"), reduce)
    names = [op_name(unit.op.target) for code in bound.plain(()).codes for unit in code.units if unit.op is not None]
    assert names == ["cat"]


@pytest.mark.parametrize("most", [3, 64])
def test_pieces_that_one_row_has_too_many_of_are_there_for_another(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_once, "_MOST_PIECES", most)
    g, x = graph(), torch.randn(N, 2, dtype=torch.float64)

    def reduce(nodes: Any) -> dict[str, Tensor]:
        m = nodes.mailbox["m"]
        rows = torch.cat([m.sum(1), m.amax(1)], -1)
        bent = rows.tanh()
        return {"many": torch.cat([rows, bent], -1), "few": torch.cat([bent, m.sum(1)], -1)}

    g.ndata["x"] = x
    g.update_all(fn.copy_u("x", "m"), reduce)
    src, dst = g.edges()
    sums = torch.zeros_like(x).index_add(0, dst, x[src])
    most_of = torch.zeros_like(x).scatter_reduce(0, dst[:, None].expand(-1, 2), x[src], "amax", include_self=False)
    rows = torch.cat([sums, most_of], -1)
    torch.testing.assert_close(g.ndata["many"], torch.cat([rows, rows.tanh()], -1))
    torch.testing.assert_close(g.ndata["few"], torch.cat([rows.tanh(), sums], -1))


@pytest.mark.parametrize("join", JOINS)
def test_as_cuda(join: Join) -> None:
    here = run(join, 20, torch.float32, orders=1)
    capture.forget()
    shim.launched.clear()
    with shim.in_place_of_cpu():
        there = run(join, 20, torch.float32, orders=1)
    assert "kernel0" in shim.launched
    for mine, theirs in zip(there, here, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=2e-4, atol=2e-4)
