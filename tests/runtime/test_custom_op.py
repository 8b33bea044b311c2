"""The operator itself: what torch asks of one, and its derivatives."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor

import vgraph
from vgraph.ir.topology import Topology, topology_of


def grab_call(function: Any, *rows: Tensor) -> tuple[Any, ...]:
    """The arguments of the one operator that a compiled function calls."""
    found: list[tuple[Any, ...]] = []

    def backend(module: Any, _: Any) -> Any:
        class Watch(torch.fx.Interpreter):
            def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
                if target is torch.ops.vgraph.call.default:
                    found.append(args)
                return super().call_function(target, args, kwargs)

        return Watch(module).run

    torch.compiler.reset()
    torch.compile(function, backend=backend, fullgraph=True)(*rows)
    (args,) = found
    return (*args[:5], [t.detach().clone().requires_grad_(t.requires_grad) for t in args[5]])


@pytest.fixture
def graph() -> vgraph.Graph:
    return vgraph.graph((torch.randint(6, (14,)), torch.randint(4, (14,))), num_nodes=6)


@pytest.fixture
def arguments(graph: vgraph.Graph) -> tuple[Any, ...]:
    weight = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)

    def function(x: Tensor, w: Tensor) -> Tensor:
        graph.ndata["h"], graph.edata["w"] = x, w
        graph.update_all(
            lambda edges: {"m": torch.tanh(edges.src["h"] @ weight) * edges.data["w"]},
            lambda nodes: {"o": nodes.mailbox["m"].sum(1) * nodes.data["h"][:, :1]},
        )
        return graph.ndata.pop("o")

    x = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    return grab_call(function, x, torch.randn(14, 1, dtype=torch.float64, requires_grad=True))


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # which torch 2.14 itself asks for, in opcheck
def test_torch_accepts_the_operator(graph: vgraph.Graph, arguments: tuple[Any, ...]) -> None:
    torch.library.opcheck(torch.ops.vgraph.call.default, arguments)
    torch.library.opcheck(torch.ops.vgraph.degrees.default, (graph.topology.handle, False, 6))


def test_derivatives_of_both_orders(arguments: tuple[Any, ...]) -> None:
    def run(*tensors: Tensor) -> Tensor:
        return torch.ops.vgraph.call(*arguments[:5], list(tensors))[0]

    assert torch.autograd.gradcheck(run, tuple(arguments[5]))
    assert torch.autograd.gradgradcheck(run, tuple(arguments[5]))


def test_an_unknown_key_is_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(vgraph.errors.FunctionError, match="has not captured"):
        torch.ops.vgraph.call("nobody", *arguments[1:])


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # which torch 2.14 itself asks for, in opcheck
def test_a_vertex_function_has_one_derivative() -> None:
    class Sum(vgraph.VertexFunction):
        def forward(self, v: vgraph.Vertex) -> None:
            h = torch.tanh(v.pull("x") + v.gather()["h"].sum())
            v.scatter(h=h)
            v.push(h=h)

    tree, cell = vgraph.graph(([0, 1], [2, 2])), Sum()
    x = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    args = grab_call(lambda x: cell(tree, x=x)["h"], x)
    torch.library.opcheck(torch.ops.vgraph.call.default, args)
    out = torch.ops.vgraph.call(*args)[0]
    (grad,) = torch.autograd.grad(out.sum(), args[5], create_graph=True)
    with pytest.raises(vgraph.errors.FunctionError, match="second derivative"):
        grad.sum().backward()


def test_handles_stand_for_one_topology_each() -> None:
    first = Topology(torch.tensor([0]), torch.tensor([1]), 2, 2)
    second, third = copy.deepcopy(first), pickle.loads(pickle.dumps(first))
    assert len({int(t.handle) for t in (first, second, third)}) == 3
    assert topology_of(second.handle) is second
