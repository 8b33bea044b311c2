"""explain: what moved, what is fused, what is stored, at what cost, with the user's lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vgraph
import vgraph.function as fn
from vgraph.capture import capture
from vgraph.errors import FunctionError
from vgraph.fusion.cpu import build

needs_compiler = pytest.mark.skipif(build.find_compiler() is None, reason="there is no C++ compiler")
WEIGHT = torch.ones(16, 8, requires_grad=True)


def gated(edges: Any) -> dict[str, Tensor]:
    gate = torch.sigmoid(torch.cat([edges.src["h"], edges.dst["b"]], -1) @ WEIGHT)
    return {"m": gate * edges.src["h"]}


def total(nodes: Any) -> dict[str, Tensor]:
    return {"o": nodes.mailbox["m"].sum(1)}


def first(nodes: Any) -> dict[str, Tensor]:
    return {"o": nodes.mailbox["m"].sort(1).values[:, 0]}


class Sum(vgraph.VertexFunction):
    def forward(self, v: vgraph.Vertex) -> None:
        state = torch.tanh(v.pull("x") + v.gather()["s"].sum())
        v.scatter(s=state)
        v.push(s=state)


class Uncaptured(vgraph.VertexFunction):
    def forward(self, v: vgraph.Vertex) -> None:
        x = v.pull("x")
        v.push(y=x * len(x.tolist()))


class Twice(nn.Module):
    def forward(self, g: vgraph.Graph) -> None:
        for _ in range(2):
            g.update_all(gated, total)
        g.update_all(fn.copy_u("h", "m"), first)


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    monkeypatch.setenv("VGRAPH_PRODUCTS", "0")
    capture.forget()
    yield
    capture.forget()


@pytest.fixture
def graph() -> vgraph.Graph:
    g = vgraph.graph(([0, 1, 2, 0, 3, 3], [1, 2, 3, 3, 1, 2]), num_nodes=5)
    g.ndata["h"], g.ndata["b"] = (torch.ones(5, 8, requires_grad=True) for _ in range(2))
    return g


@pytest.mark.guards
@needs_compiler
def test_of_a_pair(graph: vgraph.Graph, golden: Callable[[str, str], str]) -> None:
    assert not golden("explain_gated", str(vgraph.explain(graph, gated, total)))


@pytest.mark.guards
def test_without_kernels(
    graph: vgraph.Graph, golden: Callable[[str, str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VGRAPH_KERNELS", "0")
    assert not golden("explain_gated_without_kernels", str(vgraph.explain(graph, gated, total)))


@needs_compiler
def test_numbers_of_a_pair(graph: vgraph.Graph) -> None:
    """Bytes, operations and what is stored, counted by hand."""
    (function,) = vgraph.explain(graph, gated, total).functions
    forward, backward = function.programs
    assert [h.operator for h in function.hoisted] == ["mm"]
    products = [step for step in forward.steps if step.operators == ("mm",)]
    assert [step.num_operations for step in products] == [2 * 5 * 8 * 8] * 2
    assert [s.num_bytes for step in products for s in step.stored] == [5 * 8 * 4] * 2
    (kernel,) = [step for step in forward.steps if step.kernel is not None]
    rows, wide, index = 5 * 32, 6 * 32, 6 * 4 + 5 * 8
    assert kernel.bytes_read == wide + wide + rows + index  # h and h W1 an edge, b W2 a vertex
    assert kernel.bytes_written == 2 * rows  # the sum, and that of the gates' slopes times h
    assert kernel.num_operations == 8 * 6 * 8  # add, sigmoid, mul, sum; ones, slope, mul, sum
    assert forward.num_on_edges == 6 and forward.bytes_on_edges == 6 * 6 * 32
    assert {s.what for s in backward.stored} == {"gradient", "temporary"}
    assert all(s.space != "edges" for p in function.programs for s in p.stored)


@needs_compiler
def test_what_is_not_fused_has_a_reason(graph: vgraph.Graph) -> None:
    def message(edges: Any) -> dict[str, Tensor]:
        return {"m": torch.lgamma(edges.src["h"] * edges.dst["b"] + 2)}

    (function,) = vgraph.explain(graph, message, total).functions
    reasons = {step.operators[0]: step.why for step in function.programs[0].steps if step.kernel is None}
    assert reasons["lgamma"] == "no expression for it with these types"
    assert "lgamma" in str(vgraph.explain(graph, message, total))


def test_of_what_is_not_captured(graph: vgraph.Graph) -> None:
    said = str(vgraph.explain(graph, gated, first))
    assert said.startswith("gated: not captured, runs degree by degree, or as written: aten.sort.default mixes")
    assert "test_explain.py:" in said and "sort(1).values[:, 0]}" in said
    tree = vgraph.graph(([0, 1], [2, 2]))
    said = str(vgraph.explain(Uncaptured(), tree, x=torch.ones(3, 1)))
    assert said.startswith("Uncaptured: not captured, runs one vertex at a time: ")
    assert "len(x.tolist())" in said


@pytest.mark.guards
@needs_compiler
def test_of_a_vertex_function(golden: Callable[[str, str], str]) -> None:
    tree = vgraph.graph(([0, 1, 2, 3], [2, 2, 4, 4]))
    assert not golden("explain_tree_sum", str(vgraph.explain(Sum(), tree, x=torch.ones(5, 4, requires_grad=True))))


def test_of_a_module(graph: vgraph.Graph) -> None:
    """Every function that ran, calls that ran alike once, fallbacks included."""
    functions = vgraph.explain(Twice(), graph).functions
    assert (functions[0].name, functions[0].num_calls, functions[0].reason) == ("gated", 2, "")
    assert any(f.reason.startswith("runs degree by degree: aten.sort") for f in functions)


def test_of_a_module_without_functions() -> None:
    with pytest.raises(FunctionError, match="explain is given a dict"):
        vgraph.explain({})
    with pytest.raises(FunctionError, match="Linear ran no function of vgraph's"):
        vgraph.explain(nn.Linear(2, 2), torch.ones(1, 2))


@needs_compiler
def test_source_is_written(graph: vgraph.Graph, tmp_path: Path) -> None:
    said = vgraph.explain(graph, gated, total, source=tmp_path / "code")
    names = [path.name for path in said.files]
    assert names == ["gated_forward.cpp", "gated_backward.cpp"]
    assert all('#include "prelude.h"' in path.read_text() for path in said.files)
    (one,) = vgraph.explain(graph, gated, total, source=tmp_path / "all.cpp").files
    assert one.read_text().count('extern "C"') == 3 and str(one) in str(vgraph.explain(graph, gated, total, source=one))


def test_details(graph: vgraph.Graph) -> None:
    details = vgraph.explain(graph, gated, total).details
    assert "program gated" in details and "schedule once: 5 vertices, 6 edges" in details


class _Leaf(vgraph.VertexFunction):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(10, 4)

    def forward(self, v: vgraph.Vertex) -> None:
        h = self.embed(v.pull("word"))
        v.scatter(h=h)
        v.push(h=h)


class _Inner(vgraph.VertexFunction):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, v: vgraph.Vertex) -> None:
        h = torch.tanh(self.linear(v.gather()["h"].sum()))
        v.scatter(h=h)
        v.push(h=h)


def test_functions_by_type_tell_what_runs_on_this_graph() -> None:
    g = vgraph.graph(([0, 1, 2, 3, 4, 5], [2, 2, 6, 5, 5, 6]))
    g.ndata["type"], g.ndata["word"] = torch.tensor([0, 0, 1, 0, 0, 1, 1]), torch.tensor([1, 2, 0, 3, 4, 0, 0])
    explanation = vgraph.explain(vgraph.ByType({0: _Leaf(), 1: _Inner()}), g)
    text, (function,) = str(explanation), explanation.functions
    assert " 0 x 4 float32" not in text and "= 0 bytes" not in text
    for program in function.programs:
        assert set(program.idle) == {"leaves of type 1", "vertices with in-edges of type 0"}
        assert sum(phase.how.startswith("frontier") for phase in program.phases) == 2
    assert "loops without a vertex in this graph: over leaves of type 1" in text
    assert "vgraph.explain(" not in text, "the line of this call is no line of the functions"
    assert "[picks the rows of one type]" in text and "[no kernel makes this move]" not in text
    assert " of the same" in text
    with_leaf = vgraph.graph(([0, 1], [2, 2]))
    with_leaf.ndata["type"], with_leaf.ndata["word"] = torch.tensor([0, 1, 1]), torch.tensor([1, 2, 0])
    (function,) = vgraph.explain(vgraph.ByType({0: _Leaf(), 1: _Inner()}), with_leaf).functions
    assert function.programs[0].idle == ("vertices with in-edges of type 0",)
