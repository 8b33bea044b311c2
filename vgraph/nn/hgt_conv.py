"""HGTConv: a Transformer whose maps depend on types of vertices and edges, with DGL's names.

Takes: a graph, one row a vertex, types of both. Gives: one row a vertex. Runs at every call.
Source: Hu, Dong, Wang and Sun 2020, section 3.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import vgraph
from vgraph.arguments import PART, POSITIVE, checked
from vgraph.nn.inputs import check_graph, check_width, of_all_sources, receivers_of
from vgraph.nn.propagate import propagate
from vgraph.nn.typed_linear import TypedLinear


class HGTConv(nn.Module):
    """Keys, queries and values by the type of vertex, attention and messages by the type of edge.

    What a vertex was is mixed in by its type's ``skip``.

    Args:
        in_size: the width of a row.
        head_size: the width of a head's row.
        num_heads: how many heads.
        num_ntypes: how many types of vertices.
        num_etypes: how many types of edges.
        dropout: the part of the result that is dropped in training before it is mixed in.
        use_norm: normalise the rows at the end.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        FeatureError: types are outside, or not one a row.

    Source: Hu et al. 2020, equations 3 to 5.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import HGTConv
        >>> g = vgraph.graph(([0, 1, 2], [1, 2, 0]))
        >>> types = torch.tensor([0, 1, 0])
        >>> HGTConv(5, 4, 2, num_ntypes=2, num_etypes=2)(g, torch.ones(3, 5), types, types).shape
        torch.Size([3, 8])
    """

    @checked(
        in_size=POSITIVE, head_size=POSITIVE, num_heads=POSITIVE, num_ntypes=POSITIVE, num_etypes=POSITIVE, dropout=PART
    )
    def __init__(
        self,
        in_size: int,
        head_size: int,
        num_heads: int,
        num_ntypes: int,
        num_etypes: int,
        dropout: float = 0.2,
        use_norm: bool = False,
    ) -> None:
        super().__init__()
        self.in_size, self.head_size, self.num_heads, self.use_norm = in_size, head_size, num_heads, use_norm
        width = head_size * num_heads
        for name in ("k", "q", "v"):
            setattr(self, f"linear_{name}", TypedLinear(in_size, width, num_ntypes))
        self.linear_a = TypedLinear(width, width, num_ntypes)
        self.relation_pri = nn.ParameterList([nn.Parameter(torch.ones(num_etypes)) for _ in range(num_heads)])
        self.relation_att = nn.ModuleList([TypedLinear(head_size, head_size, num_etypes) for _ in range(num_heads)])
        self.relation_msg = nn.ModuleList([TypedLinear(head_size, head_size, num_etypes) for _ in range(num_heads)])
        self.skip = nn.Parameter(torch.ones(num_ntypes))
        self.drop = nn.Dropout(dropout)
        if use_norm:
            self.norm = nn.LayerNorm(width)
        if in_size != width:
            self.residual_w = nn.Parameter(torch.empty(in_size, width))
            nn.init.xavier_uniform_(self.residual_w)

    @checked()
    def forward(self, g: vgraph.Graph, x: Tensor, ntype: Tensor, etype: Tensor, *, presorted: bool = False) -> Tensor:
        """New rows of the vertices.

        Args:
            g: a graph with one type of edges, or a block.
            x: (vertices, in_size); a block's receivers are its first senders.
            ntype: (vertices,) from 0 to num_ntypes - 1.
            etype: (edges,) from 0 to num_etypes - 1.
            presorted: rows and edges lie type by type.

        Returns:
            (vertices, num_heads * head_size).

        Raises:
            FunctionError: it is called without a graph.
            ShapeError: rows are of another width than the layer's.
        """
        check_graph(self, g)
        check_width(self, x, self.in_size)
        own, own_type = receivers_of(g, x), receivers_of(g, ntype)
        k, v = (self._by_head(name, x, ntype, presorted) for name in ("k", "v"))
        q = self._by_head("q", own, own_type, presorted)
        rows = self._attend(g, k, q, v, etype, presorted).flatten(1)
        rows = self.drop(self.linear_a(rows, own_type, presorted))
        share = torch.sigmoid(self.skip[own_type.long()]).unsqueeze(-1)
        own = own if own.shape == rows.shape else own @ self.residual_w
        rows = rows * share + own * (1 - share)
        return self.norm(rows) if self.use_norm else rows

    def _by_head(self, name: str, rows: Tensor, types: Tensor, presorted: bool) -> Tensor:
        return getattr(self, f"linear_{name}")(rows, types, presorted).unflatten(1, (self.num_heads, -1))

    def _attend(self, g: vgraph.Graph, k: Tensor, q: Tensor, v: Tensor, etype: Tensor, presorted: bool) -> Tensor:
        """Keys and messages are mapped by relation, head by head; the rest is one message and one reduce."""
        src, heads = g.topology.src, range(self.num_heads)
        k, v = of_all_sources(g, k, v)
        keys = [self.relation_att[i](k[:, i].index_select(0, src), etype, presorted) for i in heads]
        sent = [self.relation_msg[i](v[:, i].index_select(0, src), etype, presorted) for i in heads]
        prior = torch.stack([pri[etype.long()] for pri in self.relation_pri], 1).unsqueeze(-1) * self.head_size**-0.5
        g = g.local_var()  # which other threads do not see
        g.dstdata["q"] = q
        g.edata["k"], g.edata["v"] = torch.stack(keys, 1) * prior, torch.stack(sent, 1)
        return propagate(
            g,
            lambda edges: {"m": edges.data["v"], "s": (edges.data["k"] * edges.dst["q"]).sum(-1, keepdim=True)},
            lambda nodes: {"out": (torch.softmax(nodes.mailbox["s"], 1) * nodes.mailbox["m"]).sum(1)},
            v,
        )
