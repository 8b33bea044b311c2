"""Tree-LSTMs against the same models written by hand: outputs and every gradient, in fp64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import vgraph
from vgraph.nn import ChildSumTreeLSTM, NaryTreeLSTM

Children = list[list[int]]
Step = Callable[..., tuple[Tensor, Tensor]]


def random_children(num_vertices: int, most: int, *, dag: bool) -> Children:
    """Children of every vertex, each with a smaller id; in a tree every vertex has one parent."""
    children: Children = [[] for _ in range(num_vertices)]
    for child in range(num_vertices - 1):
        parents = torch.randint(child + 1, num_vertices, (2 if dag else 1,)).tolist()
        for parent in set(parents):
            if len(children[parent]) < most:
                children[parent].append(child)
    return children


def graph_of(children: Children) -> vgraph.Graph:
    src = [child for own in children for child in own]
    dst = [parent for parent, own in enumerate(children) for _ in own]
    ends = (torch.tensor(src, dtype=torch.int64), torch.tensor(dst, dtype=torch.int64))
    return vgraph.graph(ends, num_nodes=len(children))


def evaluate(step: Step, children: Children, x: Tensor, hidden: int) -> Tensor:
    """One vertex after the other, in the order of their ids."""
    h: list[Tensor] = []
    c: list[Tensor] = []
    for vertex, own in enumerate(children):
        new_h, new_c = step(x[vertex], [h[k] for k in own], [c[k] for k in own], hidden)
        h.append(new_h)
        c.append(new_c)
    return torch.cat([torch.stack(h), torch.stack(c)], 1)


def gates(i: Tensor, o: Tensor, u: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
    c = torch.sigmoid(i) * torch.tanh(u) + kept
    return torch.sigmoid(o) * torch.tanh(c), c


def child_sum_step(p: dict[str, Tensor]) -> Step:
    def step(x: Tensor, h: list[Tensor], c: list[Tensor], hidden: int) -> tuple[Tensor, Tensor]:
        total = sum(h, x.new_zeros(hidden))
        iou = p["W_iou.weight"] @ x + p["W_iou.bias"] + p["U_iou.weight"] @ total
        kept = x.new_zeros(hidden)
        for hk, ck in zip(h, c, strict=True):
            f = torch.sigmoid(p["W_f.weight"] @ x + p["W_f.bias"] + p["U_f.weight"] @ hk)
            kept = kept + f * ck
        return gates(iou[:hidden], iou[hidden : 2 * hidden], iou[2 * hidden :], kept)

    return step


def nary_step(p: dict[str, Tensor], num_children: int) -> Step:
    def step(x: Tensor, h: list[Tensor], c: list[Tensor], hidden: int) -> tuple[Tensor, Tensor]:
        absent = [x.new_zeros(hidden)] * (num_children - len(h))
        h, c = h + absent, c + absent
        iou = p["W_iou.weight"] @ x + p["W_iou.bias"]
        kept = x.new_zeros(hidden)
        for k in range(num_children):
            f = p["W_f.weight"] @ x + p["W_f.bias"]
            for j in range(num_children):
                block = p["U_f.weight"][k * hidden : (k + 1) * hidden]
                f = f + block[:, j * hidden : (j + 1) * hidden] @ h[j]
            kept = kept + torch.sigmoid(f) * c[k]
            iou = iou + p["U_iou.weight"][:, k * hidden : (k + 1) * hidden] @ h[k]
        return gates(iou[:hidden], iou[hidden : 2 * hidden], iou[2 * hidden :], kept)

    return step


def gradients(out: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    return list(torch.autograd.grad((out * weight).sum() + out.square().sum(), inputs))


CELLS: dict[str, tuple[Any, Callable[[dict[str, Tensor]], Step], int]] = {
    "child-sum": (lambda: ChildSumTreeLSTM(3, 4), child_sum_step, 10),
    "binary": (lambda: NaryTreeLSTM(3, 4), lambda p: nary_step(p, 2), 2),
    "ternary": (lambda: NaryTreeLSTM(3, 4, 3), lambda p: nary_step(p, 3), 3),
}


@pytest.mark.parametrize("dag", [False, True], ids=["forest", "dag"])
@pytest.mark.parametrize("name", CELLS)
def test_equals_hand_written(name: str, dag: bool) -> None:
    make, make_step, most = CELLS[name]
    cell = make().double()
    children = random_children(40, most, dag=dag)
    x = torch.randn(40, 3, dtype=torch.float64, requires_grad=True)
    parameters = dict(cell.named_parameters())
    wanted = evaluate(make_step(parameters), children, x, 4)
    found = cell(graph_of(children), x=x)
    out = torch.cat([found["h"], found["c"]], 1)
    torch.testing.assert_close(out, wanted, rtol=0, atol=1e-10)
    inputs = [x, *parameters.values()]
    for a, b in zip(gradients(out, inputs), gradients(wanted, inputs), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


def test_words_at_leaves_only() -> None:
    cell = NaryTreeLSTM(3, 4).double()
    children = random_children(30, 2, dag=False)
    leaves = torch.tensor([vertex for vertex, own in enumerate(children) if not own])
    rows = torch.randn(len(leaves), 3, dtype=torch.float64, requires_grad=True)
    x = torch.zeros(30, 3, dtype=torch.float64).index_copy(0, leaves, rows)
    parameters = dict(cell.named_parameters())
    wanted = evaluate(nary_step(parameters, 2), children, x, 4)[:, :4]
    out = cell(graph_of(children), x=vgraph.at(rows, leaves))["h"]
    torch.testing.assert_close(out, wanted, rtol=0, atol=1e-10)
    inputs = [rows, *parameters.values()]
    for a, b in zip(
        torch.autograd.grad(out.square().sum(), inputs),
        torch.autograd.grad(wanted.square().sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


@pytest.mark.parametrize("cell", [ChildSumTreeLSTM(2, 2), NaryTreeLSTM(2, 2)], ids=["sum", "nary"])
def test_gradients_of_both_orders(cell: vgraph.VertexFunction) -> None:
    cell = cell.double()
    tree = graph_of([[], [], [0, 1], [], [2, 3]])
    names = [name for name, _ in cell.named_parameters()]
    values = [p.detach().clone().requires_grad_() for p in cell.parameters()]
    x = torch.randn(5, 2, dtype=torch.float64, requires_grad=True)

    def run(x: Tensor, *parameters: Tensor) -> Tensor:
        given = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(cell, given, (tree,), {"x": x})["h"]

    assert torch.autograd.gradcheck(run, (x, *values))
    assert torch.autograd.gradgradcheck(run, (x, *values), fast_mode=True)


@pytest.mark.parametrize("cell", [ChildSumTreeLSTM(3, 8), NaryTreeLSTM(3, 8)], ids=["sum", "nary"])
def test_serial_policy_agrees(cell: vgraph.VertexFunction) -> None:
    children = random_children(30, 2, dag=False)
    x = torch.randn(30, 3)
    batched = cell(graph_of(children), x=x)["h"]
    cell.policy = "serial"
    torch.testing.assert_close(cell(graph_of(children), x=x)["h"], batched)


def test_dropout_of_the_candidate() -> None:
    cell = ChildSumTreeLSTM(3, 8, dropout=0.5)
    leaves = vgraph.graph(([], []), num_nodes=400)
    c = cell(leaves, x=torch.ones(400, 3))["c"]
    assert 0.4 < float((c == 0).double().mean()) < 0.6
    assert not bool((cell.eval()(leaves, x=torch.ones(400, 3))["c"] == 0).any())


def test_printed() -> None:
    assert "3, 8, num_children=2" in repr(NaryTreeLSTM(3, 8))
    assert "3, 8" in repr(ChildSumTreeLSTM(3, 8))
