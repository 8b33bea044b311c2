"""Several types of vertices: a loop for each, which take turns; the numbers are those of one vertex at a time."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import vgraph
from tests.runtime.engine_models import GRAPHS, GRU, PLAIN, WIDTH, features, outcome, outcome_with, random_dag
from vgraph import compiler
from vgraph.runtime.python_codegen import PhaseCode

pytestmark = pytest.mark.usefixtures("with_kernels")


class Token(vgraph.VertexFunction):
    """Reads no child; its state is its feature."""

    def forward(self, v: vgraph.Vertex) -> None:
        v.scatter(h=v.pull("x"))
        v.push(h=v.pull("x"))


class Gate(vgraph.VertexFunction):
    """Children weighed by what stands on their edge; an output that no other type has."""

    def __init__(self) -> None:
        super().__init__()
        self.W, self.U = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2 * WIDTH)

    def forward(self, v: vgraph.Vertex) -> None:
        own, gate = self.U(v.gather()["h"] * v.pull_edge("w")).sum().chunk(2, -1)
        h = torch.tanh(self.W(v.pull("x")) + own) * torch.sigmoid(gate)
        v.scatter(h=h)
        v.push(h=h, own=own)


class Product(vgraph.VertexFunction):
    """No parameters of its own."""

    def forward(self, v: vgraph.Vertex) -> None:
        h = torch.tanh(v.gather()["h"].prod())
        v.scatter(h=h)
        v.push(h=h)


def case(graph: str, kinds: int = 4) -> tuple[vgraph.ByType, vgraph.Graph, Tensor]:
    g = random_dag(60, 110) if graph == "deep" else GRAPHS[graph]()
    g.ndata["kind"] = torch.randint(0, kinds, (g.num_nodes(),))
    g.edata["w"] = torch.randn(g.num_edges(), 1, dtype=torch.float64)
    parts: dict[int, vgraph.VertexFunction] = {0: Token(), 1: Gate(), 2: GRU(), 3: Product()}
    model = vgraph.ByType({k: parts[k] for k in range(kinds)}, key="kind", states={"h": WIDTH}).double()
    return model, g, features(g)


SETTINGS = [{}, {"VGRAPH_NATIVE": "0"}, {"VGRAPH_LEAVES": "0"}, PLAIN]
CASES = [(policy, "deep", one) for policy in ("frontier", "type-aware") for one in SETTINGS]
CASES += [("type-aware", graph, SETTINGS[0]) for graph in ("trees", "star", "points")]


@pytest.mark.parametrize(("policy", "graph", "switches"), CASES, ids=str)
def test_types_agree_with_one_vertex_at_a_time(
    policy: str, graph: str, switches: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, g, x = case(graph)
    model.policy = "serial"
    wanted = outcome_with(monkeypatch, PLAIN, model, g, x)
    model.policy = policy
    for one, two in zip(outcome_with(monkeypatch, switches, model, g, x), wanted, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-12)


def test_loops_of_types_are_native(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[PhaseCode] = []
    real = compiler._compile_phase

    def watched(phase, *rest):
        seen.append(real(phase, *rest))
        return seen[-1] if phase.is_loop else real(phase, *rest)

    monkeypatch.setattr(compiler, "_compile_phase", watched)
    model, g, x = case("deep", 3)
    outcome(model, g, x)
    loops = [code for code in seen if "for x in extents" in code.source or code.loop is not None]
    assert loops and all(code.loop is not None for code in loops), [c.source for c in loops if c.loop is None]


def test_second_derivatives_of_types() -> None:
    model, g, _ = case("trees", 2)
    g = vgraph.graph(([0, 1, 2, 3], [2, 2, 4, 4]))
    g.ndata["kind"], g.edata["w"] = torch.tensor([0, 1, 1, 0, 1]), torch.randn(4, 1, dtype=torch.float64)
    x = features(g)
    assert torch.autograd.gradgradcheck(lambda x: model(g, x=x)["h"], (x,))
