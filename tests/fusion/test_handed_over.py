"""Products on edges that two kernels need: one makes them, and leaves the other a row an edge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vgraph
from tests.runtime.test_chunks import cut_small
from vgraph import compiler
from vgraph.capture import capture
from vgraph.fusion.cpu import build
from vgraph.fusion.grouping import PhaseGrouping
from vgraph.ir.kernel import KernelSpec, Unit
from vgraph.ir.row_ops import row_product
from vgraph.ir.schedule import Phase
from vgraph.ir.space import EDGE

pytestmark = pytest.mark.skipif(build.find_compiler() is None, reason="there is no C++ compiler")
NUM_NODES, NUM_EDGES, WIDTH, CENTRES = 30, 160, 16, 20


class Filters:
    """Messages of a SchNet: neighbours' rows times a network of the distance."""

    def __init__(self) -> None:
        made = torch.Generator().manual_seed(0)
        src, dst = torch.randint(NUM_NODES, (2, NUM_EDGES), generator=made)
        self.g = vgraph.graph((src, dst + (src == dst)), num_nodes=NUM_NODES + 1)
        self.place = torch.randn(NUM_NODES + 1, 3, dtype=torch.float64, generator=made).requires_grad_()
        self.h = torch.randn(NUM_NODES + 1, WIDTH, dtype=torch.float64, generator=made).requires_grad_()
        self.net = nn.Sequential(nn.Linear(CENTRES, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH)).double()
        self.leaves = [self.place, self.h, *self.net.parameters()]

    def weights(self, distance: Tensor) -> Tensor:
        return self.net(torch.exp(-((distance - torch.linspace(0, 2, CENTRES, dtype=torch.float64)) ** 2)))

    def message(self, edges: Any) -> dict[str, Tensor]:
        distance = (edges.src["r"] - edges.dst["r"]).norm(dim=-1, keepdim=True)
        return {"m": edges.src["h"] * self.weights(distance)}

    def by_vgraph(self) -> Tensor:
        self.g.ndata["r"], self.g.ndata["h"] = self.place, self.h
        self.g.update_all(self.message, lambda nodes: {"o": nodes.mailbox["m"].sum(1)})
        return self.g.ndata["o"]

    def by_hand(self) -> Tensor:
        src, dst = self.g.edges()
        distance = (self.place[src] - self.place[dst]).norm(dim=-1, keepdim=True)
        return torch.zeros_like(self.h).index_add(0, dst, self.h[src] * self.weights(distance))

    def derivatives(self, function: Callable[[], Tensor]) -> tuple[Tensor, ...]:
        """Of the sum of squares by all leaves: sums over in-edges, over out-edges and over all edges."""
        return torch.autograd.grad(function().square().sum(), self.leaves)

    def second_derivatives(self, function: Callable[[], Tensor]) -> tuple[Tensor, ...]:
        """Of the squares of forces, which are derivatives by places."""
        (force,) = torch.autograd.grad(function().square().sum(), self.place, create_graph=True)
        return torch.autograd.grad(force.square().sum(), self.leaves[1:])


@pytest.fixture
def units(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Unit]]:
    """All that phases consist of."""
    seen, group_ops = list[Unit](), compiler.group_ops

    def noted(
        phase: Phase, wanted: set[int], names: Mapping[int, str], begun: PhaseGrouping | None
    ) -> tuple[Unit, ...]:
        made = group_ops(phase, wanted, names, begun)
        seen.extend(made)
        return made

    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    monkeypatch.setattr(compiler, "group_ops", noted)
    capture.forget()
    yield seen
    capture.forget()


@pytest.fixture
def uncompiled(units: list[Unit], monkeypatch: pytest.MonkeyPatch) -> list[Unit]:
    """Those, where torch's operators run."""
    monkeypatch.setitem(compiler.TARGETS, "cpu", lambda given: None)
    return units


def over_out_edges(units: Sequence[Unit]) -> list[KernelSpec]:
    return [unit.kernel for unit in units if unit.kernel is not None and unit.kernel.is_source]


def handed_over(units: Sequence[Unit]) -> set[tuple[int, ...]]:
    """The shapes of rows of edges that kernels over out-edges read, none of which has a product."""
    kernels = over_out_edges(units)
    assert kernels and not any(row_product(op) for spec in kernels for op in spec.ops)
    return {v.row_shape for spec in kernels for v in spec.loads if v.space == EDGE}


def test_kernels_over_out_edges_read_what_products_led_to(units: list[Unit], monkeypatch: pytest.MonkeyPatch) -> None:
    given = Filters()
    found, wanted = given.derivatives(given.by_vgraph), given.derivatives(given.by_hand)
    torch.testing.assert_close(found, wanted)
    assert handed_over(units) == {(1,), (WIDTH,)}, "of three gradients of places what they have in common"

    seen, given = cut_small(monkeypatch, 2000), Filters()  # a graph that has not been run whole
    torch.testing.assert_close(given.derivatives(given.by_vgraph), given.derivatives(given.by_hand))
    assert len(seen) > 10 and max(seen) < NUM_EDGES / 2, "these rows are never those of all edges"


def test_second_derivatives_make_each_product_once_and_store_nothing_else(
    uncompiled: list[Unit],
) -> None:
    given = Filters()
    found, wanted = given.second_derivatives(given.by_vgraph), given.second_derivatives(given.by_hand)
    torch.testing.assert_close(found, wanted)
    assert handed_over(uncompiled) >= {(1,), (WIDTH,)}
    alone = [unit.op for unit in uncompiled if unit.op is not None]
    assert not any(value.space == EDGE for op in alone for value in op.results)


def test_what_in_edges_do_not_need_is_computed_where_it_is_read(uncompiled: list[Unit]) -> None:
    """With weights that are not trained, and places that do not move, nothing but a sum over out-edges has products."""
    given = Filters()
    given.net.requires_grad_(False)
    given.place.requires_grad_(False)
    found, wanted = (torch.autograd.grad(f().square().sum(), given.h)[0] for f in (given.by_vgraph, given.by_hand))
    torch.testing.assert_close(found, wanted)
    (backward,) = over_out_edges(uncompiled)
    assert any(row_product(op) for op in backward.ops) and not any(v.space == EDGE for v in backward.loads)
