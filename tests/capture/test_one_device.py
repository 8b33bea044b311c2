"""Recordings lie where the graph lies; what lies elsewhere is refused. Torch's "meta" stands in for a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import vgraph
import vgraph.function as fn
from vgraph import ops
from vgraph.api.graph import Graph
from vgraph.api.messages.propagate import capture_segments
from vgraph.capture import capture
from vgraph.errors import DeviceError, FeatureError


def triangle(device: str) -> Graph:
    g = vgraph.graph(([0, 1, 2], [1, 2, 0]))
    return g.to(device)


class Sum(vgraph.VertexFunction):
    """A linear map of the vertex and the sum of its children."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.U = nn.Linear(2, 2, device=device)

    def forward(self, v: vgraph.Vertex) -> None:
        h = torch.tanh(self.U(v.pull("x")) + v.gather()["h"].sum())
        v.scatter(h=h)
        v.push(h=h)


def line_of(error: FeatureError | DeviceError) -> str:
    """What stands in the line of this file that the message names."""
    number = str(error).split(f"{__file__}:")[1].split()[0]
    with open(__file__) as text:
        return text.read().splitlines()[int(number) - 1]


def test_a_function_with_parameters_is_recorded_where_its_graph_lies() -> None:
    """Forward and backward, guarded by the device: the same function on the CPU is another capture."""
    capture.forget()
    weight = [nn.Parameter(torch.ones(2, 3, device="meta"))]

    def message(edges: Any) -> dict[str, torch.Tensor]:
        return {"m": torch.relu(edges.src["h"] @ weight[0])}

    for device in ("meta", "cpu"):
        weight[0] = nn.Parameter(torch.ones(2, 3, device=device))
        g, rows = triangle(device), torch.ones(3, 2, device=device, requires_grad=True)
        frames = {"src": {"h": rows}, "dst": {"h": rows}, "edge": {}}
        bound, call_context = capture_segments(g.topology, frames, message, fn.sum("m", "o"))
        assert bound.captured.modes[-1] == torch.device(device)
        assert call_context.topology.src.device == torch.device(device)
        assert bound.captured.pairs, "the derivative was not recorded"
        for pair in bound.captured.pairs.values():
            assert pair.forward.device == device
    assert capture.num_captures() == 2


@pytest.mark.guards
@pytest.mark.parametrize("read", [True, False], ids=["first call", "captured before"])
def test_a_parameter_elsewhere(*, read: bool) -> None:
    capture.forget()
    g, weight = triangle("cpu"), [nn.Parameter(torch.ones(2, 3))]
    g.ndata["h"] = torch.ones(3, 2)

    def message(edges: Any) -> dict[str, torch.Tensor]:
        return {"m": edges.src["h"] @ weight[0]}

    if not read:
        g.update_all(message, fn.sum("m", "o"))
    weight[0] = nn.Parameter(torch.ones(2, 3, device="meta"))
    with pytest.raises(FeatureError, match=r"(?s)of shape \(2, 3\), is on meta, the graph on cpu.*\.to\(") as error:
        g.update_all(message, fn.sum("m", "o"))
    assert "weight[0]" in line_of(error.value)
    assert "o" not in g.ndata or not read


def test_a_parameter_of_a_vertex_function_elsewhere() -> None:
    with pytest.raises(FeatureError, match=r"(?s)is on meta, the graph on cpu.*cure: move model and graph"):
        Sum("meta")(vgraph.graph(([0, 1], [2, 2])), x=torch.ones(3, 2))


def test_a_feature_of_a_vertex_function_elsewhere() -> None:
    with pytest.raises(FeatureError, match="'x' is on meta, the graph on cpu"):
        Sum("cpu")(vgraph.graph(([0, 1], [2, 2])), x=torch.ones(3, 2, device="meta"))


@pytest.mark.parametrize("places", [("meta", "cpu"), ("cpu", "meta"), ("meta", "meta")], ids=str)
def test_operators_on_features_elsewhere(places: tuple[str, str]) -> None:
    rows, weights = (torch.ones(3, 2, device=device) for device in places)
    with pytest.raises(FeatureError, match=r"(?s)of shape \(3, 2\), is on meta, the graph on cpu") as error:
        ops.u_mul_e_sum(triangle("cpu"), rows, weights)
    assert "ops.u_mul_e_sum" in line_of(error.value)


@pytest.mark.guards
def test_single_numbers_may_lie_on_the_cpu() -> None:
    g, scale = triangle("meta"), torch.tensor(2.0)
    frames = {"src": {"h": torch.ones(3, 2, device="meta")}, "dst": {}, "edge": {}}
    bound, _ = capture_segments(g.topology, frames, lambda edges: {"m": edges.src["h"] * scale}, fn.sum("m", "o"))
    assert bound.captured.names == ("src:h", "lifted:0")


@pytest.mark.parametrize(
    "asks",
    [
        lambda: triangle("cpu").to(f"cuda:{torch.cuda.device_count()}"),  # the user's line
        lambda: triangle("cpu").to(torch.cuda.device_count()),  # the user's line
        lambda: vgraph.graph(([0], [1]), device=f"cuda:{torch.cuda.device_count()}"),  # the user's line
    ],
)
def test_a_gpu_that_is_not_there(asks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        DeviceError, match=r"(?s)lie on cuda:.*but torch .*(without CUDA|finds).*cure: .*vgraph info"
    ) as e:
        asks()
    assert "# the user's line" in line_of(e.value)
    with pytest.raises(RuntimeError):  # as torch's own errors are caught
        asks()
    if not torch.cuda.device_count():
        with pytest.raises(DeviceError, match="lie on cuda,"):
            triangle("cpu").cuda()
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    with pytest.raises(DeviceError, match=r"was built for CUDA 13.0 and finds \d+ GPUs"):
        asks()
