"""Convolutions over an adjacency matrix that is given dense: DenseGraphConv, DenseSAGEConv, DenseChebConv.

Takes: a matrix and one row a vertex. Gives: one row a vertex. Runs at every call.
Source: Kipf and Welling 2017; Hamilton, Ying and Leskovec 2017; Defferrard et al. 2016; names of DGL's.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from vgraph.arguments import COUNT, PART, POSITIVE, checked
from vgraph.errors import FeatureError
from vgraph.nn.inputs import check_name, check_width, pair

Activation = Callable[[Tensor], Tensor]


class DenseGraphConv(nn.Module):
    """``GraphConv`` for a dense adjacency matrix.

    Args:
        in_feats: the width of a row.
        out_feats: the width of a result's row.
        norm: "both" divides by the roots of the degrees at either end, "right" by the receiver's degree, "none" by
            nothing.
        bias: add a vector (out_feats,) that is learned.
        activation: a function of the rows at the end; None: none.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        NameLookupError: an unknown ``norm``.

    Source: Kipf and Welling 2017, equation 2.

    Example:
        >>> import torch
        >>> from vgraph.nn import DenseGraphConv
        >>> DenseGraphConv(5, 2)(torch.ones(3, 3), torch.ones(3, 5)).shape
        torch.Size([3, 2])
    """

    bias: nn.Parameter | None

    @checked(in_feats=COUNT, out_feats=COUNT)
    def __init__(
        self, in_feats: int, out_feats: int, norm: str = "both", bias: bool = True, activation: Activation | None = None
    ) -> None:
        super().__init__()
        self._norm, self._activation = check_name(norm, ("both", "right", "none"), "norm"), activation
        self.weight = nn.Parameter(torch.empty(in_feats, out_feats))
        self.register_parameter("bias", nn.Parameter(torch.empty(out_feats)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws Glorot's uniform weights, and sets the bias to zeros."""
        nn.init.xavier_uniform_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, adj: Tensor, feat: Tensor) -> Tensor:
        """The in-neighbours' rows, summed and mapped.

        Args:
            adj: (receivers, senders), the weight of every edge, 0 where there is none.
            feat: (senders, in_feats).

        Returns:
            (receivers, out_feats).

        Raises:
            ShapeError: rows are of another width than the layer's.
        """
        check_width(self, feat, self.weight.shape[0])
        adj = adj.to(feat)
        if self._norm == "both":
            feat = feat * _degrees(adj, 0).rsqrt()
        wide_in = self.weight.shape[0] > self.weight.shape[1]  # the narrower side is what the matrix multiplies
        rows = adj @ (feat @ self.weight) if wide_in else (adj @ feat) @ self.weight
        if self._norm != "none":
            degrees = _degrees(adj, 1)
            rows = rows * (degrees.rsqrt() if self._norm == "both" else degrees.reciprocal())
        rows = rows if self.bias is None else rows + self.bias
        return rows if self._activation is None else self._activation(rows)


def _degrees(adj: Tensor, dim: int) -> Tensor:
    """Sums of weights over a dim, at least 1, as a column."""
    return adj.sum(dim).clamp(min=1).unsqueeze(1)


class DenseSAGEConv(nn.Module):
    """``SAGEConv`` with the aggregator "gcn" for a dense adjacency matrix: the mean of neighbours and the row itself.

    Args:
        in_feats: the width of a row.
        out_feats: the width of a result's row.
        feat_drop: the part of the features that is dropped in training.
        bias: let the linear map have one.
        norm: a function of the rows at the end; None: none.
        activation: a function of the rows before ``norm``; None: none.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        FeatureError: rows of the two ends have different widths.

    Source: Hamilton, Ying and Leskovec 2017, section 3.3 (the convolutional aggregator).

    Example:
        >>> import torch
        >>> from vgraph.nn import DenseSAGEConv
        >>> DenseSAGEConv(5, 2)(torch.ones(3, 3), torch.ones(3, 5)).shape
        torch.Size([3, 2])
    """

    @checked(in_feats=COUNT, out_feats=COUNT, feat_drop=PART)
    def __init__(
        self,
        in_feats: int,
        out_feats: int,
        feat_drop: float = 0.0,
        bias: bool = True,
        norm: Activation | None = None,
        activation: Activation | None = None,
    ) -> None:
        super().__init__()
        self._norm, self.activation = norm, activation
        self.feat_drop, self.fc = nn.Dropout(feat_drop), nn.Linear(in_feats, out_feats, bias=bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws Glorot's uniform weights with the gain of relu; the bias stays as it is."""
        nn.init.xavier_uniform_(self.fc.weight, gain=nn.init.calculate_gain("relu"))

    def forward(self, adj: Tensor, feat: Tensor | tuple[Tensor, Tensor]) -> Tensor:
        """The mean of the in-neighbours' rows and the own one, mapped.

        Args:
            adj: (receivers, senders), the weight of every edge, 0 where there is none.
            feat: (vertices, in_feats), or a pair for senders and receivers.

        Returns:
            (receivers, out_feats).

        Raises:
            FeatureError: rows of the two ends have different widths.
            ShapeError: rows are of another width than the layer's.
        """
        given = pair(feat)
        if given[0].shape[1:] != given[1].shape[1:]:
            fact = f"senders have rows of {tuple(given[0].shape[1:])}, receivers of {tuple(given[1].shape[1:])}"
            raise FeatureError(fact, cure="give rows of one width, as they are added")
        check_width(self, given[0], self.fc.in_features)
        src = self.feat_drop(given[0])
        dst = self.feat_drop(given[1]) if isinstance(feat, tuple) else src
        adj = adj.to(src)
        rows = self.fc((adj @ src + dst) / (adj.sum(1, keepdim=True) + 1))
        rows = rows if self.activation is None else self.activation(rows)
        return rows if self._norm is None else self._norm(rows)


class DenseChebConv(nn.Module):
    """``ChebConv`` for a dense adjacency matrix, with a matrix for every polynomial.

    Args:
        in_feats: the width of a row.
        out_feats: the width of a result's row.
        k: how many polynomials.
        bias: add a vector (out_feats,) that is learned.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.

    Source: Defferrard, Bresson and Vandergheynst 2016, section 2.1.

    Example:
        >>> import torch
        >>> from vgraph.nn import DenseChebConv
        >>> DenseChebConv(5, 2, k=3)(torch.ones(3, 3), torch.ones(3, 5), lambda_max=2.0).shape
        torch.Size([3, 2])
    """

    bias: nn.Parameter | None

    @checked(in_feats=COUNT, out_feats=COUNT, k=POSITIVE)
    def __init__(self, in_feats: int, out_feats: int, k: int, bias: bool = True) -> None:
        super().__init__()
        self._k = k
        self.W = nn.Parameter(torch.empty(k, in_feats, out_feats))
        self.register_parameter("bias", nn.Parameter(torch.empty(out_feats)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets the bias to zeros and draws Glorot's normal weights with the gain of relu, matrix by matrix."""
        if self.bias is not None:
            nn.init.zeros_(self.bias)
        for matrix in self.W:
            nn.init.xavier_normal_(matrix, nn.init.calculate_gain("relu"))

    def forward(self, adj: Tensor, feat: Tensor, lambda_max: float | Tensor | None = None) -> Tensor:
        """The polynomials of the rows, mapped and summed.

        Args:
            adj: (vertices, vertices), the weight of every edge, 0 where there is none.
            feat: (vertices, in_feats).
            lambda_max: the largest eigenvalue of the normalised Laplacian; None: it is computed.

        Returns:
            (vertices, out_feats).

        Raises:
            ShapeError: rows are of another width than the layer's.
        """
        check_width(self, feat, self.W.shape[1])
        adj = adj.to(feat)
        root = _degrees(adj, 1).rsqrt()
        laplacian = torch.eye(len(adj), dtype=adj.dtype, device=adj.device) - root * adj * root.t()
        most = torch.linalg.eigvals(laplacian).real.max() if lambda_max is None else lambda_max
        terms = [feat]
        for i in range(1, self._k):
            step = 2 / most * (laplacian @ terms[-1]) - terms[-1]
            terms.append(step if i == 1 else 2 * step - terms[-2])
        rows = (torch.stack(terms) @ self.W).sum(0)
        return rows if self.bias is None else rows + self.bias
