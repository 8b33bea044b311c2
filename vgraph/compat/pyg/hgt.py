"""Nodes by budget: so many of each type a hop, as HGT samples them.

Takes: the arguments of ``torch.ops.torch_sparse.hgt_sample``. Gives: what it gives. Runs at every step.
Source: Hu et al. 2020 (HGT), algorithms 1 and 2; PyG, ``torch_geometric.sampler.HGTSampler``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from vgraph.compat.pyg.neighbors import Nodes, Relation, induced, own_keys
from vgraph.errors import NameLookupError
from vgraph.graphs.draw.lists import Spans
from vgraph.graphs.draw.pick import pick_uniform, pick_weighted
from vgraph.graphs.draw.random_numbers import Array, Keys

_MOST_OF_ONE = 50  # of a node's list of one relation: more would have little weight each


@dataclass
class _Budget:
    """Ids that neighbors point at, ascending, and the sums of what each neighbor's edges weigh."""

    ids: Array = field(default_factory=lambda: np.empty(0, np.int64))
    sums: Array = field(default_factory=lambda: np.empty(0))

    def add(self, ids: Array, weights: Array) -> None:
        """More edges lead to them."""
        all_ids, all_sums = np.concatenate([self.ids, ids]), np.concatenate([self.sums, weights])
        self.ids, inverse = np.unique(all_ids, return_inverse=True)
        self.sums = np.bincount(inverse.reshape(-1), all_sums, len(self.ids))

    def draw(self, count: int, key: int) -> Array:
        """Up to so many ids, different ones, by the squares of their sums; they are taken out."""
        whole = Spans(np.zeros(1, np.int64), np.array([len(self.ids)]), np.zeros(1, np.int64))
        places, _ = pick_weighted(whole, self.sums**2, count, key, replace=False)
        stays = np.ones(len(self.ids), np.bool_)
        stays[places] = False
        drawn = self.ids[places]
        self.ids, self.sums = self.ids[stays], self.sums[stays]
        return drawn


def hgt_sample(
    colptrs: Mapping[str, Tensor],
    rows: Mapping[str, Tensor],
    seeds: Mapping[str, Tensor],
    counts: Mapping[str, Sequence[int]],
    num_hops: int,
) -> tuple[dict[str, Tensor], ...]:
    """(nodes, row, col, edges) by type and by relation: all edges among the nodes that were drawn.

    Args:
        colptrs: where lists of in-edges begin, by relation (``"source__name__destination"``).
        rows: what stands in them.
        seeds: ids by type.
        counts: how many nodes a hop, by type; all types.
        num_hops: how many hops.

    Raises:
        GraphError: a seed is out of range.
        NameLookupError: ``counts`` lacks a type.
    """
    relations = {
        name: Relation.of(_ends(name, list(counts)), colptr, rows[name], ()) for name, colptr in colptrs.items()
    }
    sizes = {one.near: one.num_near for one in relations.values()}
    none = torch.empty(0, dtype=torch.int64)
    nodes = {kind: Nodes(seeds.get(kind, none).long().numpy(), None, sizes.get(kind)) for kind in counts}
    _draw_nodes(relations, nodes, counts, num_hops)
    ends = {
        name: induced(one, nodes[one.near], nodes[one.far]).tensors(rows[name].dtype) for name, one in relations.items()
    }
    row, column, edges = ({name: one[i] for name, one in ends.items()} for i in range(3))
    return {kind: torch.from_numpy(one.ids) for kind, one in nodes.items() if len(one.ids)}, row, column, edges


def _ends(name: str, types: Sequence[str]) -> tuple[str, str]:
    """Source and destination in the name of a relation; of types that begin or end alike the longest."""
    by_length = sorted(types, key=len, reverse=True)
    far = next((kind for kind in by_length if name.startswith(kind + "__")), None)
    near = next((kind for kind in by_length if name.endswith("__" + kind)), None)
    if far is None or near is None:
        raise NameLookupError(f"num_samples lacks a type of {name!r}", cure="say how many nodes of every type")
    return far, near


def _draw_nodes(
    relations: Mapping[str, Relation], nodes: Mapping[str, Nodes], counts: Mapping[str, Sequence[int]], num_hops: int
) -> None:
    budgets, keys = {kind: _Budget() for kind in nodes}, own_keys()
    for hop in range(num_hops):
        for one in relations.values():
            _raise_budget(one, nodes, budgets[one.far], keys)
        for kind, its_nodes in nodes.items():
            its_nodes.place(budgets[kind].draw(int(counts[kind][hop]), keys.next()), None)
            its_nodes.end_hop()


def _raise_budget(relation: Relation, nodes: Mapping[str, Nodes], budget: _Budget, keys: Keys) -> None:
    """By the edges that end in the nodes of the last hop, each by its share of those of its node."""
    near, far = nodes[relation.near], nodes[relation.far]
    spans = relation.spans(near.ids[near.begin :])
    places, owners = pick_uniform(spans, _MOST_OF_ONE, keys.next(), replace=False)
    ids, _ = relation.lists.fetch(places)
    is_new = far.find(ids) < 0
    shares = 1.0 / np.minimum(spans.lengths[owners], _MOST_OF_ONE)
    budget.add(ids[is_new], shares[is_new])
