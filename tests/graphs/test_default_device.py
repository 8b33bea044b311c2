"""Under ``torch.set_default_device`` graphs and features stay where they were put, and so does all in between."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import vgraph
import vgraph.function as fn
from tests.runtime.engine_models import GRAPHS, MODELS, WIDTH
from vgraph import native_part
from vgraph.nn import EdgeWeightNorm, GATConv, LabelPropagation
from vgraph.runtime.cpu import products
from vgraph.sampling import DataLoader, NeighborSampler

pytestmark = pytest.mark.usefixtures("kernels")


def on_cpu(*shape: int) -> Tensor:
    return torch.randn(*shape, device="cpu", requires_grad=True)


def gated(g: vgraph.Graph) -> Tensor:
    g.update_all(
        lambda e: {"m": torch.sigmoid(e.src["h"] + e.dst["h"]) * e.src["h"]}, lambda v: {"o": v.mailbox["m"].mean(1)}
    )
    return g.ndata["o"]


def sorted_slots(g: vgraph.Graph) -> Tensor:
    g.update_all(fn.copy_u("h", "m"), lambda v: {"o": v.mailbox["m"].sort(1).values[:, 0]})
    return g.ndata["o"]


FUNCTIONS: dict[str, Callable[[vgraph.Graph], Tensor]] = {"gated": gated, "sorted": sorted_slots}


@pytest.mark.parametrize("name", [*FUNCTIONS, "gat"])
def test_message_passing(name: str) -> None:
    layer = GATConv(4, 3, 2, allow_zero_in_degree=True)
    with torch.device("meta"):
        g = vgraph.graph(([0, 1, 1], [1, 2, 0]), num_nodes=4)
        g.ndata["h"] = on_cpu(4, 4)
        out = layer(g, g.ndata["h"]) if name == "gat" else FUNCTIONS[name](g)
        out.square().sum().backward()
        assert g.device.type == g.in_degrees().device.type == out.device.type == g.ndata["h"].grad.device.type == "cpu"


@pytest.mark.parametrize("name", MODELS)
def test_vertex_functions(name: str) -> None:
    model: Any = MODELS[name]()
    graphs = [make() for make in GRAPHS.values()]
    with torch.device("meta"):
        for g in graphs:
            both = vgraph.batch([g, g])
            outputs = model(both, x=on_cpu(both.num_nodes(), WIDTH))
            sum(rows.sum() for rows in outputs.values()).backward()
            assert {rows.device.type for rows in outputs.values()} == {"cpu"}


def test_products_that_are_measured() -> None:
    native = native_part.load_native()
    if native is None:
        pytest.skip("no compiler")
    a, b, ids = torch.randn(8, 16), torch.randn(20, 4), torch.arange(3, 19, dtype=torch.int32)
    with torch.device("meta"):
        ways = products._ways(native, a, b, ids)
        own, library = ways[products.OWN](), ways[products.LIBRARY]()
    torch.testing.assert_close(own, library)


class Looking(vgraph.VertexFunction):
    """Not captured: it looks at numbers."""

    def forward(self, v: vgraph.Vertex) -> None:
        total = v.gather()["s"].sum() + v.pull("x")
        v.scatter(s=total if total.detach().sum() > 0 else -total)
        v.push(s=total)


def changing(g: vgraph.Graph) -> Tensor:
    for step in (0.5, 0.25, 0.125, 0.0625):  # the third is another one at every call
        g.update_all(lambda e, step=step: {"m": e.src["h"] * step_of(step)}, fn.sum("m", "o"))
    return g.ndata["o"]


def step_of(step: float) -> float:
    return step + 0 * time.time()


def drawn(g: vgraph.Graph) -> Tensor:
    loader = DataLoader(g, g.nodes(), NeighborSampler([2, 2]), batch_size=2, shuffle=True)
    return torch.cat([blocks[0].srcdata["h"] for _, _, blocks in loader])


OTHERS: dict[str, Callable[[vgraph.Graph], Tensor]] = {
    "changing numbers": changing,
    "one vertex at a time": lambda g: Looking()(vgraph.graph(([0, 1], [2, 2])), x=g.ndata["h"][:3])["s"],
    "minibatches": drawn,
    "walks": lambda g: vgraph.sampling.random_walk(g, g.nodes(), length=2)[0],
    "random graphs": lambda g: vgraph.rand_graph(4, 5).edges()[0],
    "positions": lambda g: vgraph.lap_pe(vgraph.to_bidirected(g), 1),
    "sums of weights": lambda g: EdgeWeightNorm()(g, torch.ones(3, device="cpu")),
    "labels": lambda g: LabelPropagation(2, 0.5)(g, torch.tensor([0, 1, 0, 1], device="cpu")),
    "rows of a matrix": lambda g: g.adj().index_select(0, g.nodes()[:2]).val,
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_functions(name: str) -> None:
    with torch.device("meta"):
        g = vgraph.graph(([0, 1, 1], [1, 2, 0]), num_nodes=4)
        g.ndata["h"] = on_cpu(4, 4).detach()
        assert OTHERS[name](g).device.type == "cpu"


def test_reduce() -> None:
    with torch.device("meta"):
        assert vgraph.reduce(on_cpu(3, 4, 5).detach().exp(), (0, 2)).device.type == "cpu"


def test_normed_weights_and_spread_labels() -> None:
    g = vgraph.graph(([0, 1, 1], [1, 2, 0]))
    weights, labels = torch.ones(3), torch.tensor([0, 1, 0])
    with torch.device("meta"):
        assert EdgeWeightNorm()(g, weights).device.type == LabelPropagation(2, 0.5)(g, labels).device.type == "cpu"
