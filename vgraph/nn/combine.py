"""What stands beside layers: results of several joined, bases of weights, labels spread, pairs scored, points joined.

Takes: rows, graphs. Gives: rows, graphs. Runs at every call.
Source: Xu et al. 2018 (jumping knowledge), Zhu and Ghahramani 2002 (labels), Schlichtkrull et al. 2018 (bases).
"""

from __future__ import annotations

from collections.abc import Sequence as Items
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import vgraph
from vgraph.arguments import COUNT, PART, POSITIVE, checked
from vgraph.errors import FunctionError
from vgraph.nn.inputs import check_graph, check_name
from vgraph.nn.propagate import send_rows


class JumpingKnowledge(nn.Module):
    """The results of several layers as one: side by side, their maximum, or weighed by an LSTM over layers.

    Args:
        mode: "cat", "max" or "lstm", which needs the other two.
        in_feats: the width of a row, for "lstm"; None for the others.
        num_layers: how many layers, for "lstm"; None for the others.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        NameLookupError: an unknown mode.
        FunctionError: sizes are missing.

    Source: Xu et al. 2018, section 4.

    Example:
        >>> import torch
        >>> from vgraph.nn import JumpingKnowledge
        >>> JumpingKnowledge()([torch.ones(3, 4), torch.ones(3, 4)]).shape
        torch.Size([3, 8])
    """

    @checked(in_feats=COUNT.or_none(), num_layers=POSITIVE.or_none())
    def __init__(self, mode: str = "cat", in_feats: int | None = None, num_layers: int | None = None) -> None:
        super().__init__()
        self.mode = check_name(mode, ("cat", "max", "lstm"), "mode")
        if mode == "lstm":
            if in_feats is None or num_layers is None:
                raise FunctionError("mode lstm without sizes", cure="pass in_feats and num_layers")
            hidden = num_layers * in_feats // 2
            self.lstm = nn.LSTM(in_feats, hidden, bidirectional=True, batch_first=True)
            self.att = nn.Linear(2 * hidden, 1)

    def reset_parameters(self) -> None:
        """Draws new weights for the LSTM and the linear map, as torch does."""
        for layer in self.children():
            layer.reset_parameters()  # pyright: ignore[reportCallIssue]

    def forward(self, feat_list: Items[Tensor]) -> Tensor:
        """The results as one.

        Args:
            feat_list: (vertices, in_feats) of every layer.

        Returns:
            (vertices, layers * in_feats) for "cat", else (vertices, in_feats).

        Raises:
            FunctionError: the list is empty.
        """
        if not len(feat_list):
            raise FunctionError("there is no layer's result to join", cure="pass a list with that of each layer")
        if self.mode == "cat":
            return torch.cat(list(feat_list), -1)
        if self.mode == "max":
            return torch.stack(list(feat_list), -1).max(-1).values
        rows = torch.stack(list(feat_list), 1)
        share = torch.softmax(self.att(self.lstm(rows)[0]).squeeze(-1), -1)
        return (rows * share.unsqueeze(-1)).sum(1)


class WeightBasis(nn.Module):
    """Matrices as sums of a few bases.

    Args:
        shape: the shape of a matrix.
        num_bases: how many bases.
        num_outputs: how many matrices.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.

    Source: Schlichtkrull et al. 2018, equation 3.

    Example:
        >>> from vgraph.nn import WeightBasis
        >>> WeightBasis((5, 2), num_bases=3, num_outputs=7)().shape
        torch.Size([7, 5, 2])
    """

    @checked(num_bases=POSITIVE, num_outputs=COUNT)
    def __init__(self, shape: tuple[int, ...], num_bases: int, num_outputs: int) -> None:
        super().__init__()
        self.shape, self.num_bases, self.num_outputs = shape, num_bases, num_outputs
        self.weight = nn.Parameter(torch.empty(num_bases, *shape))
        self.w_comp = nn.Parameter(torch.empty(num_outputs, num_bases))
        for parameter in (self.weight, self.w_comp):
            nn.init.xavier_uniform_(parameter, gain=nn.init.calculate_gain("relu"))

    def forward(self) -> Tensor:
        """All matrices.

        Returns:
            (num_outputs, ``*shape``).
        """
        return (self.w_comp @ self.weight.flatten(1)).view(self.num_outputs, *self.shape)


class LabelPropagation(nn.Module):
    """Labels of some vertices spread to the others: ``y = alpha * A y + (1 - alpha) * y0``, ``k`` times.

    Args:
        k: how many steps.
        alpha: how much of a step's result comes from neighbours, from 0 to 1.
        norm_type: "sym" scales by the roots of the degrees at both ends, "row" by the in-degree.
        clamp: keep results from 0 to 1.
        normalize: let the absolute values of a row sum to 1.
        reset: keep known labels what they are.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        NameLookupError: an unknown ``norm_type``.

    Source: Zhu and Ghahramani 2002.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import LabelPropagation
        >>> g = vgraph.graph(([0, 1], [1, 2]))
        >>> LabelPropagation(k=2, alpha=0.5)(g, torch.tensor([1, 0, 0]), torch.tensor([True, False, False]))[:, 1]
        tensor([0.5000, 0.2500, 0.2500])
    """

    @checked(k=COUNT, alpha=PART)
    def __init__(
        self,
        k: int,
        alpha: float,
        norm_type: str = "sym",
        clamp: bool = True,
        normalize: bool = False,
        reset: bool = False,
    ) -> None:
        super().__init__()
        self.k, self.alpha, self.norm_type = k, alpha, check_name(norm_type, ("sym", "row"), "norm_type")
        self.clamp, self.normalize, self.reset = clamp, normalize, reset

    def forward(self, g: vgraph.Graph, labels: Tensor, mask: Tensor | None = None) -> Tensor:
        """Labels of all vertices.

        Args:
            g: a graph with one type of nodes and edges.
            labels: (vertices,) whole numbers of classes, or (vertices, classes) one-hot or with several ones a vertex.
            mask: bool (vertices,), true where the label is known, or ids (k,) of those vertices; None: all are.

        Returns:
            float32 (vertices, classes).

        Raises:
            FunctionError: it is called without a graph.
        """
        check_graph(self, g)
        is_wide = labels.ndim > 1 and (labels.shape[1] > 1 or labels.is_floating_point())
        numbers = labels if is_wide or labels.is_floating_point() else labels.long()
        known = labels.float() if is_wide else F.one_hot(numbers.reshape(-1)).float()
        if mask is not None and mask.dtype not in (torch.bool, torch.uint8):
            ids = mask.reshape(-1).long()
            mask = torch.zeros(len(known), dtype=torch.bool, device=mask.device).index_fill(0, ids, True)
        fixed = known.new_ones((len(known), 1), dtype=torch.bool) if mask is None else mask.bool().reshape(-1, 1)
        y = first = torch.where(fixed, known, 0.0)
        power = -0.5 if self.norm_type == "sym" else -1.0
        arrives = g.in_degrees().float().clamp(min=1).pow(power).unsqueeze(1)
        leaves = g.out_degrees().float().clamp(min=1).rsqrt().unsqueeze(1) if self.norm_type == "sym" else 1.0
        for _ in range(self.k):
            y = (1 - self.alpha) * first + self.alpha * send_rows(g, y * leaves) * arrives
            y = y.clamp(0.0, 1.0) if self.clamp else y
            y = F.normalize(y, p=1) if self.normalize else y
            y = torch.where(fixed, known, y) if self.reset else y
        return y


class EdgePredictor(nn.Module):
    """A score, or rows, of pairs from the rows of their ends, multiplied, compared or joined.

    Args:
        op: "dot", "cos", "ele" (elementwise product) or "cat".
        in_feats: the width of a row, where a linear map follows; None: none does.
        out_feats: the width of what the linear map gives; None: none follows.
        bias: let the linear map have one.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        NameLookupError: an unknown ``op``.

    Source: DGL 1.1, ``dgl.nn.EdgePredictor``.

    Example:
        >>> import torch
        >>> from vgraph.nn import EdgePredictor
        >>> EdgePredictor("cat", 4, 3)(torch.ones(5, 4), torch.ones(5, 4)).shape
        torch.Size([5, 3])
    """

    @checked(in_feats=COUNT.or_none(), out_feats=COUNT.or_none())
    def __init__(self, op: str, in_feats: int | None = None, out_feats: int | None = None, bias: bool = False) -> None:
        super().__init__()
        self.op = check_name(op, ("dot", "cos", "ele", "cat"), "operator")
        self.linear = None
        if in_feats is not None and out_feats is not None:
            width = {"dot": 1, "cos": 1, "ele": in_feats, "cat": 2 * in_feats}[op]
            self.linear = nn.Linear(width, out_feats, bias=bias)

    def reset_parameters(self) -> None:
        """Draws new weights for the linear map, as torch does."""
        if self.linear is not None:
            self.linear.reset_parameters()

    def forward(self, h_src: Tensor, h_dst: Tensor) -> Tensor:
        """The score or row of every pair.

        Args:
            h_src: (pairs, in_feats), rows of the first ends.
            h_dst: (pairs, in_feats), rows of the second ends.

        Returns:
            (pairs, 1) for "dot" and "cos", (pairs, in_feats) for "ele", (pairs, 2 * in_feats) for "cat"; behind a
            linear map (pairs, out_feats).
        """
        if self.op == "dot":
            h = (h_src * h_dst).sum(-1, keepdim=True)
        elif self.op == "cos":
            h = F.cosine_similarity(h_src, h_dst).unsqueeze(-1)
        else:
            h = h_src * h_dst if self.op == "ele" else torch.cat([h_src, h_dst], -1)
        return h if self.linear is None else self.linear(h)


class KNNGraph(nn.Module):
    """``vgraph.knn_graph`` as a layer.

    Args:
        k: how many in-edges every point has.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        FeatureError: the points have another number of dims.
        GraphError: there are not ``k`` points.
        FunctionError: ``dist`` is neither "euclidean" nor "cosine".

    Source: DGL 1.1, ``dgl.nn.KNNGraph``.

    Example:
        >>> import torch
        >>> from vgraph.nn import KNNGraph
        >>> KNNGraph(2)(torch.rand(5, 3)).num_edges()
        10
    """

    @checked(k=POSITIVE)
    def __init__(self, k: int) -> None:
        super().__init__()
        self.k = k

    @checked()
    def forward(
        self, x: Tensor, algorithm: str = "bruteforce-blas", dist: str = "euclidean", exclude_self: bool = False
    ) -> Any:
        """The graph of the nearest points.

        Args:
            x: (points, dims), or (sets, points, dims) for a batch of one graph a set.
            algorithm: ignored, as distances are exact.
            dist: "euclidean" or "cosine".
            exclude_self: do not count a point as its own neighbour.

        Returns:
            A Graph of the points, without features.

        Raises:
            FeatureError: the points have another number of dims.
            GraphError: there are not ``k`` points.
            FunctionError: another ``dist``.
        """
        return vgraph.knn_graph(x, self.k, algorithm, dist, exclude_self)
