"""Pooling: one row a graph from one row a vertex, with DGL's names.

Takes: a batch of graphs and one row a vertex. Gives: one row a graph. Runs at every call.
Source: Li et al. 2016, equation 7; Zhang et al. 2018; Vinyals, Bengio and Kudlur 2016, section 4.2.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import vgraph
from vgraph.arguments import COUNT, POSITIVE, checked
from vgraph.errors import FeatureError
from vgraph.nn.inputs import check_graph, check_width


class _Readout(nn.Module):
    op = "sum"

    def forward(self, graph: vgraph.Graph, feat: Tensor) -> Tensor:
        """One row a graph.

        Args:
            graph: a batch of graphs with one type of nodes.
            feat: (vertices, ...).

        Returns:
            (graphs, ...); zeros for a graph without vertices.

        Raises:
            FeatureError: there is not one row a vertex.
            FunctionError: it is called without a graph.
        """
        check_graph(self, graph)
        return _read(graph, feat, self.op)


def _read(graph: vgraph.Graph, feat: Tensor, op: str) -> Tensor:
    graph = graph.local_var()  # which other threads do not see
    graph.ndata["h"] = feat
    return vgraph.readout_nodes(graph, "h", op=op)


class SumPooling(_Readout):
    """The sum of a feature over the vertices of every graph.

    Raises:
        FeatureError: there is not one row a vertex.

    Source: DGL 1.1, ``dgl.nn.SumPooling``.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import SumPooling
        >>> SumPooling()(vgraph.graph(([0], [1])), torch.ones(2, 3))
        tensor([[2., 2., 2.]])
    """


class AvgPooling(_Readout):
    """The mean of a feature over the vertices of every graph.

    Raises:
        FeatureError: there is not one row a vertex.

    Source: DGL 1.1, ``dgl.nn.AvgPooling``.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import AvgPooling
        >>> AvgPooling()(vgraph.graph(([0], [1])), torch.ones(2, 3))
        tensor([[1., 1., 1.]])
    """

    op = "mean"


class MaxPooling(_Readout):
    """The largest of a feature over the vertices of every graph, elementwise.

    Raises:
        FeatureError: there is not one row a vertex.

    Source: DGL 1.1, ``dgl.nn.MaxPooling``.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import MaxPooling
        >>> MaxPooling()(vgraph.graph(([0], [1])), torch.eye(2))
        tensor([[1., 1.]])
    """

    op = "max"


class SortPooling(nn.Module):
    """The k vertices with the largest last column, whose columns are sorted, as one row.

    Args:
        k: how many vertices, from 1 up; graphs with fewer are filled up with zeros.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        FeatureError: there is not one row a vertex; ``k`` is below 1.

    Source: Zhang et al. 2018, section 3.2.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import SortPooling
        >>> SortPooling(k=1)(vgraph.graph(([0], [1])), torch.tensor([[5.0, 1.0], [2.0, 3.0]]))
        tensor([[1., 5.]])
    """

    @checked(k=POSITIVE)
    def __init__(self, k: int) -> None:
        super().__init__()
        self.k = k

    def forward(self, graph: vgraph.Graph, feat: Tensor) -> Tensor:
        """One row a graph.

        Args:
            graph: a batch of graphs with one type of nodes.
            feat: (vertices, width).

        Returns:
            (graphs, k * width).

        Raises:
            FunctionError: it is called without a graph.
            FeatureError: there is not one row a vertex, or ``k`` is below 1.
        """
        check_graph(self, graph)
        graph = graph.local_var()  # which other threads do not see
        graph.ndata["h"] = feat.sort(-1).values
        found = vgraph.topk_nodes(graph, "h", self.k, sortby=-1)[0]
        return found.reshape(-1, self.k * feat.shape[-1])


class GlobalAttentionPooling(nn.Module):
    """The sum of what ``feat_nn`` makes of vertices, weighed by a softmax of ``gate_nn`` over each graph.

    Args:
        gate_nn: a module of (vertices, ...) that gives (vertices, 1).
        feat_nn: a module of (vertices, ...); None: the rows themselves.

    Raises:
        FeatureError: ``gate_nn`` gives more than one column.

    Source: Li et al. 2016, equation 7.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import GlobalAttentionPooling
        >>> GlobalAttentionPooling(torch.nn.Linear(3, 1))(vgraph.graph(([0], [1])), torch.ones(2, 3))
        tensor([[1., 1., 1.]], grad_fn=...)
    """

    def __init__(self, gate_nn: nn.Module, feat_nn: nn.Module | None = None) -> None:
        super().__init__()
        self.gate_nn, self.feat_nn = gate_nn, feat_nn

    @checked()
    def forward(self, graph: vgraph.Graph, feat: Tensor, get_attention: bool = False) -> Any:
        """One row a graph.

        Args:
            graph: a batch of graphs with one type of nodes.
            feat: (vertices, ...).
            get_attention: give the attention, too.

        Returns:
            (graphs, ...); with ``get_attention`` a pair of that and (vertices, 1).

        Raises:
            FunctionError: it is called without a graph.
            FeatureError: ``gate_nn`` gives more than one column.
        """
        check_graph(self, graph)
        gate = self.gate_nn(feat)
        if gate.shape[-1] != 1:
            fact = f"gate_nn gives {tuple(gate.shape)}"
            raise FeatureError(fact, cure="let it give one column")
        attention = _softmax(graph, gate)
        rows = feat if self.feat_nn is None else self.feat_nn(feat)
        found = _read(graph, rows * attention, "sum")
        return (found, attention) if get_attention else found


def _softmax(graph: vgraph.Graph, scores: Tensor) -> Tensor:
    graph = graph.local_var()  # which other threads do not see
    graph.ndata["e"] = scores
    return vgraph.softmax_nodes(graph, "e")


class WeightAndSum(nn.Module):
    """The sum of vertices, each times a number from 0 to 1 that a linear map of it gives.

    Args:
        in_feats: the width of a row.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        FeatureError: there is not one row a vertex.

    Source: DGL 1.1, ``dgl.nn.WeightAndSum``.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import WeightAndSum
        >>> WeightAndSum(3)(vgraph.graph(([0], [1])), torch.ones(2, 3)).shape
        torch.Size([1, 3])
    """

    @checked(in_feats=COUNT)
    def __init__(self, in_feats: int) -> None:
        super().__init__()
        self.in_feats = in_feats
        self.atom_weighting = nn.Sequential(nn.Linear(in_feats, 1), nn.Sigmoid())

    def forward(self, g: vgraph.Graph, feats: Tensor) -> Tensor:
        """One row a graph.

        Args:
            g: a batch of graphs with one type of nodes.
            feats: (vertices, in_feats).

        Returns:
            (graphs, in_feats).

        Raises:
            FunctionError: it is called without a graph.
            FeatureError: there is not one row a vertex.
            ShapeError: rows are of another width than the layer's.
        """
        check_graph(self, g)
        check_width(self, feats, self.in_feats)
        return _read(g, feats * self.atom_weighting(feats), "sum")


class Set2Set(nn.Module):
    """An LSTM that asks each graph ``n_iters`` times what it holds, by attention to its vertices.

    Args:
        input_dim: the width of a row.
        n_iters: how many questions.
        n_layers: how many layers the LSTM has.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.

    Source: Vinyals et al. 2016, section 4.2.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import Set2Set
        >>> Set2Set(3, n_iters=2, n_layers=1)(vgraph.graph(([0], [1])), torch.ones(2, 3)).shape
        torch.Size([1, 6])
    """

    @checked(input_dim=POSITIVE, n_iters=COUNT, n_layers=POSITIVE)
    def __init__(self, input_dim: int, n_iters: int, n_layers: int) -> None:
        super().__init__()
        self.input_dim, self.n_iters, self.n_layers = input_dim, n_iters, n_layers
        self.output_dim = 2 * input_dim
        self.lstm = nn.LSTM(self.output_dim, input_dim, n_layers)
        self.reset_parameters()  # a second draw, as DGL's layer makes, so that a seed gives its weights

    def reset_parameters(self) -> None:
        """Draws new weights for the LSTM, as torch does."""
        self.lstm.reset_parameters()

    def forward(self, graph: vgraph.Graph, feat: Tensor) -> Tensor:
        """One row a graph, whatever the order of its vertices.

        Args:
            graph: a batch of graphs with one type of nodes.
            feat: (vertices, input_dim).

        Returns:
            (graphs, 2 * input_dim): the last question and its answer.

        Raises:
            FunctionError: it is called without a graph.
            ShapeError: rows are of another width than the layer's.
        """
        check_graph(self, graph)
        check_width(self, feat, self.input_dim)
        count = graph.batch_size
        state = feat.new_zeros(self.n_layers, count, self.input_dim)
        carried, asked = (state, state), feat.new_zeros(count, self.output_dim)
        for _ in range(self.n_iters):
            out, carried = self.lstm(asked.unsqueeze(0), carried)
            question = out.view(count, self.input_dim)
            scores = (feat * vgraph.broadcast_nodes(graph, question)).sum(-1, keepdim=True)
            answer = _read(graph, feat * _softmax(graph, scores), "sum")
            asked = torch.cat([question, answer], -1)
        return asked

    def extra_repr(self) -> str:
        """What ``repr`` shows of the layer.

        Returns:
            The number of questions.
        """
        return f"n_iters={self.n_iters}"
