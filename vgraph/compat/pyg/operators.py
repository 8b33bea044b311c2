"""What PyG's samplers call of pyg-lib and torch-sparse, where these are not installed.

Takes: the arguments of ``torch.ops.pyg.neighbor_sample`` and its relatives. Gives: what these give. Runs at every step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import cast

import numpy as np
import torch
from torch import Tensor

from vgraph.compat.pyg.neighbors import Edges, How, Nodes, Relation, check_strategy, induced, sample
from vgraph.errors import FunctionError, NameLookupError
from vgraph.graphs.draw.random_numbers import Array

_ONLY = ""  # the type of nodes, and the relation, of a graph that has no types
_NO_IDS = torch.empty(0, dtype=torch.int64)
EdgeTypes = Sequence[tuple[str, str, str]]
Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class _Typed:
    """Arguments of ``torch.ops.pyg.hetero_neighbor_sample``, in its order.

    What torch-sparse's operators are not given: times, weights, whether lists are of in-edges and subgraphs disjoint.
    """

    node_types: Sequence[str]
    edge_types: EdgeTypes
    colptrs: Tensors
    rows: Tensors
    seeds: Tensors
    counts: Mapping[str, Sequence[int]]
    node_times: Tensors | None = None
    edge_times: Tensors | None = None
    seed_times: Tensors | None = None
    weights: Tensors | None = None
    csc: bool = True
    replace: bool = False
    directed: bool = True
    disjoint: bool = False
    strategy: str = "uniform"
    returns_edge_ids: bool = True

    @property
    def is_timed(self) -> bool:
        return self.node_times is not None or self.edge_times is not None

    def relations(self) -> dict[str, Relation]:
        """By the names that relations have here."""
        found: dict[str, Relation] = {}
        for kind in self.edge_types:
            name = _name(kind)
            times = ((self.node_times or {}).get(kind[0]), (self.edge_times or {}).get(name))
            weights = (self.weights or {}).get(name)
            ends = (kind[0], kind[2])
            lists = (self.colptrs[name], self.rows[name])
            found[name] = Relation.of(ends, *lists, self.counts[name], times, weights)
        return found

    def nodes(self, relations: Mapping[str, Relation]) -> dict[str, Nodes]:
        """By type: seeds, of which each begins a subgraph of its own where they are disjoint.

        Raises:
            GraphError: a seed is out of range.
        """
        sizes = {one.near: one.num_near for one in relations.values()}
        firsts, first = dict[str, int](), 0
        for kind, seeds in self.seeds.items():
            firsts[kind], first = first, first + len(seeds)
        found: dict[str, Nodes] = {}
        for kind in self.node_types:
            seeds = self.seeds.get(kind, _NO_IDS).long().numpy()
            found[kind] = Nodes(seeds, firsts.get(kind, 0) if self.disjoint else None, sizes.get(kind))
        return found

    def times_of_seeds(self) -> Array | None:
        """By the number of the seed; None where no time counts.

        Raises:
            FunctionError: times of edges without those of seeds.
            NameLookupError: seeds of a type that has no times.
        """
        if not self.is_timed:
            return None
        if self.seed_times is None and self.edge_times is not None:
            cure = "pass input_time, or edge_label_time for links"
            raise FunctionError("edges have times, and seeds have none", cure=cure)
        return np.concatenate([self._times_of(kind, seeds) for kind, seeds in self.seeds.items()])

    def _times_of(self, kind: str, seeds: Tensor) -> Array:
        if self.seed_times is not None:
            return self.seed_times[kind].numpy()
        times = (self.node_times or {}).get(kind)
        if times is None:
            raise NameLookupError(f"nodes of type {kind!r} have no time", cure="pass input_time")
        return times[seeds].numpy()

    def how(self) -> How:
        """How edges are drawn.

        Raises:
            FunctionError: something that is not done is asked for.
        """
        if self.is_timed and not self.disjoint:
            raise FunctionError("edges are drawn by time, and subgraphs share nodes", cure="pass disjoint=True")
        takes_last = check_strategy(self.strategy, is_timed=self.is_timed, is_weighted=self.weights is not None)
        return How(self.replace, self.times_of_seeds(), takes_last)


def _name(kind: tuple[str, str, str]) -> str:
    """What PyG calls a relation where it calls pyg-lib."""
    return _ONLY if kind[1] == _ONLY else "__".join(kind)


_NAMES = tuple(one.name for one in fields(_Typed))
_OF_GRAPH = ("node_types", "edge_types")  # which operators of graphs without types are not given
_ONE_TYPE = _NAMES[len(_OF_GRAPH) :]
_BY_TYPE = ("colptrs", "rows", "seeds", "counts", "node_times", "edge_times", "seed_times", "weights")


def _named(names: Sequence[str], arguments: Sequence[object]) -> dict[str, object]:
    """What operators are given by place, by name."""
    return dict(zip(names, arguments, strict=True))


def _typed(**given: object) -> _Typed:
    return cast("Callable[..., _Typed]", _Typed)(**given)


def _of_one_type(**given: object) -> _Typed:
    """The arguments for a graph without types: what stands there by type or relation is of the only one."""
    by_type = {name: {_ONLY: given[name]} for name in _BY_TYPE if given.get(name) is not None}
    return _typed(node_types=[_ONLY], edge_types=[(_ONLY, _ONLY, _ONLY)], **{**given, **by_type})


def _drawn(asked: _Typed) -> tuple[dict[str, Relation], dict[str, Nodes], dict[str, Edges]]:
    relations = asked.relations()
    nodes, how = asked.nodes(relations), asked.how()
    num_hops = max((len(counts) for counts in asked.counts.values()), default=0)
    return relations, nodes, sample(relations, nodes, num_hops, how)


# ---------------------------------------------------------------- pyg-lib's
def neighbor_sample(*arguments: object) -> tuple[object, ...]:
    """(row, col, nodes, edges, nodes a hop, edges a hop), as ``torch.ops.pyg.neighbor_sample`` gives.

    Nodes are rows (number of the seed, id) where subgraphs are disjoint.

    Raises:
        GraphError: an id is out of range, or times are not sorted.
        FeatureError: a weight is below 0, or not finite.
        FunctionError: something that is not done is asked for.
    """
    return tuple(one[_ONLY] for one in _sampled(_of_one_type(**_named(_ONE_TYPE, arguments))))


def hetero_neighbor_sample(*arguments: object) -> tuple[Mapping[str, object], ...]:
    """The same by type and by relation, as ``torch.ops.pyg.hetero_neighbor_sample`` gives.

    Raises:
        GraphError: an id is out of range, or times are not sorted.
        FeatureError: a weight is below 0, or not finite.
        FunctionError: something that is not done is asked for.
        NameLookupError: seeds of a type that has no times.
    """
    return _sampled(_typed(**_named(_NAMES, arguments)))


def _sampled(asked: _Typed) -> tuple[Mapping[str, object], ...]:
    _, nodes, edges = _drawn(asked)
    ends = {name: one.tensors(asked.rows[name].dtype) for name, one in edges.items()}
    rows, columns, places = ({name: one[i] for name, one in ends.items()} for i in range(3))
    ids = {kind: _with_batch(one) for kind, one in nodes.items()}
    counts = {kind: one.counts for kind, one in nodes.items()}
    return rows, columns, ids, places, counts, {name: one.counts for name, one in edges.items()}


def _with_batch(nodes: Nodes) -> Tensor:
    return torch.from_numpy(nodes.ids if nodes.batch is None else np.stack([nodes.batch, nodes.ids], 1))


# ---------------------------------------------------------------- torch-sparse's
def induced_neighbor_sample(
    colptr: Tensor, row: Tensor, seed: Tensor, counts: Sequence[int], replace: bool, directed: bool
) -> tuple[Tensor, ...]:
    """(nodes, row, col, edges), as ``torch.ops.torch_sparse.neighbor_sample`` gives of all edges among what it drew."""
    asked = _of_one_type(colptrs=colptr, rows=row, seeds=seed, counts=counts, replace=replace, directed=directed)
    nodes, rows, columns, edges = _induced(asked)
    return nodes[_ONLY], rows[_ONLY], columns[_ONLY], edges[_ONLY]


def induced_hetero_neighbor_sample(*arguments: object) -> tuple[dict[str, Tensor], ...]:
    """The same by type and by relation, as ``torch.ops.torch_sparse.hetero_neighbor_sample`` gives."""
    given = _named((*_OF_GRAPH, *_BY_TYPE[:4], "num_hops", "replace", "directed"), arguments)
    del given["num_hops"]  # as many as there are counts
    return _induced(_typed(**given))


def _induced(asked: _Typed) -> tuple[dict[str, Tensor], ...]:
    assert not asked.directed, "PyG draws without induced edges by pyg-lib"
    relations, nodes, _ = _drawn(asked)
    found = {name: induced(one, nodes[one.near], nodes[one.far]) for name, one in relations.items()}
    ends = {name: one.tensors(asked.rows[name].dtype) for name, one in found.items()}
    rows, columns, places = ({name: one[i] for name, one in ends.items()} for i in range(3))
    return {kind: _with_batch(one) for kind, one in nodes.items()}, rows, columns, places
