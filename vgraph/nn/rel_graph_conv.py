"""RelGraphConv: graph convolution with a linear map for every type of edge, with DGL's names.

Takes: a graph, one row a vertex, types of edges. Gives: one row a vertex; tempo: every call.
Source: Schlichtkrull, Kipf, Bloem et al. 2018, equation 2.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

import vgraph
import vgraph.function as fn
from vgraph.nn.inputs import receivers_of
from vgraph.nn.propagate import propagate
from vgraph.nn.typed_linear import TypedLinear


class RelGraphConv(nn.Module):
    """The sum of in-neighbours, each mapped by its edge's type, plus the vertex itself by ``loop_weight``.

    Called with a graph, a feature (vertices, in_feat), ``etypes`` (edges,) from 0 to num_rels - 1, and
    optionally ``norm`` (edges, 1), which multiplies messages; gives (vertices, out_feat).

    Args:
        regularizer: of the maps: None, "basis" or "bdd", see ``TypedLinear``.
        num_bases: bases or blocks; by default as many as relations.
        layer_norm: normalises rows before bias and self-loop.

    Raises:
        FeatureError: types are outside, or not one an edge.

    Source: Schlichtkrull et al. 2018, equation 2.

    >>> import torch, vgraph
    >>> from vgraph.nn import RelGraphConv
    >>> g = vgraph.graph(([0, 1, 2], [1, 2, 0]))
    >>> RelGraphConv(5, 2, num_rels=3)(g, torch.ones(3, 5), torch.tensor([0, 2, 2])).shape
    torch.Size([3, 2])
    """

    def __init__(
        self,
        in_feat: int,
        out_feat: int,
        num_rels: int,
        regularizer: str | None = None,
        num_bases: int | None = None,
        bias: bool = True,
        activation: Callable[[Tensor], Tensor] | None = None,
        self_loop: bool = True,
        dropout: float = 0.0,
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        if regularizer is not None and num_bases is None:
            num_bases = num_rels
        self.linear_r = TypedLinear(in_feat, out_feat, num_rels, regularizer, num_bases)
        self.bias, self.activation, self.self_loop, self.layer_norm = bias, activation, self_loop, layer_norm
        if bias:
            self.h_bias = nn.Parameter(torch.zeros(out_feat))
        if layer_norm:
            self.layer_norm_weight = nn.LayerNorm(out_feat, elementwise_affine=True)
        if self_loop:
            self.loop_weight = nn.Parameter(torch.empty(in_feat, out_feat))
            nn.init.xavier_uniform_(self.loop_weight, gain=nn.init.calculate_gain("relu"))
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, g: vgraph.Graph, feat: Tensor, etypes: Tensor, norm: Tensor | None = None, *, presorted: bool = False
    ) -> Tensor:
        sent = self.linear_r(feat.index_select(0, g.topology.src), etypes, presorted)
        with g.local_scope():
            g.edata["m"] = sent if norm is None else sent * norm.reshape(-1, 1)
            rows = propagate(g, fn.copy_e("m", "m"), fn.sum("m", "out"), sent)
        if self.layer_norm:
            rows = self.layer_norm_weight(rows)
        if self.bias:
            rows = rows + self.h_bias
        if self.self_loop:
            rows = rows + receivers_of(g, feat) @ self.loop_weight
        rows = rows if self.activation is None else self.activation(rows)
        return self.dropout(rows)
