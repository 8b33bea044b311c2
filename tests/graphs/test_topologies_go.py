"""Index tensors of a graph that is gone go with it: nothing waits for the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import vgraph
import vgraph.function as fn
from vgraph.capture import capture
from vgraph.ir import topology


class Sum(vgraph.VertexFunction):
    def forward(self, v: vgraph.Vertex) -> None:
        s = v.pull("h") + v.gather()["s"].sum()
        v.scatter(s=s)
        v.push(s=s)


FORWARD, REVERSE = Sum(), Sum(direction="reverse")


def a_graph() -> vgraph.Graph:
    g = vgraph.graph(([0, 1, 0], [1, 2, 2]), num_nodes=5)
    g.ndata["h"] = torch.ones(5, 4, requires_grad=True)
    return g


def backward(out: Tensor) -> None:
    out.square().sum().backward()


def message_passing() -> None:
    g = a_graph()
    g.update_all(fn.copy_u("h", "m"), fn.mean("m", "o"))
    backward(g.ndata["o"])


def uncaptured() -> None:
    g = a_graph()
    g.update_all(branching, lambda nodes: {"o": nodes.mailbox["m"].sort(1).values[:, 0]})
    backward(g.ndata["o"])


def branching(edges: Any) -> dict[str, Tensor]:
    return {"m": edges.src["h"] if float(edges.src["h"].sum()) > 0 else edges.dst["h"]}


def vertex_function() -> None:
    backward(FORWARD(a_graph())["s"])


def against_edges() -> None:
    g = a_graph()
    backward(REVERSE(g)["s"])
    backward(FORWARD(g)["s"])


def turned_graph() -> None:
    g = a_graph().reverse(copy_ndata=True)
    backward(FORWARD(g)["s"] + REVERSE(g)["s"])


def batches() -> None:
    batch = vgraph.batch([a_graph(), a_graph()])
    backward(FORWARD(batch)["s"])
    for g in vgraph.unbatch(batch):
        backward(FORWARD(g)["s"])


def readout() -> None:
    batch = vgraph.batch([a_graph(), a_graph()])
    backward(vgraph.mean_nodes(batch, "h"))


def some_vertices() -> None:
    g = a_graph()
    g.pull([1, 2], fn.copy_u("h", "m"), fn.sum("m", "o"))
    g.apply_edges(fn.u_mul_v("h", "h", "w"), [0, 1])
    assert g.edata["w"].shape == (3, 4)


def walks() -> None:
    g = a_graph()
    vgraph.topological_nodes_generator(g)
    g.in_subgraph([2])
    vgraph.to_block(g)


CALLS = (
    message_passing,
    uncaptured,
    vertex_function,
    against_edges,
    turned_graph,
    batches,
    readout,
    some_vertices,
    walks,
)


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("kernels", ["0", "1"])
@pytest.mark.parametrize("call", CALLS)
def test_topologies_go_with_their_graph(
    call: Callable[[], None], kernels: str, no_collector: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VGRAPH_KERNELS", kernels)
    capture.forget()
    call()  # a recording may hold what it was made with until it is collected
    gc.collect()
    before = len(topology._by_number)
    for _ in range(3):
        call()
    assert len(topology._by_number) == before


def test_the_reverse_of_a_reverse() -> None:
    whole = a_graph().topology
    turned = whole.reversed
    assert turned.reversed is whole
    assert whole.reversed is turned
    ends = whole.src.tolist()
    del whole
    assert turned.reversed.src.tolist() == ends
    assert turned.reversed is turned.reversed
