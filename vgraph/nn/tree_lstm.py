"""Tree-LSTMs: an LSTM cell whose previous states are those of the children.

Takes: a tree, forest or DAG and vectors of words. Gives: h and c of every vertex. Runs at every call.
Source: Tai, Socher and Manning 2015, equations 2-8 (child-sum) and 9-14 (N-ary).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import vgraph
from vgraph.arguments import COUNT, PART, POSITIVE, checked


class ChildSumTreeLSTM(vgraph.VertexFunction):
    """The Tree-LSTM of any number of unordered children, with one forget gate a child.

    A call takes a graph (edges from child to parent) and the feature ``x``, (vertices, in_size) or ``vgraph.at(rows,
    ids)``, and gives ``h`` and ``c``, each (vertices, hidden_size).

    Args:
        in_size: the width of ``x``.
        hidden_size: the width of ``h`` and ``c``.
        dropout: the part of the candidate ``u`` that is dropped in training.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        CycleError: the graph has a cycle.
        FeatureError, NameLookupError: ``x`` is missing or has not one row a vertex.

    Source: Tai et al. 2015, equations 2-8; dropout as Semeniuta et al. 2016.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import ChildSumTreeLSTM
        >>> tree = vgraph.graph(([0, 1], [2, 2]))
        >>> ChildSumTreeLSTM(5, 4)(tree, x=torch.ones(3, 5))["h"].shape
        torch.Size([3, 4])
    """

    @checked(in_size=COUNT, hidden_size=COUNT, dropout=PART)
    def __init__(self, in_size: int, hidden_size: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.in_size, self.hidden_size = in_size, hidden_size
        self.W_iou = nn.Linear(in_size, 3 * hidden_size)
        self.U_iou = nn.Linear(hidden_size, 3 * hidden_size, bias=False)
        self.W_f = nn.Linear(in_size, hidden_size)
        self.U_f = nn.Linear(hidden_size, hidden_size, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, v: vgraph.Vertex) -> None:
        """Equations 2 to 8 for one batch of vertices.

        Args:
            v: one batch of vertices.
        """
        child, x = v.gather(), v.pull("x")
        iou = self.W_iou(x) + self.U_iou(child["h"].sum())  # (2): the sum of the children's h
        f = torch.sigmoid(self.W_f(x) + self.U_f(child["h"]))  # (4): one gate a child
        _finish(v, iou, (f * child["c"]).sum(), self.dropout)

    def extra_repr(self) -> str:
        """What ``repr`` shows of the layer.

        Returns:
            Its widths.
        """
        return f"{self.in_size}, {self.hidden_size}"


class NaryTreeLSTM(vgraph.VertexFunction):
    """The Tree-LSTM of at most ``num_children`` ordered children, each with matrices of its own.

    A call takes a graph (edges from child to parent, in the order of the children) and the feature ``x``, (vertices,
    in_size) or ``vgraph.at(rows, ids)``, and gives ``h`` and ``c``, each (vertices, hidden_size). Absent children
    count as zeros; children beyond the last are not looked at.

    Args:
        in_size: the width of ``x``.
        hidden_size: the width of ``h`` and ``c``.
        num_children: how many children are looked at.
        dropout: the part of the candidate ``u`` that is dropped in training.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        CycleError: the graph has a cycle.
        FeatureError, NameLookupError: ``x`` is missing or has not one row a vertex.

    Source: Tai et al. 2015, equations 9-14; dropout as Semeniuta et al. 2016.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import NaryTreeLSTM
        >>> tree = vgraph.graph(([0, 1], [2, 2]))
        >>> words = vgraph.at(torch.ones(2, 5), torch.tensor([0, 1]))
        >>> NaryTreeLSTM(5, 4)(tree, x=words)["h"].shape
        torch.Size([3, 4])
    """

    @checked(in_size=COUNT, hidden_size=COUNT, num_children=POSITIVE, dropout=PART)
    def __init__(self, in_size: int, hidden_size: int, num_children: int = 2, *, dropout: float = 0.0) -> None:
        # given, since concatenated children do not show how wide one of them is
        super().__init__(states={"h": hidden_size, "c": hidden_size})
        self.in_size, self.hidden_size, self.num_children = in_size, hidden_size, num_children
        all_children = num_children * hidden_size
        self.W_iou = nn.Linear(in_size, 3 * hidden_size)
        self.U_iou = nn.Linear(all_children, 3 * hidden_size, bias=False)
        self.W_f = nn.Linear(in_size, hidden_size)
        self.U_f = nn.Linear(all_children, all_children, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, v: vgraph.Vertex) -> None:
        """Equations 9 to 14 for one batch of vertices.

        Args:
            v: one batch of vertices.
        """
        children = [v.gather(k, default=0.0) for k in range(self.num_children)]
        x, h = v.pull("x"), torch.cat([child["h"] for child in children], -1)
        iou = self.W_iou(x) + self.U_iou(h)  # the sums over l of (9), (11), (12)
        gates = self.U_f(h).chunk(self.num_children, -1)
        f = [torch.sigmoid(self.W_f(x) + gate) for gate in gates]  # (10): every k from every l
        kept = [gate * child["c"] for gate, child in zip(f, children, strict=True)]
        _finish(v, iou, sum(kept[1:], kept[0]), self.dropout)

    def extra_repr(self) -> str:
        """What ``repr`` shows of the layer.

        Returns:
            Its widths and the number of children.
        """
        return f"{self.in_size}, {self.hidden_size}, num_children={self.num_children}"


def _finish(v: vgraph.Vertex, iou: Tensor, kept: Tensor, dropout: nn.Module) -> None:
    """Gates, cell and hidden state: equations 3 and 5-8, 9 and 11-14."""
    i, o, u = iou.chunk(3, -1)
    c = torch.sigmoid(i) * dropout(torch.tanh(u)) + kept
    h = torch.sigmoid(o) * torch.tanh(c)
    v.scatter(h=h, c=c)
    v.push(h=h, c=c)
