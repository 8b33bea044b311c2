"""TransE and TransR: scores of triples, by how near a relation moves a head to its tail, with DGL's names.

Takes: rows of heads and tails, ids of relations. Gives: one number a triple. Runs at every call.
Source: Bordes et al. 2013; Lin et al. 2015.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vgraph.arguments import COUNT, FROM_ZERO, POSITIVE, checked
from vgraph.nn.inputs import check_width


class TransE(nn.Module):
    """``-|head + relation - tail|``.

    Args:
        num_rels: how many relations.
        feats: the width of a row.
        p: which norm.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.

    Source: Bordes et al. 2013, section 2.

    Example:
        >>> import torch
        >>> from vgraph.nn import TransE
        >>> TransE(2, 5)(torch.ones(3, 5), torch.ones(3, 5), torch.tensor([0, 1, 1])).shape
        torch.Size([3])
    """

    @checked(num_rels=POSITIVE, feats=COUNT, p=FROM_ZERO)
    def __init__(self, num_rels: int, feats: int, p: float = 1) -> None:
        super().__init__()
        self.rel_emb, self.p = nn.Embedding(num_rels, feats), p

    def reset_parameters(self) -> None:
        """Draws standard normal relations."""
        self.rel_emb.reset_parameters()

    def forward(self, h_head: Tensor, h_tail: Tensor, rels: Tensor) -> Tensor:
        """The scores.

        Args:
            h_head: (triples, feats).
            h_tail: (triples, feats).
            rels: int64 (triples,).

        Returns:
            (triples,).

        Raises:
            ShapeError: rows are of another width than the layer's.
        """
        _check_widths(self, h_head, h_tail, self.rel_emb.embedding_dim)
        return _nearness(h_head + self.rel_emb(rels) - h_tail, self.p)


class TransR(nn.Module):
    """``TransE`` in a space of the relation's own, to which a matrix takes head and tail.

    Args:
        num_rels: how many relations.
        rfeats: the width of a relation's row.
        nfeats: the width of a head's or tail's row.
        p: which norm.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.

    Source: Lin et al. 2015, equations 7 and 8.

    Example:
        >>> import torch
        >>> from vgraph.nn import TransR
        >>> TransR(2, rfeats=4, nfeats=5)(torch.ones(3, 5), torch.ones(3, 5), torch.tensor([0, 1, 1])).shape
        torch.Size([3])
    """

    @checked(num_rels=POSITIVE, rfeats=POSITIVE, nfeats=COUNT, p=FROM_ZERO)
    def __init__(self, num_rels: int, rfeats: int, nfeats: int, p: float = 1) -> None:
        super().__init__()
        self.rel_emb, self.rel_project = nn.Embedding(num_rels, rfeats), nn.Embedding(num_rels, nfeats * rfeats)
        self.rfeats, self.nfeats, self.p = rfeats, nfeats, p

    def reset_parameters(self) -> None:
        """Draws standard normal relations and matrices."""
        self.rel_emb.reset_parameters()
        self.rel_project.reset_parameters()

    def forward(self, h_head: Tensor, h_tail: Tensor, rels: Tensor) -> Tensor:
        """The scores.

        Args:
            h_head: (triples, nfeats).
            h_tail: (triples, nfeats).
            rels: int64 (triples,).

        Returns:
            (triples,).

        Raises:
            ShapeError: rows are of another width than the layer's.
        """
        _check_widths(self, h_head, h_tail, self.nfeats)
        matrices = self.rel_project(rels).view(-1, self.nfeats, self.rfeats)
        head, tail = (torch.einsum("tn,tnr->tr", rows, matrices) for rows in (h_head, h_tail))
        return _nearness(head + self.rel_emb(rels) - tail, self.p)


def _check_widths(layer: nn.Module, h_head: Tensor, h_tail: Tensor, width: int) -> None:
    check_width(layer, h_head, width, "heads' rows")
    check_width(layer, h_tail, width, "tails' rows")


def _nearness(gap: Tensor, p: float) -> Tensor:
    return -torch.linalg.vector_norm(gap, p, -1)
