"""SetTransformerEncoder and SetTransformerDecoder: attention among the vertices of each graph, with DGL's names.

Takes: a batch of graphs and one row a vertex. Gives: one row a vertex, or a graph. Runs at every call.
Source: Lee, Lee, Kim, Kosiorek, Choi and Teh 2019, section 3.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

import vgraph
from vgraph.arguments import COUNT, PART, POSITIVE, checked
from vgraph.errors import FunctionError
from vgraph.nn.inputs import check_graph, check_name, check_width


class MultiHeadAttention(nn.Module):
    """What rows make of other rows of the same graph, and a network behind it."""

    def __init__(
        self, d_model: int, num_heads: int, d_head: int, d_ff: int, dropouth: float = 0.0, dropouta: float = 0.0
    ) -> None:
        super().__init__()
        self.num_heads, self.d_head, width = num_heads, d_head, num_heads * d_head
        self.proj_q, self.proj_k, self.proj_v = (nn.Linear(d_model, width, bias=False) for _ in range(3))
        self.proj_o = nn.Linear(width, d_model, bias=False)
        self.ffn, self.dropa = network(d_model, d_ff, dropouth), nn.Dropout(dropouta)
        self.norm_in, self.norm_inter = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)

    def forward(self, x: Tensor, mem: Tensor, lengths_x: Tensor, lengths_mem: Tensor) -> Tensor:
        """Rows ``x`` see rows ``mem``; both lie graph by graph, so many of each as lengths say."""
        filled, is_there = _is_row(lengths_x), _is_row(lengths_mem)
        q = _padded(self.proj_q(x), filled).unflatten(2, (self.num_heads, -1))
        k, v = (_padded(proj(mem), is_there).unflatten(2, (self.num_heads, -1)) for proj in (self.proj_k, self.proj_v))
        scores = torch.einsum("bxhd,byhd->bhxy", q, k) / math.sqrt(self.d_head)
        # the least number, not -inf: a graph without vertices would have no softmax
        scores = scores.masked_fill(~is_there[:, None, None, :], torch.finfo(scores.dtype).min)
        found = torch.einsum("bhxy,byhd->bxhd", self.dropa(torch.softmax(scores, -1)), v)
        x = self.norm_in(x + self.proj_o(found.flatten(2)[filled]))
        return self.norm_inter(x + self.ffn(x))


def network(d_model: int, d_ff: int, dropout: float) -> nn.Sequential:
    """Two linear maps with a relu between."""
    return nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Dropout(dropout), nn.Linear(d_ff, d_model))


def _is_row(lengths: Tensor) -> Tensor:
    """Where a graph that is filled up to the largest size has rows, (graphs, size)."""
    return torch.arange(int(lengths.max()), device=lengths.device) < lengths.unsqueeze(1)


def _padded(rows: Tensor, where: Tensor) -> Tensor:
    """Rows of all graphs as (graphs, size, width), filled up with zeros."""
    return rows.new_zeros(*where.shape, rows.shape[1]).index_put((where,), rows)


class SetAttentionBlock(nn.Module):
    """Every vertex sees every vertex of its graph."""

    def __init__(
        self, d_model: int, num_heads: int, d_head: int, d_ff: int, dropouth: float = 0.0, dropouta: float = 0.0
    ) -> None:
        super().__init__()
        self.mha = MultiHeadAttention(d_model, num_heads, d_head, d_ff, dropouth, dropouta)

    def forward(self, feat: Tensor, lengths: Tensor) -> Tensor:
        return self.mha(feat, feat, lengths, lengths)


class InducedSetAttentionBlock(nn.Module):
    """A few learned rows see every vertex, and every vertex sees what they made."""

    def __init__(
        self, m: int, d_model: int, num_heads: int, d_head: int, d_ff: int, dropouth: float = 0.0, dropouta: float = 0.0
    ) -> None:
        super().__init__()
        self.m, self.inducing_points = m, nn.Parameter(torch.empty(m, d_model))
        sizes = d_model, num_heads, d_head, d_ff
        self.mha = nn.ModuleList(MultiHeadAttention(*sizes, dropouth, dropouta) for _ in range(2))
        nn.init.xavier_uniform_(self.inducing_points)

    def forward(self, feat: Tensor, lengths: Tensor) -> Tensor:
        points, counts = self.inducing_points.repeat(len(lengths), 1), torch.full_like(lengths, self.m)
        return self.mha[1](feat, self.mha[0](points, feat, counts, lengths), lengths, counts)


class PMALayer(nn.Module):
    """A few learned rows a graph see all its vertices."""

    def __init__(
        self, k: int, d_model: int, num_heads: int, d_head: int, d_ff: int, dropouth: float = 0.0, dropouta: float = 0.0
    ) -> None:
        super().__init__()
        self.k, self.seed_vectors = k, nn.Parameter(torch.empty(k, d_model))
        self.mha = MultiHeadAttention(d_model, num_heads, d_head, d_ff, dropouth, dropouta)
        self.ffn = network(d_model, d_ff, dropouth)
        nn.init.xavier_uniform_(self.seed_vectors)

    def forward(self, feat: Tensor, lengths: Tensor) -> Tensor:
        seeds = self.seed_vectors.repeat(len(lengths), 1)
        return self.mha(seeds, self.ffn(feat), torch.full_like(lengths, self.k), lengths)


class SetTransformerEncoder(nn.Module):
    """Layers of attention among the vertices of each graph.

    Args:
        d_model: the width of a row.
        n_heads: how many heads.
        d_head: the width of a head.
        d_ff: the width within the networks.
        n_layers: how many layers.
        block_type: "sab": every vertex sees every one; "isab": through ``m`` learned rows.
        m: how many learned rows; None for "sab".
        dropouth: the part within the networks that is dropped in training.
        dropouta: the part of the attention that is dropped in training.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        NameLookupError: an unknown ``block_type``.
        FunctionError: "isab" without ``m``.

    Source: Lee et al. 2019, equations 7 to 10.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import SetTransformerEncoder
        >>> g = vgraph.batch([vgraph.graph(([0], [1])), vgraph.graph(([0, 1], [1, 2]))])
        >>> SetTransformerEncoder(8, 2, 4, 16)(g, torch.ones(5, 8)).shape
        torch.Size([5, 8])
    """

    @checked(
        d_model=COUNT,
        n_heads=POSITIVE,
        d_head=COUNT,
        d_ff=COUNT,
        n_layers=COUNT,
        m=POSITIVE.or_none(),
        dropouth=PART,
        dropouta=PART,
    )
    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_head: int,
        d_ff: int,
        n_layers: int = 1,
        block_type: str = "sab",
        m: int | None = None,
        dropouth: float = 0.0,
        dropouta: float = 0.0,
    ) -> None:
        super().__init__()
        self.n_layers, self.block_type, self.m = n_layers, check_name(block_type, ("sab", "isab"), "block_type"), m
        self.d_model = d_model
        if block_type == "isab" and m is None:
            raise FunctionError("block_type isab without m", cure="say how many learned rows there are")
        sizes, drops = (d_model, n_heads, d_head, d_ff), (dropouth, dropouta)
        self.layers = nn.ModuleList(
            SetAttentionBlock(*sizes, *drops)
            if block_type == "sab" or m is None
            else InducedSetAttentionBlock(m, *sizes, *drops)
            for _ in range(n_layers)
        )

    def forward(self, graph: vgraph.Graph, feat: Tensor) -> Tensor:
        """New rows of the vertices.

        Args:
            graph: a batch of graphs with one type of nodes.
            feat: (vertices, d_model).

        Returns:
            (vertices, d_model).

        Raises:
            FunctionError: it is called without a graph.
            ShapeError: rows are of another width than the layer's.
        """
        check_graph(self, graph)
        check_width(self, feat, self.d_model)
        for layer in self.layers:
            feat = layer(feat, graph.batch_num_nodes())
        return feat


class SetTransformerDecoder(nn.Module):
    """A few learned rows a graph that see all its vertices, and layers of attention among them.

    Args:
        d_model: the width of a row.
        num_heads: how many heads.
        d_head: the width of a head.
        d_ff: the width within the networks.
        n_layers: how many layers.
        k: how many learned rows.
        dropouth: the part within the networks that is dropped in training.
        dropouta: the part of the attention that is dropped in training.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.

    Source: Lee et al. 2019, equations 11 to 14.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import SetTransformerDecoder
        >>> g = vgraph.batch([vgraph.graph(([0], [1])), vgraph.graph(([0, 1], [1, 2]))])
        >>> SetTransformerDecoder(8, 2, 4, 16, n_layers=1, k=3)(g, torch.ones(5, 8)).shape
        torch.Size([2, 24])
    """

    @checked(
        d_model=COUNT,
        num_heads=POSITIVE,
        d_head=COUNT,
        d_ff=COUNT,
        n_layers=COUNT,
        k=POSITIVE,
        dropouth=PART,
        dropouta=PART,
    )
    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_head: int,
        d_ff: int,
        n_layers: int,
        k: int,
        dropouth: float = 0.0,
        dropouta: float = 0.0,
    ) -> None:
        super().__init__()
        self.n_layers, self.k, self.d_model = n_layers, k, d_model
        sizes = d_model, num_heads, d_head, d_ff
        self.pma = PMALayer(k, *sizes, dropouth, dropouta)
        self.layers = nn.ModuleList(SetAttentionBlock(*sizes, dropouth, dropouta) for _ in range(n_layers))

    def forward(self, graph: vgraph.Graph, feat: Tensor) -> Tensor:
        """One row a graph.

        Args:
            graph: a batch of graphs with one type of nodes.
            feat: (vertices, d_model).

        Returns:
            (graphs, k * d_model).

        Raises:
            FunctionError: it is called without a graph.
            ShapeError: rows are of another width than the layer's.
        """
        check_graph(self, graph)
        check_width(self, feat, self.d_model)
        counts = graph.batch_num_nodes()
        rows = self.pma(feat, counts)
        for layer in self.layers:
            rows = layer(rows, torch.full_like(counts, self.k))
        return rows.view(graph.batch_size, self.k * self.d_model)
