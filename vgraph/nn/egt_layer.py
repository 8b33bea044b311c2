"""EGTLayer: a Transformer over all pairs of a graph's vertices whose pairs have rows, too, with DGL's names.

Takes: padded rows of several graphs and of their pairs. Gives: both, new. Runs at every call.
Source: Hussain, Zaki and Subramanian 2022, section 3.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vgraph.arguments import COUNT, PART, POSITIVE, checked
from vgraph.errors import GraphError


class EGTLayer(nn.Module):
    """Attention that rows of pairs bias and gate; its scores make new rows of pairs.

    Args:
        feat_size: the width of a vertex's row, which ``num_heads`` divides.
        edge_feat_size: the width of a pair's row.
        num_heads: how many heads.
        num_virtual_nodes: how many of the first vertices are no real ones: they are not scaled by degree.
        dropout: the part of what is added to the residual that is dropped in training.
        attn_dropout: the part of the attention that is dropped in training.
        activation: the module within the networks; None: elu.
        edge_update: make new rows of pairs.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        GraphError: num_heads does not divide feat_size.

    Source: Hussain et al. 2022, equations 1 to 6.

    Example:
        >>> import torch
        >>> from vgraph.nn import EGTLayer
        >>> h, e = EGTLayer(8, 4, 2, num_virtual_nodes=0)(torch.ones(1, 3, 8), torch.ones(1, 3, 3, 4))
        >>> h.shape, e.shape
        (torch.Size([1, 3, 8]), torch.Size([1, 3, 3, 4]))
    """

    @checked(
        feat_size=COUNT,
        edge_feat_size=COUNT,
        num_heads=POSITIVE,
        num_virtual_nodes=COUNT,
        dropout=PART,
        attn_dropout=PART,
    )
    def __init__(
        self,
        feat_size: int,
        edge_feat_size: int,
        num_heads: int,
        num_virtual_nodes: int,
        dropout: float = 0,
        attn_dropout: float = 0,
        activation: nn.Module | None = None,
        edge_update: bool = True,
    ) -> None:
        super().__init__()
        if feat_size % num_heads:
            fact = f"feat_size {feat_size} is not divisible by num_heads {num_heads}"
            raise GraphError(fact, cure="choose a size that is")
        self.num_heads, self.num_virtual_nodes, self.edge_update = num_heads, num_virtual_nodes, edge_update
        activation = nn.ELU() if activation is None else activation
        self.mha_ln_h, self.mha_ln_e = nn.LayerNorm(feat_size), nn.LayerNorm(edge_feat_size)
        self.edge_input, self.qkv_proj = nn.Linear(edge_feat_size, num_heads), nn.Linear(feat_size, feat_size * 3)
        self.gate = nn.Linear(edge_feat_size, num_heads)
        self.attn_dropout, self.node_output = nn.Dropout(attn_dropout), nn.Linear(feat_size, feat_size)
        self.mha_dropout_h, self.node_ffn = nn.Dropout(dropout), _network(feat_size, activation, dropout)
        if edge_update:
            self.edge_output, self.mha_dropout_e = nn.Linear(num_heads, edge_feat_size), nn.Dropout(dropout)
            self.edge_ffn = _network(edge_feat_size, activation, dropout)

    def forward(self, nfeat: Tensor, efeat: Tensor, mask: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        """New rows of vertices and of pairs.

        Args:
            nfeat: (graphs, vertices, feat_size), graphs filled up to one size.
            efeat: (graphs, vertices, vertices, edge_feat_size).
            mask: (graphs, vertices, vertices), what is added to scores: -inf where nothing is to be seen; None: all
                is seen.

        Returns:
            (graphs, vertices, feat_size), and with ``edge_update`` a pair of that and (graphs, vertices, vertices,
            edge_feat_size).
        """
        pairs = self.mha_ln_e(efeat)
        q, k, v = self.qkv_proj(self.mha_ln_h(nfeat)).unflatten(2, (3, -1, self.num_heads)).unbind(2)
        scores = torch.einsum("bldh,bmdh->blmh", q, k).clamp(-5, 5) + self.edge_input(pairs)
        hidden = 0.0 if mask is None else mask.unsqueeze(-1)
        gates = torch.sigmoid(self.gate(pairs) + hidden)
        attention = self.attn_dropout(F.softmax(scores + hidden, 2) * gates)
        seen = torch.einsum("blmh,bmkh->blkh", attention, v) * self._scale(gates)
        rows = nfeat + self.mha_dropout_h(self.node_output(seen.flatten(2)))
        rows = rows + self.node_ffn(rows)
        if not self.edge_update:
            return rows
        pairs = efeat + self.mha_dropout_e(self.edge_output(scores))
        return rows, pairs + self.edge_ffn(pairs)

    def _scale(self, gates: Tensor) -> Tensor:
        """By how much each vertex sees; 1 for those that are no real ones."""
        scale = torch.log(1 + gates.sum(2, keepdim=True))
        count = self.num_virtual_nodes
        return torch.cat([torch.ones_like(scale[:, :count]), scale[:, count:]], 1)


def _network(size: int, activation: nn.Module, dropout: float) -> nn.Sequential:
    ends = nn.Linear(size, size), nn.Linear(size, size)
    return nn.Sequential(nn.LayerNorm(size), ends[0], activation, ends[1], nn.Dropout(dropout))
