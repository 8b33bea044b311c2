"""TWIRLSConv: steps of descent on an energy of the graph, between two networks, with DGL's names.

Takes: a graph and one row a vertex. Gives: one row a vertex. Runs at every call.
Source: Yang et al. 2021, sections 3 and 4.
"""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vgraph
import vgraph.function as fn
from vgraph.arguments import COUNT, FROM_ZERO, NUMBER, PART, WHOLE, checked
from vgraph.nn.inputs import check_graph, check_name, check_width
from vgraph.nn.propagate import send_rows


class _Network(nn.Module):
    """Linear maps with a normalisation, a relu and a dropout between, and before them where ``init_activate``."""

    @checked()
    def __init__(self, widths: list[int], dropout: float, norm: str, init_activate: bool) -> None:
        super().__init__()
        self.init_activate, self.dropout = init_activate, dropout
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(widths))
        if norm != "none":
            inner = widths[:-1] if init_activate else widths[1:-1]
            kind = nn.BatchNorm1d if norm == "batch" else nn.LayerNorm
            self.norms = nn.ModuleList(kind(width) for width in inner)
        for layer in self.layers:
            assert isinstance(layer, nn.Linear)
            nn.init.xavier_normal_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        norms = iter(self.norms) if hasattr(self, "norms") else None
        for i, layer in enumerate(self.layers):
            if i or self.init_activate:
                x = x if norms is None else next(norms)(x)
                x = F.dropout(F.relu(x), self.dropout, training=self.training)
            x = layer(x)
        return x


class _Reweighting(nn.Module):
    """Weights of edges by how near the rows of their ends are."""

    def __init__(self, tau: float, T: float, p: float, attn_dropout: float) -> None:
        super().__init__()
        self.tau, self.T, self.p, self.attn_dropout = tau, T, p, attn_dropout

    def forward(self, graph: vgraph.Graph, rows: Tensor, etas: Tensor | None) -> tuple[Tensor, Tensor]:
        """Weights (edges, 1), and their sums over in-edges (vertices, 1)."""
        graph.ndata["h"] = rows if etas is None else rows * etas
        graph.apply_edges(lambda edges: {"w": (edges.src["h"] - edges.dst["h"]).square().sum(-1, keepdim=True)})
        apart = (graph.edata["w"] + 1e-7).pow(1 - 0.5 * self.p).clamp(min=self.tau)
        weight = apart.reciprocal()
        if self.T > 0:
            weight = weight.masked_fill(apart > self.T, 0)
        graph.edata["w"] = weight = weight + 1e-9
        graph.update_all(fn.copy_e("w", "m"), fn.sum("m", "deg"))
        return F.dropout(weight, self.attn_dropout, training=self.training), graph.ndata["deg"]


class TWIRLSUnfoldingAndAttention(nn.Module):
    """Steps of descent on an energy: rows near the given ones, and near those of neighbours.

    Args:
        d: the width of a row.
        alp: the size of a step; 0: ``1 / (lam + 1)``.
        lam: how much neighbours count.
        prop_step: how many steps.
        attn_aft: after which step, from 1 up, edges are weighed anew by their ends' rows; -1: after none.
        tau: the least distance of two rows.
        T: the distance beyond which an edge counts for nothing; -1: there is none.
        p: distances are taken to the power of ``2 - p``.
        use_eta: weigh columns by what is learned where edges are weighed.
        init_att: weigh edges before the first step, too.
        attn_dropout: the part of the edges' weights that is dropped in training.
        precond: divide steps by degrees.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.

    Source: Yang et al. 2021, equations 6 to 14.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import TWIRLSUnfoldingAndAttention
        >>> g = vgraph.add_self_loop(vgraph.graph(([0, 1], [1, 2])))
        >>> TWIRLSUnfoldingAndAttention(5, 1, 1, prop_step=2)(g, torch.ones(3, 5)).shape
        torch.Size([3, 5])
    """

    @checked(
        d=COUNT,
        alp=NUMBER,
        lam=FROM_ZERO,
        prop_step=COUNT,
        attn_aft=WHOLE,
        tau=NUMBER,
        T=NUMBER,
        p=NUMBER,
        attn_dropout=PART,
    )
    def __init__(
        self,
        d: int,
        alp: float,
        lam: float,
        prop_step: int,
        attn_aft: int = -1,
        tau: float = 0.2,
        T: float = -1,
        p: float = 1,
        use_eta: bool = False,
        init_att: bool = False,
        attn_dropout: float = 0,
        precond: bool = True,
    ) -> None:
        super().__init__()
        self.alp, self.lam, self.prop_step, self.precond = alp if alp > 0 else 1 / (lam + 1), lam, prop_step, precond
        self.attn_aft = attn_aft
        self.init_attn = _Reweighting(tau, T, p, attn_dropout) if init_att else None
        self.attn_layer = _Reweighting(tau, T, p, attn_dropout) if attn_aft >= 0 else None
        self.register_parameter("etas", nn.Parameter(torch.ones(d)) if use_eta else None)

    etas: nn.Parameter | None

    def forward(self, g: vgraph.Graph, X: Tensor) -> Tensor:
        """The rows after the steps.

        Args:
            g: a graph with one type of nodes and edges.
            X: (vertices, d).

        Returns:
            (vertices, d).

        Raises:
            FunctionError: it is called without a graph.
        """
        check_graph(self, g)
        g = g.local_var()  # which other threads do not see
        rows, weight, degrees = X, None, g.in_degrees().to(X.dtype).unsqueeze(1)
        if self.init_attn is not None:
            weight, degrees = self.init_attn(g, rows, self.etas)
        for k in range(self.prop_step):
            rows = self._step(g, rows, X, weight, degrees)
            if self.attn_layer is not None and k == self.attn_aft - 1:
                weight, degrees = self.attn_layer(g, rows, self.etas)
        return rows

    def _step(self, g: vgraph.Graph, rows: Tensor, given: Tensor, weight: Tensor | None, degrees: Tensor) -> Tensor:
        alp, lam = self.alp, self.lam
        if self.precond:
            degrees = lam * degrees + (1 - lam)
        root = degrees.rsqrt()
        sent = alp * lam * send_rows(g, rows, weight, ahead=root, behind=root)
        if self.precond:
            return (1 - alp) * rows + sent + alp * given / degrees
        return (1 - alp * lam - alp) * rows + sent + alp * given


class TWIRLSConv(nn.Module):
    """A network, steps of descent on an energy of the graph, and another network.

    Args:
        input_d: the width of a row.
        output_d: the width of a result's row.
        hidden_d: the width in between.
        prop_step: how many steps.
        num_mlp_before: how many layers the first network has.
        num_mlp_after: how many layers the second network has.
        norm: "batch", "layer" or "none", between layers of the networks.
        precond: divide steps by degrees.
        alp: the size of a step; 0: ``1 / (lam + 1)``.
        lam: how much neighbours count.
        attention: weigh edges anew by their ends' rows after half of the steps.
        tau: the least distance of two rows.
        T: the distance beyond which an edge counts for nothing; -1: there is none.
        p: distances are taken to the power of ``2 - p``.
        use_eta: weigh columns by what is learned where edges are weighed.
        attn_bef: weigh edges before the first step, too.
        dropout: the part between layers of the networks that is dropped in training.
        attn_dropout: the part of the edges' weights that is dropped in training.
        inp_dropout: the part of the features that is dropped in training.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        NameLookupError: an unknown ``norm``.

    Source: Yang et al. 2021, section 4; DGL 1.1, ``dgl.nn.TWIRLSConv``.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import TWIRLSConv
        >>> TWIRLSConv(5, 2, 8, prop_step=2)(vgraph.graph(([0, 1], [1, 2])), torch.ones(3, 5)).shape
        torch.Size([3, 2])
    """

    @checked(
        input_d=COUNT,
        output_d=COUNT,
        hidden_d=COUNT,
        prop_step=COUNT,
        num_mlp_before=COUNT,
        num_mlp_after=COUNT,
        alp=NUMBER,
        lam=FROM_ZERO,
        tau=NUMBER,
        T=NUMBER,
        p=NUMBER,
        dropout=PART,
        attn_dropout=PART,
        inp_dropout=PART,
    )
    def __init__(
        self,
        input_d: int,
        output_d: int,
        hidden_d: int,
        prop_step: int,
        num_mlp_before: int = 1,
        num_mlp_after: int = 1,
        norm: str = "none",
        precond: bool = True,
        alp: float = 0,
        lam: float = 1,
        attention: bool = False,
        tau: float = 0.2,
        T: float = -1,
        p: float = 1,
        use_eta: bool = False,
        attn_bef: bool = False,
        dropout: float = 0.0,
        attn_dropout: float = 0.0,
        inp_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        norm, self.inp_dropout = check_name(norm, ("batch", "layer", "none"), "norm"), inp_dropout
        self.cacheable = not attention and num_mlp_before == 0 and inp_dropout <= 0
        self.cached_unfolding: Tensor | None = None
        self._input_d = input_d
        inner = hidden_d if num_mlp_after else output_d
        inner = inner if num_mlp_before else input_d
        before = [input_d, *[hidden_d] * (num_mlp_before - 1), inner] if num_mlp_before else [input_d]
        after = [inner, *[hidden_d] * (num_mlp_after - 1), output_d] if num_mlp_after else [inner]
        self.mlp_bef = _Network(before, dropout, norm, init_activate=False)
        self.unfolding = TWIRLSUnfoldingAndAttention(
            inner, alp, lam, prop_step, prop_step // 2 if attention else -1,
            tau=tau, T=T, p=p, use_eta=use_eta, init_att=attn_bef, attn_dropout=attn_dropout, precond=precond,
        )  # fmt: skip
        self.mlp_aft = _Network(after, dropout, norm, init_activate=bool(num_mlp_before and num_mlp_after))

    def forward(self, graph: vgraph.Graph, feat: Tensor) -> Tensor:
        """New rows of the vertices.

        Args:
            graph: a graph with one type of nodes and edges; every vertex gets one self-loop.
            feat: (vertices, input_d). Without a first network, attention and dropped features, the steps of the first
                call are kept for all others, whatever their graph and feature.

        Returns:
            (vertices, output_d).

        Raises:
            FunctionError: it is called without a graph.
            ShapeError: rows are of another width than the layer's.
        """
        check_graph(self, graph)
        if self.cached_unfolding is not None:
            return self.mlp_aft(self.cached_unfolding)
        check_width(self, feat, self._input_d)
        graph = vgraph.add_self_loop(vgraph.remove_self_loop(graph))
        rows = self.mlp_bef(F.dropout(feat, self.inp_dropout, training=self.training))
        rows = self.unfolding(graph, rows)
        if self.cacheable:
            self.cached_unfolding = rows
        return self.mlp_aft(rows)
