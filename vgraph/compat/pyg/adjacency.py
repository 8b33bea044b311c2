"""What PyG's older loaders ask of a ``torch_sparse.SparseTensor``, where torch-sparse is not installed.

Takes: edges and their numbers. Gives: neighbors, walks and subgraphs that vgraph's sampler draws. Made once per loader,
drawn from at every step. Source: PyG, ``torch_geometric.loader``; Zeng et al. 2020 (GraphSAINT) and 2021 (ShaDow).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from vgraph.compat.pyg.neighbors import How, Nodes, Relation, induced, own_keys, sample
from vgraph.errors import GraphError
from vgraph.graphs.draw.lists import Spans
from vgraph.graphs.draw.pick import pick_uniform

_ONLY = ""  # the type of nodes, and the relation


class Adjacency:
    """A matrix in compressed rows, columns ascending within each; ``value``: a number an entry, or None.

    Args:
        row: that of each entry, (entries,); or ``rowptr`` in its place.
        col: the column of each entry, (entries,).
        value: what stands there, (entries,).
        sparse_sizes: rows, columns.
        rowptr: where each row begins, (rows + 1,).
        is_sorted: nothing is sorted anew, as ``trust_data`` says, too.
    """

    def __init__(
        self,
        row: Tensor | None = None,
        col: Tensor | None = None,
        value: Tensor | None = None,
        sparse_sizes: tuple[int, int] = (0, 0),
        *,
        rowptr: Tensor | None = None,
        is_sorted: bool = False,
        trust_data: bool = False,
    ) -> None:
        assert col is not None
        del trust_data
        if rowptr is None:
            assert row is not None
            rowptr = _pointers(row, sparse_sizes[0])
            if not is_sorted:
                order = torch.from_numpy(np.lexsort((col.numpy(), row.numpy())))
                col, value = col[order], None if value is None else value[order]
        self._rowptr, self._col, self._value, self._sizes = rowptr, col, value, tuple(sparse_sizes)

    # ------------------------------------------------------------ what it is
    @property
    def storage(self) -> Adjacency:
        """Where PyG asks for its parts."""
        return self

    def rowptr(self) -> Tensor:
        return self._rowptr

    def row(self) -> Tensor:
        """That of each entry."""
        return torch.repeat_interleave(torch.arange(self._sizes[0]), self.rowcount())

    def value(self) -> Tensor | None:
        return self._value

    def rowcount(self) -> Tensor:
        """Entries by row."""
        return self._rowptr.diff()

    def colcount(self) -> Tensor:
        """Entries by column."""
        return torch.bincount(self._col, minlength=self._sizes[1])

    def sparse_sizes(self) -> tuple[int, ...]:
        return self._sizes

    def sparse_size(self, dim: int) -> int:
        return self._sizes[dim]

    def csr(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Pointers, columns, values."""
        return self._rowptr, self._col, self._value

    def coo(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Rows, columns, values."""
        return self.row(), self._col, self._value

    def t(self) -> Adjacency:
        """Columns are rows."""
        row, col, value = self.coo()
        return Adjacency(col, row, value, (self._sizes[1], self._sizes[0]))

    @cached_property
    def _relation(self) -> Relation:
        return Relation.of((_ONLY, _ONLY), self._rowptr, self._col, ())

    # ------------------------------------------------------------ what is drawn
    def sample_adj(self, subset: Tensor, num_neighbors: int, replace: bool = False) -> tuple[Adjacency, Tensor]:
        """Entries drawn of some rows, all if ``num_neighbors`` is -1, and the nodes at both ends, those rows first."""
        drawn = _drawn((self._rowptr, self._col), subset, [num_neighbors], How(replace), is_disjoint=False)
        value = None if self._value is None else self._value[drawn.places]
        sizes = (len(subset), len(drawn.nodes.ids))
        return Adjacency(drawn.near, drawn.far, value, sizes), torch.from_numpy(drawn.nodes.ids)

    def saint_subgraph(self, node_idx: Tensor) -> tuple[Adjacency, Tensor]:
        """All entries among some nodes, which differ, and their places."""
        nodes = Nodes(node_idx.numpy(), None, self._sizes[0])
        far, near, places = induced(self._relation, nodes, nodes).tensors(torch.int64)
        value = None if self._value is None else self._value[places]
        return Adjacency(near, far, value, (len(node_idx), len(node_idx))), places

    def random_walk(self, start: Tensor, walk_length: int) -> Tensor:
        """Nodes of walks from each of ``start``, (walks, walk_length + 1); one that has no neighbor is stayed at."""
        walks, keys = [start.numpy()], own_keys()
        for _ in range(walk_length):
            spans, reached = self._relation.spans(walks[-1]), walks[-1].copy()
            each_its_own = Spans(spans.begins, spans.lengths, np.arange(len(reached)))
            places, owners = pick_uniform(each_its_own, 1, keys.next(), replace=False)
            reached[owners] = self._relation.lists.fetch(places)[0]
            walks.append(reached)
        return torch.from_numpy(np.stack(walks, 1))


@dataclass(frozen=True)
class _Drawn:
    """Nodes; for each edge the place of its far and near end among them and its own in the lists."""

    relation: Relation
    nodes: Nodes
    far: Tensor
    near: Tensor
    places: Tensor


def _drawn(lists: tuple[Tensor, Tensor], seeds: Tensor, counts: list[int], how: How, *, is_disjoint: bool) -> _Drawn:
    relation = Relation.of((_ONLY, _ONLY), *lists, counts)
    nodes = Nodes(seeds.numpy(), 0 if is_disjoint else None, relation.num_near)
    edges = sample({_ONLY: relation}, {_ONLY: nodes}, len(counts), how)[_ONLY]
    return _Drawn(relation, nodes, *edges.tensors(torch.int64))


def _pointers(row: Tensor, num_rows: int) -> Tensor:
    """Where each row's entries begin.

    Raises:
        GraphError: a row is out of range.
    """
    counts = torch.bincount(row, minlength=num_rows)
    if len(counts) > num_rows:
        raise GraphError(f"edges end at node {int(row.max())} of {num_rows}", cure="check edge_index and num_nodes")
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


# ---------------------------------------------------------------- torch-sparse's operators
def ego_k_hop_sample_adj(
    rowptr: Tensor, col: Tensor, seeds: Tensor, depth: int, num_neighbors: int, replace: bool
) -> tuple[Tensor, ...]:
    """(rowptr, col, nodes, edges, ptr, roots), as ``torch.ops.torch_sparse.ego_k_hop_sample_adj`` gives.

    For each seed the nodes that are drawn around it, ascending, with all edges among them; ``ptr``: where the nodes of
    each begin, ``roots``: where it stands itself.
    """
    drawn = _drawn((rowptr, col), seeds, [num_neighbors] * depth, How(replace), is_disjoint=True)
    nodes, batch = drawn.nodes, drawn.nodes.batch
    assert batch is not None
    order = np.lexsort((nodes.ids, batch))
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    far, near, places = (one.numpy() for one in induced(drawn.relation, nodes, nodes).tensors(torch.int64))
    rows, columns = rank[near], rank[far]
    by_row = np.lexsort((columns, rows))
    ptr = _pointers(torch.from_numpy(batch), len(seeds))
    found = (columns[by_row], nodes.ids[order], places[by_row])
    col, ids, edges = (torch.from_numpy(one) for one in found)
    return _pointers(torch.from_numpy(rows), len(order)), col, ids, edges, ptr, torch.from_numpy(rank[: len(seeds)])


def ptr2ind(ptr: Tensor, count: int) -> Tensor:
    """The number of the range that each place lies in, as ``torch.ops.torch_sparse.ptr2ind`` gives."""
    return torch.repeat_interleave(torch.arange(len(ptr) - 1), ptr.diff(), output_size=count)
