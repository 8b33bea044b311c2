"""Graphs that grow: each step computes its new vertices alone, and all steps together what one call computes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import vgraph
from vgraph import errors
from vgraph.capture.capture import watch_runs

WIDTH = 3


class Everything(vgraph.VertexFunction):
    """All that a function can read: children in two ways, features of vertices, edges and graphs, degrees."""

    def __init__(self, direction: str = "forward") -> None:
        super().__init__(direction=direction)
        self.of_child, self.of_all = (nn.Linear(WIDTH, WIDTH, dtype=torch.float64) for _ in range(2))

    def forward(self, v):
        children = v.gather()
        messages = torch.sigmoid(self.of_child(children["h"]) + v.pull("x")) * children["c"] * v.pull_edge("w")
        first = v.gather(1, default=0.5)["h"]
        c = messages.sum() + first + v.pull_graph("z") / (1 + v.in_degree.unsqueeze(1))
        h = torch.tanh(self.of_all(c))
        v.scatter(h=h, c=c)
        v.push(h=h, twice=2 * c)


class Mean(vgraph.VertexFunction):
    """Little to compile."""

    def forward(self, v):
        h = v.pull("x") + v.gather()["h"].mean()
        v.scatter(h=h)
        v.push(h=h)


class Branching(vgraph.VertexFunction):
    """What looks at data, which runs one vertex at a time."""

    def __init__(self, direction: str = "forward") -> None:
        super().__init__(direction=direction)
        self.linear = nn.Linear(WIDTH, WIDTH, dtype=torch.float64)

    def forward(self, v):
        h = v.pull("x") + self.linear(v.gather()["h"]).sum() * v.pull_edge("w").sum() + v.pull_graph("z")
        if bool(h.sum() > 0):
            h = -h
        v.scatter(h=h)
        v.push(h=h)


class Unknown(vgraph.VertexFunction):
    """An operator that no table describes, which must see one vertex at a time."""

    def forward(self, v):
        h = v.pull("x") + v.gather()["h"].sum() + v.pull_edge("w").sum() + v.pull_graph("z")
        h = torch.renorm(h, 2, 0, 1.0)
        v.scatter(h=h)
        v.push(h=h)


class Second(vgraph.VertexFunction):
    """The second child, which must be there."""

    def forward(self, v):
        h = v.pull("x") + v.gather(1)["h"]
        v.scatter(h=h)
        v.push(h=h)


class BranchingSecond(Second):
    """The same, one vertex at a time."""

    def forward(self, v):
        assert not bool(v.pull("x").isnan().any())
        super().forward(v)


# (graph of each new vertex, edges) a step, of two graphs; the second step has several frontiers
STEPS = [
    ([1, 0], ([], [])),
    ([0, 0, 1, 0], ([0, 1, 2, 2, 1, 1], [4, 2, 3, 5, 3, 5])),
    ([], ([], [])),
    ([0, 1], ([3, 5, 0, 4, 1], [6, 6, 7, 7, 6])),
]


Grown = tuple[vgraph.GrowingGraph, dict[str, Tensor], Tensor, list[Tensor], list[Tensor]]


def grown(function: vgraph.VertexFunction) -> Grown:
    """Graphs after all steps, what these pushed, and the features: of graphs, and by step of vertices and edges."""
    z = torch.randn(2, WIDTH, dtype=torch.float64, requires_grad=True)
    growing, pushed = vgraph.grow(function, num_graphs=2, z=z), list[dict[str, Tensor]]()
    xs, ws = list[Tensor](), list[Tensor]()
    for graph_ids, edges in STEPS:
        src, dst = edges if function.direction == "forward" else edges[::-1]
        xs.append(torch.randn(len(graph_ids), WIDTH, dtype=torch.float64, requires_grad=True))
        ws.append(torch.randn(len(src), 1, dtype=torch.float64, requires_grad=True))
        pushed.append(growing.add_nodes(len(graph_ids), (src, dst), graph_ids=graph_ids, x=xs[-1], w=ws[-1]))
    outputs = {name: torch.cat([step[name] for step in pushed if name in step]) for name in pushed[0]}
    return growing, outputs, z, xs, ws


@pytest.mark.parametrize(
    "make",
    [Everything, lambda: Everything("reverse"), Branching, Unknown],
    ids=["captured", "reverse", "serial", "unknown operator"],
)
def test_steps_give_what_a_call_gives(make: Callable[[], vgraph.VertexFunction]) -> None:
    function = make()
    growing, stepwise, z, xs, ws = grown(function)
    whole = growing.to_graph()
    ids = whole.ndata["_ID"]
    together = function(whole, x=torch.cat(xs)[ids], w=torch.cat(ws)[whole.edata["_ID"]], z=z)
    inputs = [z, *xs, *ws, *function.parameters()]
    found: list[list[Tensor]] = []
    for outputs in ({name: rows[ids] for name, rows in stepwise.items()}, together):
        loss = sum(rows.sin().sum() for rows in outputs.values())
        first = torch.autograd.grad(loss, inputs, create_graph=True, materialize_grads=True)
        second = torch.autograd.grad(sum(g.cos().sum() for g in first), inputs, materialize_grads=True)
        found.append([*outputs.values(), *first, *second])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
    torch.testing.assert_close(growing.states()["h"], stepwise["h"], rtol=0, atol=0)
    assert whole.batch_num_nodes().tolist() == [5, 3]
    assert growing.graph_ids[ids].tolist() == [0] * 5 + [1] * 3


def test_a_step_costs_its_new_vertices_alone() -> None:
    function = Mean()
    counts: list[tuple[int, int]] = []
    for num_old in (3, 300):
        growing = vgraph.grow(function)
        growing.add_nodes(num_old, x=torch.randn(num_old, WIDTH))
        with watch_runs() as runs:
            growing.add_nodes(2, ([0, 1, 2], [num_old, num_old, num_old + 1]), x=torch.randn(2, WIDTH))
        topologies = [context.topology for _, _, context in runs if not isinstance(context, str)]
        counts.extend((one.num_dst, one.num_edges) for one in topologies)
    assert counts == [(2, 3), (2, 3)]


def test_what_is_proposed_is_not_added_and_copies_grow_apart() -> None:
    growing = vgraph.grow(Mean())
    growing.add_nodes(2, x=torch.randn(2, WIDTH))
    x = torch.randn(1, WIDTH)
    proposed, other = growing.propose(1, ([0], [2]), x=x), growing.copy()
    assert (growing.num_nodes, growing.num_edges) == (2, 0)
    added = growing.add_nodes(1, ([0], [2]), x=x)
    assert torch.equal(proposed["h"], added["h"])
    other.add_nodes(1, ([1], [2]), x=x)
    assert (other.num_nodes, other.num_edges, growing.num_edges) == (3, 1, 1)
    assert not torch.equal(other.states([2])["h"], growing.states([2])["h"])
    assert growing.states([])["h"].shape == (0, WIDTH)


def test_gradients_end_where_they_are_cut() -> None:
    early, late = (torch.randn(1, WIDTH, requires_grad=True) for _ in range(2))
    growing = vgraph.grow(Mean())
    growing.add_nodes(1, x=early)
    growing.detach()
    out = growing.add_nodes(1, ([0], [1]), x=late)["h"]
    grads = torch.autograd.grad(out.sum(), [early, late], allow_unused=True)
    assert grads[0] is None
    assert grads[1].abs().sum() > 0
    growing.detach()
    assert not growing.add_nodes(1, ([1], [2]), x=late.detach())["h"].requires_grad


X = torch.zeros(1, WIDTH, dtype=torch.float64)
W = torch.zeros(1, 1, dtype=torch.float64)
WRONG = {
    "into an old vertex": (
        1,
        ([0], [1]),
        {"x": X, "w": W},
        errors.GraphError,
        "dst of edge 0 is 1, which is there",
    ),
    "from no vertex": (
        1,
        ([3], [2]),
        {"x": X, "w": W},
        errors.GraphError,
        "src of edge 0 is 3, where there are 2",
    ),
    "to no vertex": (
        1,
        ([0], [3]),
        {"x": X, "w": W},
        errors.GraphError,
        "dst of edge 0 is 3, which is not there",
    ),
    "two graphs": (1, ([1], [2]), {"x": X, "w": W}, errors.GraphError, "joins vertex 1 of graph 1"),
    "a cycle": (1, ([2], [2]), {"x": X, "w": W}, errors.CycleError, "2 -> 2"),
    "width": (1, ([0], [2]), {"x": X[:, :2], "w": W}, errors.FeatureError, r"'x' has rows of shape \(2,\)"),
    "dtype": (1, ([0], [2]), {"x": X.float(), "w": W}, errors.DTypeError, "'x' is torch.float32"),
    "rows": (1, ([0], [2]), {"x": X, "w": torch.cat([W, W])}, errors.FeatureError, "for 1 rows"),
    "missing": (1, ([0], [2]), {"x": X}, errors.NameLookupError, "no edge feature 'w'"),
    "of graphs": (1, ([0], [2]), {"x": X, "w": W, "z": X}, errors.FeatureError, "'z' was given to grow"),
    "number": (-1, ([0], [2]), {"x": X, "w": W}, errors.ArgumentError, r"add_nodes\(num=-1\)"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_steps_are_refused_and_change_nothing(case: str) -> None:
    num, edges, features, error, words = WRONG[case]
    growing = vgraph.grow(Everything(), num_graphs=2, z=torch.zeros(2, WIDTH, dtype=torch.float64))
    with torch.no_grad():
        growing.add_nodes(2, x=torch.cat([X, X]), w=W[:0])
        before = repr(growing), growing.states()["c"]
        with pytest.raises(error, match=words):
            growing.add_nodes(num, edges, graph_ids=[0] * max(num, 0), **features)
        assert repr(growing) == before[0]
        assert torch.equal(growing.states()["c"], before[1])


def test_wrong_graph_ids_and_functions_are_refused() -> None:
    growing = vgraph.grow(Everything(), num_graphs=2, z=torch.zeros(2, WIDTH, dtype=torch.float64))
    for graph_ids, words in ((None, "without graph_ids"), ([2], "from 2 to 2"), ([0, 0], "shape"), ([0.5], "dtype")):
        with pytest.raises((errors.GraphError, errors.DTypeError), match=words):
            growing.add_nodes(1, graph_ids=graph_ids, x=X)
    with pytest.raises(errors.GraphError, match="not among 0"):
        growing.states([0])
    with pytest.raises(errors.FunctionError, match="which is no vertex function"):
        vgraph.grow(nn.Linear(1, 1))
    with pytest.raises(errors.ArgumentError, match="num_graphs=0"):
        vgraph.grow(Everything(), num_graphs=0)
    with pytest.raises(errors.DTypeError, match="ids is no array of whole numbers"):
        growing.states({})
    with pytest.raises(errors.DeviceError, match="'no such' is no device"):
        vgraph.grow(Everything(), device="no such")
    with pytest.raises(errors.FunctionError, match="several types"):
        vgraph.grow(vgraph.ByType({0: Everything()}, key="type"))
    with pytest.raises(errors.FeatureError, match="for 2 graphs"):
        vgraph.grow(Everything(), num_graphs=2, z=X)


@pytest.mark.parametrize("function", [Second(), BranchingSecond()], ids=["captured", "serial"])
def test_a_child_that_is_not_there_is_told_by_its_number(function: vgraph.VertexFunction) -> None:
    growing = vgraph.grow(function)
    growing.add_nodes(2, x=torch.cat([X, X]))
    with pytest.raises(errors.ChildIndexError, match="vertex 3 has 1 child"):
        growing.add_nodes(2, ([0, 1, 0], [2, 2, 3]), x=torch.cat([X, X]))
    assert growing.num_nodes == 2
