"""Messages from edge to edge that leave out the way back, on line graphs that are found once."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import vgraph
import vgraph.function as fn

TREE = vgraph.to_bidirected(vgraph.graph(([0, 1, 1, 2, 2, 3], [1, 2, 3, 4, 5, 6])))


def test_it_is_found_once_and_has_features_of_its_own() -> None:
    first, second = (vgraph.line_graph(TREE, backtracking=False) for _ in range(2))
    assert first.topology is second.topology
    assert first.topology is not vgraph.line_graph(TREE).topology
    first.ndata["h"] = torch.ones(TREE.num_edges())
    assert "h" not in second.ndata
    grown = TREE.local_var()
    grown.add_edges([0], [6])
    assert vgraph.line_graph(grown, backtracking=False).num_nodes() == TREE.num_edges() + 1


def test_an_edge_hears_all_but_its_reverse_whatever_that_says() -> None:
    """A sum over all, less the reverse's, would be NaN here."""
    lines = vgraph.line_graph(TREE, backtracking=False)
    src, dst = TREE.edges()
    says = torch.arange(1.0, 1.0 + len(src)).where(src != 6, torch.tensor(torch.inf))
    lines.ndata["says"] = says
    lines.update_all(fn.copy_u("says", "m"), fn.sum("m", "hears"))
    wanted = [
        sum(float(says[d]) for d in range(len(src)) if dst[d] == src[e] and src[d] != dst[e]) for e in range(len(src))
    ]
    assert lines.ndata["hears"].tolist() == wanted
    assert torch.isfinite(lines.ndata["hears"][(src == 3) & (dst == 6)]).all()


class Belief(vgraph.VertexFunction):
    """A message along each directed edge, from those into its source."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3, dtype=torch.float64)

    def forward(self, v):
        h = torch.tanh(v.pull("x") + self.linear(v.gather()["h"].sum()))
        v.scatter(h=h)
        v.push(h=h)


def test_a_tree_passes_messages_both_ways_in_one_call() -> None:
    model, (src, dst) = Belief(), TREE.edges()
    x = torch.randn(len(src), 3, dtype=torch.float64, requires_grad=True)

    def message(edge: int) -> Tensor:
        before = [d for d in range(len(src)) if dst[d] == src[edge] and src[d] != dst[edge]]
        total = sum((message(d) for d in before), torch.zeros(3, dtype=torch.float64))
        return torch.tanh(x[edge] + model.linear(total))

    made = model(vgraph.line_graph(TREE, backtracking=False), x=x)["h"]
    wanted = torch.stack([message(edge) for edge in range(len(src))])
    torch.testing.assert_close(made, wanted, rtol=0, atol=1e-12)
    inputs = [x, *model.parameters()]
    grads = (torch.autograd.grad(rows.sin().sum(), inputs) for rows in (made, wanted))
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
