"""GraphormerLayer: a Transformer over all pairs of a graph's vertices, biased by the graph, with DGL's names.

Takes: padded rows of several graphs, biases and masks of pairs. Gives: rows. Runs at every call.
Source: Ying et al. 2021, sections 3.1 and 3.2.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vgraph.arguments import COUNT, PART, POSITIVE, checked
from vgraph.errors import GraphError
from vgraph.nn.inputs import check_name, check_width


class BiasedMHA(nn.Module):
    """Multi-head attention whose scores a bias is added to, or multiplied with.

    Args:
        feat_size: the width of a row, which ``num_heads`` divides.
        num_heads: how many heads.
        bias: let the linear maps have biases.
        attn_bias_type: "add" or "mul".
        attn_drop: the part of the attention that is dropped in training.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        GraphError: num_heads does not divide feat_size.
        NameLookupError: an unknown type of bias.

    Source: Ying et al. 2021, equations 3 and 6.

    Example:
        >>> import torch
        >>> from vgraph.nn import BiasedMHA
        >>> BiasedMHA(8, 2)(torch.ones(3, 5, 8), torch.zeros(3, 5, 5, 2)).shape
        torch.Size([3, 5, 8])
    """

    @checked(feat_size=POSITIVE, num_heads=POSITIVE, attn_drop=PART)
    def __init__(
        self, feat_size: int, num_heads: int, bias: bool = True, attn_bias_type: str = "add", attn_drop: float = 0.1
    ) -> None:
        super().__init__()
        if feat_size % num_heads:
            fact = f"feat_size {feat_size} is not divisible by num_heads {num_heads}"
            raise GraphError(fact, cure="choose a size that is")
        self.num_heads, self.scaling = num_heads, (feat_size // num_heads) ** -0.5
        self.attn_bias_type = check_name(attn_bias_type, ("add", "mul"), "type of bias")
        self.q_proj, self.k_proj = (nn.Linear(feat_size, feat_size, bias=bias) for _ in range(2))
        self.v_proj, self.out_proj = (nn.Linear(feat_size, feat_size, bias=bias) for _ in range(2))
        self.dropout = nn.Dropout(attn_drop)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws Glorot's uniform weights, those of queries, keys and values over the root of 2."""
        for layer in (self.q_proj, self.k_proj, self.v_proj):
            nn.init.xavier_uniform_(layer.weight, gain=2**-0.5)
        nn.init.xavier_uniform_(self.out_proj.weight)
        if self.out_proj.bias is not None:  # pyright: ignore[reportUnnecessaryComparison]
            nn.init.zeros_(self.out_proj.bias)

    def forward(self, ndata: Tensor, attn_bias: Tensor | None = None, attn_mask: Tensor | None = None) -> Tensor:
        """What every vertex makes of all vertices of its graph.

        Args:
            ndata: (graphs, vertices, feat_size), graphs filled up to one size.
            attn_bias: (graphs, vertices, vertices, num_heads); None: none.
            attn_mask: (graphs, vertices, vertices), true where nothing is to be seen; None: all is seen.

        Returns:
            (graphs, vertices, feat_size).

        Raises:
            ShapeError: rows are of another width than the layer's.
        """
        check_width(self, ndata, self.q_proj.in_features)
        heads = (self.num_heads, -1)
        q, k, v = (proj(ndata).unflatten(-1, heads) for proj in (self.q_proj, self.k_proj, self.v_proj))
        scores = torch.einsum("bxhd,byhd->bxyh", q * self.scaling, k)
        if attn_bias is not None:
            scores = scores + attn_bias if self.attn_bias_type == "add" else scores * attn_bias
        if attn_mask is not None:
            scores = scores.masked_fill(attn_mask.bool().unsqueeze(-1), -torch.inf)
        attention = self.dropout(torch.softmax(scores, 2))
        return self.out_proj(torch.einsum("bxyh,byhd->bxhd", attention, v).flatten(2))


class GraphormerLayer(nn.Module):
    """Biased attention and a feed-forward network, each with a residual and a normalisation.

    Args:
        feat_size: the width of a row, which ``num_heads`` divides.
        hidden_size: the width within the network.
        num_heads: how many heads.
        attn_bias_type: "add" or "mul".
        norm_first: normalise before attention and network, not after.
        dropout: the part of what is added to the residual that is dropped in training.
        attn_dropout: the part of the attention that is dropped in training.
        activation: the module within the network; None: relu.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        GraphError: num_heads does not divide feat_size.
        NameLookupError: an unknown type of bias.

    Source: Ying et al. 2021, equations 8 and 9.

    Example:
        >>> import torch
        >>> from vgraph.nn import GraphormerLayer
        >>> GraphormerLayer(8, 16, 2)(torch.ones(3, 5, 8)).shape
        torch.Size([3, 5, 8])
    """

    @checked(feat_size=POSITIVE, hidden_size=COUNT, num_heads=POSITIVE, dropout=PART, attn_dropout=PART)
    def __init__(
        self,
        feat_size: int,
        hidden_size: int,
        num_heads: int,
        attn_bias_type: str = "add",
        norm_first: bool = False,
        dropout: float = 0.1,
        attn_dropout: float = 0.1,
        activation: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.norm_first = norm_first
        self.attn = BiasedMHA(feat_size, num_heads, attn_bias_type=attn_bias_type, attn_drop=attn_dropout)
        self.ffn = nn.Sequential(
            nn.Linear(feat_size, hidden_size),
            nn.ReLU() if activation is None else activation,
            nn.Dropout(dropout),
            nn.Linear(hidden_size, feat_size),
            nn.Dropout(dropout),
        )
        self.dropout = nn.Dropout(dropout)
        self.attn_layer_norm, self.ffn_layer_norm = nn.LayerNorm(feat_size), nn.LayerNorm(feat_size)

    def forward(self, nfeat: Tensor, attn_bias: Tensor | None = None, attn_mask: Tensor | None = None) -> Tensor:
        """New rows of the vertices.

        Args:
            nfeat: (graphs, vertices, feat_size), graphs filled up to one size.
            attn_bias: (graphs, vertices, vertices, num_heads); None: none.
            attn_mask: (graphs, vertices, vertices), true where nothing is to be seen; None: all is seen.

        Returns:
            (graphs, vertices, feat_size).

        Raises:
            ShapeError: rows are of another width than the layer's.
        """
        check_width(self, nfeat, self.attn.q_proj.in_features)
        if self.norm_first:
            normed = self.attn_layer_norm(nfeat)
            rows = nfeat + self.dropout(self.attn(normed, attn_bias, attn_mask))
            return rows + self.ffn(self.ffn_layer_norm(rows))
        rows = self.attn_layer_norm(nfeat + self.dropout(self.attn(nfeat, attn_bias, attn_mask)))
        return self.ffn_layer_norm(rows + self.ffn(rows))
