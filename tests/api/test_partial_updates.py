"""Partial updates touch what they are given, and nothing is written in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import vgraph
import vgraph.function as fn
from tests.api.agreement import DST, SRC

NUM_NODES, NUM_EDGES = 7, len(SRC)
Call = Callable[[vgraph.Graph], None]


def make_graph(idtype: torch.dtype = torch.int64) -> vgraph.Graph:
    g = vgraph.graph((torch.tensor(SRC, dtype=idtype), torch.tensor(DST, dtype=idtype)), num_nodes=7)
    g.ndata["x"] = torch.randn(NUM_NODES, 3, dtype=torch.float64, requires_grad=True)
    g.edata["w"] = torch.randn(NUM_EDGES, 3, dtype=torch.float64, requires_grad=True)
    return g


def summed(g: vgraph.Graph, edges: list[int]) -> Tensor:
    """The sum of the messages of these edges at every node."""
    out = torch.zeros(NUM_NODES, 3, dtype=torch.float64)
    for edge in edges:
        one = torch.zeros(NUM_NODES, 1, dtype=torch.float64)
        one[DST[edge]] = 1.0
        out = out + one * (g.ndata["x"][SRC[edge]] * g.edata["w"][edge])
    return out


MESSAGE = fn.u_mul_e("x", "w", "m")
REDUCES: dict[str, Any] = {
    "built-in": fn.sum("m", "out"),
    "captured": lambda v: {"out": v.mailbox["m"].sum(1)},
    "by degree": lambda v: {"out": torch.stack(v.mailbox["m"].unbind(1)).sum(0)},
    "uncaptured": lambda v: {"out": v.mailbox["m"].sum(1) + 0 * v.mailbox["m"].max().item()},
}
CALLS: dict[str, tuple[Callable[[vgraph.Graph, Any], None], list[int], list[int]]] = {
    # the call, the edges that it uses, the nodes that it touches
    "pull": (lambda g, r: g.pull([4, 2], MESSAGE, r), [0, 4, 6, 7, 10], [2, 4]),
    "pull of a node without in-edges": (lambda g, r: g.pull([2, 0], MESSAGE, r), [0, 6], [0, 2]),
    "pull twice": (lambda g, r: g.pull([2, 2], MESSAGE, r), [0, 6], [2]),
    "push": (lambda g, r: g.push([3, 2], MESSAGE, r), [0, 5, 6, 7, 11], [2, 4, 5]),
    "ids": (lambda g, r: g.send_and_recv([7, 0], MESSAGE, r), [7, 0], [2, 4]),
    "pair": (lambda g, r: g.send_and_recv(([0, 1], [3, 1]), MESSAGE, r), [2, 1], [1, 3]),
    "mask": (
        lambda g, r: g.send_and_recv(torch.arange(NUM_EDGES) < 2, MESSAGE, r), [0, 1], [1, 2],
    ),
}  # fmt: skip


@pytest.mark.parametrize("reduce", REDUCES)
@pytest.mark.parametrize("name", CALLS)
def test_only_what_is_given_is_touched(name: str, reduce: str) -> None:
    call, edges, nodes = CALLS[name]
    g = make_graph()
    before = torch.randn(NUM_NODES, 3, dtype=torch.float64)
    g.ndata["out"] = before
    kept = before.clone()
    call(g, REDUCES[reduce])
    wanted = kept.clone()
    wanted[nodes] = summed(g, edges)[nodes]
    torch.testing.assert_close(g.ndata["out"], wanted, rtol=1e-12, atol=1e-12)
    assert torch.equal(before, kept)  # the old column is as it was
    leaves = (g.ndata["x"], g.edata["w"])
    weights = torch.rand(NUM_NODES, 3, dtype=torch.float64)
    found = torch.autograd.grad((g.ndata["out"] * weights).sum(), leaves)
    theirs = torch.autograd.grad((summed(g, edges)[nodes] * weights[nodes]).sum(), leaves)
    for mine, other in zip(found, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", CALLS)
def test_a_new_field_is_zero_elsewhere(name: str) -> None:
    call, edges, nodes = CALLS[name]
    g = make_graph()
    call(g, REDUCES["captured"])
    wanted = torch.zeros(NUM_NODES, 3, dtype=torch.float64)
    wanted[nodes] = summed(g, edges)[nodes]
    torch.testing.assert_close(g.ndata["out"], wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("idtype", [torch.int32, torch.int64])
def test_ids_in_any_order_give_the_same(idtype: torch.dtype) -> None:
    g = make_graph(idtype)
    results: list[Tensor] = []
    for order in ([1, 2, 3, 5], [5, 3, 2, 1], [3, 1, 5, 2]):
        g.pull(torch.tensor(order, dtype=idtype), MESSAGE, REDUCES["captured"])
        results.append(g.ndata.pop("out"))
    assert all(torch.equal(results[0], other) for other in results[1:])


def test_apply_function_sees_fresh_results_of_touched_nodes_alone() -> None:
    g = make_graph()
    g.ndata["out"] = torch.full((NUM_NODES, 3), 5.0, dtype=torch.float64)
    g.pull([2, 0], MESSAGE, fn.sum("m", "out"), lambda v: {"out": v.data["out"] + v.data["x"] + 1})
    wanted = torch.full((NUM_NODES, 3), 5.0, dtype=torch.float64)
    wanted[[2, 0]] = (summed(g, [0, 6]) + g.ndata["x"])[[2, 0]] + 1
    torch.testing.assert_close(g.ndata["out"], wanted)


def test_nothing_to_do_changes_nothing() -> None:
    g = make_graph()
    g.push([6], MESSAGE, fn.sum("m", "out"))
    g.send_and_recv([], MESSAGE, fn.sum("m", "out"))
    g.pull([], MESSAGE, fn.sum("m", "out"))
    assert set(g.ndata) == {"x"}


@pytest.mark.parametrize(
    ("edges", "ids"),
    [(None, list(range(NUM_EDGES))), ([7, 0, 3], [7, 0, 3]), (([0, 1], [3, 1]), [2, 1]),
     (torch.arange(NUM_EDGES) % 2 == 0, list(range(0, NUM_EDGES, 2)))],
)  # fmt: skip
@pytest.mark.parametrize("captured", [True, False])
def test_apply_edges(edges: Any, ids: list[int], captured: bool) -> None:
    g = make_graph()

    def function(e: Any) -> dict[str, Tensor]:
        extra = 0.0 if captured else 0 * e.src["x"].max().item()
        return {"s": e.src["x"] + 2 * e.dst["x"] * e.data["w"] + extra}

    g.apply_edges(function, edges)
    x, w = g.ndata["x"], g.edata["w"]
    wanted = torch.zeros(NUM_EDGES, 3, dtype=torch.float64)
    wanted[ids] = (x[SRC] + 2 * x[DST] * w)[ids]
    torch.testing.assert_close(g.edata["s"], wanted)
    found = torch.autograd.grad(g.edata["s"].sum(), (x, w))
    theirs = torch.autograd.grad((x[SRC] + 2 * x[DST] * w)[ids].sum(), (x, w))
    assert all(torch.allclose(a, b) for a, b in zip(found, theirs, strict=True))
    assert set(g.ndata) == {"x"}


def test_apply_edges_keeps_the_users_order_where_rows_are_mixed() -> None:
    g = make_graph()
    g.apply_edges(lambda e: {"s": e.data["w"].cumsum(0), "t": e.src["x"].view(-1, 2, 3).flip(1).reshape(-1, 3)})
    torch.testing.assert_close(g.edata["s"], g.edata["w"].cumsum(0))
    torch.testing.assert_close(g.edata["t"], g.ndata["x"][SRC].view(-1, 2, 3).flip(1).reshape(-1, 3))


def test_apply_edges_with_built_ins_and_ids() -> None:
    g = make_graph(torch.int32)
    g.apply_edges(fn.u_sub_v("x", "x", "d"))
    torch.testing.assert_close(g.edata["d"], g.ndata["x"][SRC] - g.ndata["x"][DST])
    g.apply_edges(lambda e: {"i": torch.stack(e.edges(), 1)})
    assert g.edata["i"].tolist() == [[u, v, i] for i, (u, v) in enumerate(zip(SRC, DST, strict=True))]
    g.apply_edges(lambda e: {"i": torch.stack(e.edges(), 1) + 1}, [5, 3])
    assert g.edata["i"][[5, 3]].tolist() == [[3, 6, 6], [5, 4, 4]][:0] or g.edata["i"][5].tolist() == [
        SRC[5] + 1, DST[5] + 1, 6,
    ]  # fmt: skip


@pytest.mark.parametrize("v", [None, [5, 1], torch.tensor([0], dtype=torch.int32)])
def test_apply_nodes(v: Any) -> None:
    g = make_graph()
    ids = list(range(NUM_NODES)) if v is None else [int(i) for i in v]
    g.apply_nodes(lambda n: {"y": n.data["x"] * n.nodes().unsqueeze(1) + n.batch_size()}, v)
    wanted = torch.zeros(NUM_NODES, 3, dtype=torch.float64)
    wanted[ids] = (g.ndata["x"] * torch.arange(NUM_NODES).unsqueeze(1) + len(ids))[ids]
    torch.testing.assert_close(g.ndata["y"], wanted)


@pytest.mark.parametrize("reduce", ["captured", "by degree"])
def test_reduce_functions_see_the_ids_of_the_whole_graph(reduce: str) -> None:
    def ids(nodes: Any) -> dict[str, Tensor]:
        if reduce == "by degree" and nodes.mailbox["m"].shape[1] > 99:
            return {}
        return {"i": nodes.nodes()}

    g = make_graph()
    g.update_all(fn.copy_e("w", "m"), ids)
    assert g.ndata["i"].tolist() == [node if node in DST else 0 for node in range(NUM_NODES)]


def test_autograd_keeps_what_it_saved() -> None:
    g = make_graph()
    g.update_all(MESSAGE, fn.sum("m", "x2"))
    loss = (g.ndata["x2"] ** 2).sum()
    g.ndata["x2"] = torch.zeros(NUM_NODES, 3, dtype=torch.float64)
    g.pull([2], MESSAGE, fn.sum("m", "x2"))
    loss.backward()
    assert g.ndata["x"].grad is not None


def test_edges_that_are_named_twice_send_twice() -> None:
    """``g.send_and_recv(g.edges(), ...)`` names one of several alike as often as there are."""
    g = vgraph.graph(([0, 0, 1, 1], [2, 2, 2, 0]), num_nodes=4)
    g.ndata["x"] = torch.tensor([[1.0], [2.0], [4.0], [8.0]])
    g.send_and_recv(g.edges(), fn.copy_u("x", "m"), fn.sum("m", "s"))
    assert g.ndata["s"].flatten().tolist() == [2.0, 0.0, 4.0, 0.0]
    g.send_and_recv([3, 3, 2], lambda e: {"m": e.src["x"]}, lambda v: {"s": v.mailbox["m"].sum(1)})
    assert g.ndata["s"].flatten().tolist() == [4.0, 0.0, 2.0, 0.0]


@pytest.mark.parametrize("reduce", REDUCES)
def test_where_no_node_has_in_edges(reduce: str) -> None:
    """A built-in sum is zero, as it is beside other nodes; what a function makes of no messages is not known."""
    g = make_graph()
    g.ndata["out"] = torch.ones(NUM_NODES, 3, dtype=torch.float64)
    g.pull([0], MESSAGE, REDUCES[reduce])
    assert g.ndata["out"].sum(1).tolist() == [0.0 if reduce == "built-in" else 3.0, *[3.0] * (NUM_NODES - 1)]
    g.ndata["out"] = torch.ones(NUM_NODES, 3, dtype=torch.float64)
    g.prop_nodes([[0]], MESSAGE, REDUCES[reduce], lambda v: {"out": v.data["out"] + 1})
    assert g.ndata["out"].sum(1).tolist() == [6.0, *[3.0] * (NUM_NODES - 1)]
