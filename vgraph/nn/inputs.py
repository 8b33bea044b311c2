"""What layers are called with: rows for both ends, weights for edges, in-edges for all.

Takes: a graph, features, weights. Gives: the same, checked and brought into one form. Runs at every call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar, cast

import torch
from torch import Tensor, nn

import vgraph
from vgraph.arguments import checked
from vgraph.errors import FeatureError, FunctionError, GraphError, NameLookupError, ShapeError

Size = TypeVar("Size")


def check_graph(layer: nn.Module, graph: object) -> None:
    """FunctionError: a layer is called on no graph, on tensors alone, as PyG's layers are, or by an exporter."""
    if torch.compiler.is_dynamo_compiling():
        return
    if torch.compiler.is_exporting() or torch.jit.is_tracing():
        exporter = "torch.jit.trace" if torch.jit.is_tracing() else "torch.export"
        fact = f"{exporter} does not reach into {type(layer).__name__}, a layer on graphs"
        raise FunctionError(
            fact, cure="torch.compile(model, fullgraph=True) does; or export what comes before and after"
        )
    if isinstance(graph, Tensor):
        name = type(layer).__name__
        raise FunctionError(
            f"{name} is called on a tensor of shape {tuple(graph.shape)}, not on a graph",
            cure=f"of an edge_index make g = vgraph.graph((edge_index[0], edge_index[1]), num_nodes=len(x)), and call "
            f"{name} with g, then the features; vgraph.accelerate runs layers of PyG as they are",
        )
    if not isinstance(graph, vgraph.Graph):
        fact = f"{type(layer).__name__} is called on a {type(graph).__name__}, not on a graph"
        raise FunctionError(fact, cure="pass a vgraph.Graph first, then the features")


def check_width(layer: nn.Module, rows: Tensor, width: int, what: str = "rows") -> None:
    """ShapeError: rows have another width than the layer was made for; ``what`` they are."""
    if rows.shape[-1] != width:
        raise ShapeError(
            f"{type(layer).__name__} was made for {what} of {width} numbers and is given {tuple(rows.shape)}",
            cure="give features of that width, or make the layer for theirs",
        )


def check_feat(graph: vgraph.Graph, feat: object, ntype: str | None = None) -> None:
    """FeatureError: it has not one row for every node of a type."""
    count = graph.num_nodes(ntype)
    if not isinstance(feat, Tensor) or feat.dim() < 2 or feat.shape[0] != count:
        given = f"has shape {tuple(feat.shape)}" if isinstance(feat, Tensor) else f"is a {type(feat).__name__}"
        of_type = "" if ntype is None else f" of type {ntype!r}"
        raise FeatureError(f"feat {given} for {count} nodes{of_type}", cure="give a tensor (nodes, width)")


def check_feats(graph: vgraph.Graph, feat: object) -> None:
    """FeatureError: it is no dict of tensors with one row for every node, by type; NameLookupError: of other types."""
    if not isinstance(feat, Mapping):
        fact = f"feat is a {type(feat).__name__} for a graph of several types"
        raise FeatureError(fact, cure="give a dict of tensors (nodes, width) by type of node")
    for name, rows in cast("Mapping[str, object]", feat).items():
        check_feat(graph, rows, check_name(name, graph.ntypes, "node type"))


def pair(size: Size | tuple[Size, Size]) -> tuple[Size, Size]:
    """What is given for both ends, or once for each: (senders, receivers)."""
    return size if isinstance(size, tuple) else (size, size)


def both_ends(graph: vgraph.Graph, feat: Tensor | tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Rows of the senders and of the receivers; a block's receivers are its first senders."""
    if isinstance(feat, tuple):
        return feat
    return feat, receivers_of(graph, feat)


def receivers_of(graph: vgraph.Graph, rows: Tensor) -> Tensor:
    """The receivers' part of the senders' rows: all of them, or the first in a block."""
    ends = graph.topology
    return rows if ends.num_src == ends.num_dst else rows[: ends.num_dst]


def is_without_edges(graph: vgraph.Graph) -> bool:
    """Whether there is no edge, nor one that another rank has where this one has none."""
    halo = graph.topology.halo
    return not (graph.num_edges() if halo is None else halo.num_edges)


def without_arrivals(graph: vgraph.Graph, rows: Tensor) -> Tensor:
    """Zeros for all receivers, as wide as the rows, whose gradient is zeros: a loss of these alone has one."""
    nowhere = torch.empty(0, dtype=torch.int64, device=rows.device)
    return rows.new_zeros(graph.topology.num_dst, *rows.shape[1:]).index_add(0, nowhere, rows[:0])


def of_all_sources(graph: vgraph.Graph, *columns: Tensor) -> tuple[Tensor, ...]:
    """Rows of all that edges begin at: where ranks have parts of a graph, those of other ranks come after own ones."""
    halo = graph.topology.halo
    return columns if halo is None else tuple(halo.rows({str(i): rows for i, rows in enumerate(columns)}).values())


def sharing_sources(graph: vgraph.Graph, etypes: Sequence[tuple[str, str, str]]) -> AbstractContextManager[None]:
    """Meanwhile rows that edges of several types read come from other ranks once."""
    halo = graph[etypes[0]].topology.halo if etypes else None
    return nullcontext() if halo is None else halo.shared(Counter(key[0] for key in etypes))


class NeedsInEdges(nn.Module):
    """A layer that gives a vertex what its in-edges bring: one without any is refused, unless that is allowed."""

    _allow_zero_in_degree: bool

    @checked()
    def set_allow_zero_in_degree(self, set_value: bool) -> None:
        """Accepts vertices without in-edges from now on, or refuses them.

        Args:
            set_value: True to accept them.
        """
        self._allow_zero_in_degree = set_value

    def _check_in_degrees(self, graph: vgraph.Graph) -> None:
        if not self._allow_zero_in_degree:
            check_in_degrees(graph)


def check_in_degrees(graph: vgraph.Graph, *, may_be_allowed: bool = True) -> None:
    """GraphError: a vertex has no in-edge; RuntimeError where the layer is compiled.

    ``may_be_allowed``: the layer has an option to accept such vertices.
    """
    if torch.compiler.is_compiling():
        has_all = (graph.in_degrees() > 0).all()
        cure = "a node has no in-edge: add self-loops" + (", or pass allow_zero_in_degree=True" * may_be_allowed)
        torch._assert_async(has_all, cure)  # pyright: ignore[reportPrivateUsage]
        return
    lonely, halo = (graph.in_degrees() == 0).nonzero(), graph.topology.halo
    if len(lonely) if halo is None else halo.has_lonely:  # where ranks have parts of a graph all raise, or none
        told = f"{len(lonely)} nodes have no in-edge" + (f", node {int(lonely[0])} is the first" if len(lonely) else "")
        raise GraphError(
            f"{told}{'' if halo is None else ' on this rank'}: their output would not depend on their features",
            cure="g = vgraph.add_self_loop(g)" + (", or allow_zero_in_degree=True" * may_be_allowed),
        )


def check_edge_weight(graph: vgraph.Graph, edge_weight: Tensor) -> Tensor:
    """The weights, one number an edge; FeatureError: they are not."""
    count = graph.topology.num_edges
    if edge_weight.shape[:1] != (count,) or edge_weight[:1].numel() > 1:
        fact = f"edge_weight has shape {tuple(edge_weight.shape)} for {count} edges"
        raise FeatureError(fact, cure="give one number for every edge")
    return edge_weight


def check_edge_feat(layer: nn.Module, edge_feat: Tensor | None, size: int) -> Tensor | None:
    """The edges' feature; one without columns is none.

    FeatureError: the layer was made with one and there is none, or the other way; ShapeError: for another width.
    """
    if edge_feat is not None and edge_feat.dim() > 1 and edge_feat.shape[-1] == 0:
        edge_feat = None
    if (edge_feat is None) != (size == 0):
        fact = f"the layer was made for edges of {size} features"
        given = "none is given" if edge_feat is None else f"{tuple(edge_feat.shape)} is given"
        raise FeatureError(f"{fact}, {given}", cure="pass edge_feat where edge_feat_size is not 0, else not")
    if edge_feat is not None:
        check_width(layer, edge_feat, size, "edges' rows")
    return edge_feat


def check_name(name: str, known: Iterable[str], what: str) -> str:
    """The name, where it is one of those known; NameLookupError: it is not."""
    known = tuple(known)
    if name not in known:
        raise NameLookupError(f"there is no {what} {name!r}", cure=f"one of {', '.join(known)}")
    return name
