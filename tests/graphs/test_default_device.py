"""Under ``torch.set_default_device`` graphs and features stay where they were put, and so does all in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import vgraph
import vgraph.function as fn
from tests.runtime.engine_models import GRAPHS, MODELS, WIDTH
from vgraph.capture import capture
from vgraph.nn import EdgeWeightNorm, GATConv, LabelPropagation


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    capture.forget()
    yield
    capture.forget()


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


def test_reduce() -> None:
    with torch.device("meta"):
        assert vgraph.reduce(on_cpu(3, 4, 5).detach().exp(), (0, 2)).device.type == "cpu"


def test_normed_weights_and_spread_labels() -> None:
    g = vgraph.graph(([0, 1, 1], [1, 2, 0]))
    weights, labels = torch.ones(3), torch.tensor([0, 1, 0])
    with torch.device("meta"):
        assert EdgeWeightNorm()(g, weights).device.type == LabelPropagation(2, 0.5)(g, labels).device.type == "cpu"
