"""Products on edges are made for some edges of a row at a time, and for each edge are what they are alone."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vgraph
from tests.tables import thorough
from vgraph.fusion.cpu import build
from vgraph.fusion.cpu.edge_blocks import MOST_EDGES

pytestmark = pytest.mark.skipif(build.find_compiler() is None, reason="there is no C++ compiler")
IN_DEGREES = (0, 1, 2, 3, 4, MOST_EDGES - 1, MOST_EDGES, MOST_EDGES + 1, 2 * MOST_EDGES, 3 * MOST_EDGES + 5, 512, 530)


@pytest.fixture(autouse=True)
def with_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGRAPH_KERNELS", "1")


def _graph() -> vgraph.Graph:
    """A vertex for each in-degree, whose in-edges come from vertices at random."""
    dst = torch.repeat_interleave(torch.arange(len(IN_DEGREES)), torch.tensor(IN_DEGREES))
    src = torch.randint(len(IN_DEGREES), dst.shape, generator=torch.Generator().manual_seed(1))
    return vgraph.graph((src, dst), num_nodes=len(IN_DEGREES))


class Filters:
    """Messages through two layers on edges; ``width``: of the layer between, with which vectors overlap or not."""

    def __init__(self, width: int, dtype: torch.dtype) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(5, width), nn.SiLU(), nn.Linear(width, 19)).to(dtype)
        self.g, nodes = _graph(), len(IN_DEGREES)
        self.x = torch.randn(nodes, 5, dtype=dtype, requires_grad=True)
        self.h = torch.randn(nodes, 19, dtype=dtype, requires_grad=True)

    def message(self, edges: Any) -> dict[str, Tensor]:
        return {"m": self.net(edges.src["x"] * edges.dst["x"]) * edges.src["h"]}

    def by_vgraph(self) -> Tensor:
        self.g.ndata["x"], self.g.ndata["h"] = self.x, self.h
        self.g.update_all(self.message, lambda nodes: {"o": nodes.mailbox["m"].sum(1)})
        return self.g.ndata["o"]

    def by_hand(self) -> Tensor:
        src, dst = self.g.edges()
        given = self.net(self.x[src] * self.x[dst]) * self.h[src]
        return torch.zeros_like(self.h).index_add(0, dst, given)

    def all_derivatives(self, result: Tensor) -> tuple[Tensor, ...]:
        """The result, what it is by all leaves, and what the squares of its slopes are by the rest."""
        leaves = [self.x, self.h, *self.net.parameters()]
        first = torch.autograd.grad(result.square().sum(), leaves, create_graph=True)
        second = torch.autograd.grad(first[0].square().sum(), leaves[1:])
        return result, *first, *second


@pytest.mark.parametrize("width", [pytest.param(3, marks=thorough), 24, pytest.param(144, marks=thorough)])
def test_rows_of_every_length_give_what_torch_does(width: int) -> None:
    filters = Filters(width, torch.float64)
    made = filters.all_derivatives(filters.by_vgraph())
    expected = filters.all_derivatives(filters.by_hand())
    for one, other in zip(made, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_threads_do_not_matter_for_a_single_bit() -> None:
    filters, threads = Filters(32, torch.float32), torch.get_num_threads()
    made: list[tuple[Tensor, ...]] = []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            made.append(filters.all_derivatives(filters.by_vgraph()))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for other in made[1:] for a, b in zip(made[0], other, strict=True))


@pytest.mark.parametrize("width", [1, 40, 64])
def test_an_edges_product_does_not_depend_on_its_place_in_a_block(width: int) -> None:
    """What is computed again in a backward, for blocks over out-edges, too, has to be the same number."""
    g, net = _graph(), nn.Sequential(nn.Linear(7, width), nn.Tanh())
    g.edata["x"] = torch.randn(7).expand(g.num_edges(), 7).contiguous()

    def message(edges: Any) -> dict[str, Tensor]:
        return {"m": net(edges.data["x"])}

    g.update_all(message, lambda nodes: {"least": nodes.mailbox["m"].amin(1), "most": nodes.mailbox["m"].amax(1)})
    assert torch.equal(g.ndata["least"], g.ndata["most"])
    least = g.ndata["least"][1:]
    assert torch.equal(least, least[:1].expand_as(least)), "whatever the in-degree"


@pytest.mark.parametrize("also_computed", [False, True], ids=["loaded", "loaded and computed"])
def test_products_of_rows_in_memory(also_computed: bool) -> None:
    """Where all are such, edges come one by one, forward and where weights get their gradients."""
    g = _graph()
    torch.manual_seed(0)
    one, other = nn.Linear(8, 19).double(), nn.Linear(19, 19).double()
    x = torch.randn(g.num_nodes(), 19, dtype=torch.float64, requires_grad=True)
    w = torch.randn(g.num_edges(), 8, dtype=torch.float64, requires_grad=True)

    def gate(w: Tensor, near: Tensor, far: Tensor) -> Tensor:
        gated = torch.sigmoid(one(w) + near) * far
        return other(gated) if also_computed else gated

    g.ndata["x"], g.edata["w"] = x, w
    g.update_all(
        lambda edges: {"m": gate(edges.data["w"], edges.dst["x"], edges.src["x"])},
        lambda nodes: {"o": nodes.mailbox["m"].sum(1)},
    )
    src, dst = g.edges()
    wanted = torch.zeros_like(x).index_add(0, dst, gate(w, x[dst], x[src]))
    torch.testing.assert_close(g.ndata["o"], wanted)
    leaves = [x, w, *one.parameters(), *(other.parameters() if also_computed else ())]
    found, by_hand = (torch.autograd.grad(out.square().sum(), leaves) for out in (g.ndata["o"], wanted))
    torch.testing.assert_close(found, by_hand)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rows_in_memory_have_a_dtype_of_their_own(dtype: torch.dtype, caplog: pytest.LogCaptureFixture) -> None:
    """Numbers of 16 bits are multiplied where they lie, and no kernel takes them for floats."""
    g, net = _graph(), nn.Linear(5, 8).to(dtype)
    x = torch.randn(g.num_edges(), 5).to(dtype).requires_grad_()
    g.edata["x"] = x
    with caplog.at_level(logging.INFO, "vgraph"):
        g.apply_edges(lambda edges: {"y": torch.tanh(net(edges.data["x"]))})
        (made,) = torch.autograd.grad(g.edata["y"].sum(), x)
    (expected,) = torch.autograd.grad(torch.tanh(net(x)).sum(), x)
    far = 0.02 if dtype.itemsize == 2 else 1e-5
    torch.testing.assert_close(g.edata["y"], torch.tanh(net(x)), rtol=far, atol=far)
    torch.testing.assert_close(made, expected, rtol=far, atol=far)
    assert not caplog.text
