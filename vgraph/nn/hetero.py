"""Layers on graphs of several types: a layer for every type of edge or of vertex, with DGL's names.

Takes: a graph, features by type. Gives: features by type. Runs at every call.
Source: Wang et al. 2019 (DGL), section 3.4; Schlichtkrull et al. 2018.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

import vgraph
from vgraph.arguments import COUNT, checked
from vgraph.errors import NameLookupError
from vgraph.nn.inputs import check_graph, check_name, check_width, sharing_sources

Aggregate = Callable[[list[Tensor], str], Tensor]
ByType = Mapping[str, Tensor]


def _by_name(layers: Mapping[str, nn.Module]) -> nn.ModuleDict:
    """Layers by name of a type, as torch keeps them; NameLookupError: it keeps none under such a name."""
    made = nn.ModuleDict()
    for name, layer in layers.items():
        if not name or "." in name or hasattr(made, name):
            why = "is empty" if not name else "has a dot" if "." in name else "is that of an attribute"
            raise NameLookupError(
                f"torch's ModuleDict keeps no layer under {name!r}, which {why}",
                cure="give HeteroGraphConv the whole type of edges, (source, name, destination); else rename the type",
            )
        made[name] = layer
    return made


def _sum(rows: list[Tensor], _: str) -> Tensor:
    return torch.stack(rows).sum(0)


def _mean(rows: list[Tensor], _: str) -> Tensor:
    return torch.stack(rows).mean(0)


def _max(rows: list[Tensor], _: str) -> Tensor:
    return torch.stack(rows).max(0).values


def _min(rows: list[Tensor], _: str) -> Tensor:
    return torch.stack(rows).min(0).values


def _stack(rows: list[Tensor], _: str) -> Tensor:
    return torch.stack(rows, 1)


# functions with names, so that layers can be pickled
AGGREGATES: dict[str, Aggregate] = {"sum": _sum, "mean": _mean, "max": _max, "min": _min, "stack": _stack}


class HeteroGraphConv(nn.Module):
    """A layer for every type of edge, and how their results meet where several end at one type of vertex.

    Args:
        mods: layers by edge type, or by (source type, edge type, destination type); vertices without in-edges are
            accepted by all of them.
        aggregate: "sum", "mean", "max", "min", "stack" (a new dim after the vertices), or a function of a list of
            rows and the type.

    Raises:
        NameLookupError: an unknown aggregate; an edge type has no layer.

    Source: DGL 1.1, ``dgl.nn.HeteroGraphConv``; Schlichtkrull et al. 2018, equation 2 (a sum over relations).

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import GraphConv, HeteroGraphConv
        >>> g = vgraph.heterograph({("user", "likes", "film"): ([0, 1], [0, 0])})
        >>> layer = HeteroGraphConv({"likes": GraphConv(5, 2)})
        >>> layer(g, {"user": torch.ones(2, 5), "film": torch.ones(1, 5)})["film"].shape
        torch.Size([1, 2])
    """

    def __init__(self, mods: Mapping[Any, nn.Module], aggregate: str | Aggregate = "sum") -> None:
        super().__init__()
        self.mod_dict: Mapping[Any, nn.Module] = dict(mods)
        self.mods = _by_name({str(key): layer for key, layer in mods.items()})
        for layer in mods.values():
            if callable(allow := getattr(layer, "set_allow_zero_in_degree", None)):
                allow(True)
        if isinstance(aggregate, str):
            aggregate = AGGREGATES[check_name(aggregate, AGGREGATES, "aggregate")]
        self.agg_fn = aggregate

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "mod_dict": list(self.mod_dict)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.mod_dict = {key: self.mods[str(key)] for key in state["mod_dict"]}

    def _layer_of(self, etype: tuple[str, str, str]) -> nn.Module:
        for key in (etype, etype[1]):
            if key in self.mod_dict:
                return self.mods[str(key)]
        known = ", ".join(map(str, self.mod_dict))
        raise NameLookupError(f"no layer for edges of type {etype}", cure=f"there are layers for {known}")

    def forward(
        self,
        g: vgraph.Graph,
        inputs: ByType | tuple[ByType, ByType],
        mod_args: Mapping[str, tuple[object, ...]] | None = None,
        mod_kwargs: Mapping[str, Mapping[str, object]] | None = None,
    ) -> dict[str, Any]:
        """What arrives at every type of vertex.

        Args:
            g: a graph, or a block.
            inputs: rows by type of vertex, (vertices, ...) each, or a pair of such dicts for senders and receivers; a
                block's receivers are its first senders.
            mod_args: further arguments of layers by name of edge type; None: none.
            mod_kwargs: further keyword arguments of layers by name of edge type; None: none.

        Returns:
            Rows by type of vertex, of types that anything was sent to.

        Raises:
            FunctionError: it is called without a graph.
            NameLookupError: an edge type has no layer.
        """
        check_graph(self, g)
        src, dst = inputs if isinstance(inputs, tuple) else (inputs, _receivers(g, inputs))
        args, kwargs = mod_args or {}, mod_kwargs or {}
        found: dict[str, list[Tensor]] = {}
        etypes = [etype for etype in g.canonical_etypes if etype[0] in src and etype[2] in dst]
        with sharing_sources(g, etypes):
            for stype, name, dtype in etypes:
                layer = self._layer_of((stype, name, dtype))
                given = (src[stype], dst[dtype])
                rows = layer(g[stype, name, dtype], given, *args.get(name, ()), **kwargs.get(name, {}))
                found.setdefault(dtype, []).append(rows)
        return {dtype: self.agg_fn(found[dtype], dtype) for dtype in g.dsttypes if dtype in found}


def _receivers(g: vgraph.Graph, inputs: ByType) -> ByType:
    if not g.is_block:
        return inputs
    return {name: rows[: g.num_dst_nodes(name)] for name, rows in inputs.items() if name in g.dsttypes}


class HeteroLinear(nn.Module):
    """A linear map for every type, all to the same width.

    Args:
        in_size: the width of a row by type.
        out_size: the width of a result's row.
        bias: let the maps have biases.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        NameLookupError: torch keeps no layer under the name of a type, such as ``type``.

    Source: DGL 1.1, ``dgl.nn.HeteroLinear``.

    Example:
        >>> import torch
        >>> from vgraph.nn import HeteroLinear
        >>> HeteroLinear({"user": 5, "film": 3}, 2)({"film": torch.ones(4, 3)})["film"].shape
        torch.Size([4, 2])
    """

    @checked(in_size=COUNT.by_name(), out_size=COUNT)
    def __init__(self, in_size: Mapping[str, int], out_size: int, bias: bool = True) -> None:
        super().__init__()
        self.in_size = {str(key): size for key, size in in_size.items()}
        self.linears = _by_name({key: nn.Linear(size, out_size, bias=bias) for key, size in self.in_size.items()})

    def forward(self, feat: ByType) -> dict[str, Tensor]:
        """Every type's rows through its map.

        Args:
            feat: rows by type, (rows, in_size[type]); types may be left out.

        Returns:
            (rows, out_size) by type.

        Raises:
            KeyError: there is no map for a type.
            ShapeError: a type's rows are of another width than its map's.
        """
        for key, rows in feat.items():
            check_width(self, rows, self.in_size[str(key)], f"{str(key)!r} rows")
        return {key: self.linears[str(key)](rows) for key, rows in feat.items()}


class HeteroEmbedding(nn.Module):
    """An embedding for every type, all of one width.

    Args:
        num_embeddings: how many rows by type.
        embedding_dim: the width of a row.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        NameLookupError: torch keeps no layer under the name of a type, such as ``type``.

    Source: DGL 1.1, ``dgl.nn.HeteroEmbedding``.

    Example:
        >>> import torch
        >>> from vgraph.nn import HeteroEmbedding
        >>> HeteroEmbedding({"user": 5, "film": 3}, 2)({"film": torch.tensor([2, 0])})["film"].shape
        torch.Size([2, 2])
    """

    @checked(num_embeddings=COUNT.by_name(), embedding_dim=COUNT)
    def __init__(self, num_embeddings: Mapping[str, int], embedding_dim: int) -> None:
        super().__init__()
        made = {str(key): nn.Embedding(count, embedding_dim) for key, count in num_embeddings.items()}
        self.embeds, self.raw_keys = _by_name(made), {str(key): key for key in num_embeddings}

    @property
    def weight(self) -> dict[str, Any]:
        """The tables by type, parameters (num_embeddings[type], embedding_dim)."""
        return {self.raw_keys[name]: table.weight for name, table in self.embeds.items()}

    def reset_parameters(self) -> None:
        """Draws Glorot's uniform rows."""
        for table in self.weight.values():
            nn.init.xavier_uniform_(table)

    def forward(self, input_ids: ByType) -> dict[str, Tensor]:
        """The rows of some ids of every type.

        Args:
            input_ids: ids by type, (rows,) each; types may be left out.

        Returns:
            (rows, embedding_dim) by type.

        Raises:
            KeyError: there is no table for a type.
        """
        return {key: self.embeds[str(key)](ids) for key, ids in input_ids.items()}
