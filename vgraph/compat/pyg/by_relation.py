"""The edges of each relation, in memory of their own: picked once, so that each relation has its topology.

Takes: an edge_index and the relation of every edge. Gives: an edge_index a relation. Runs at every call.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import ref

import torch
from torch import Tensor

from vgraph.compat.pyg.by_tensor import ByTensor
from vgraph.compat.pyg.topologies import State, own_edges, short_dtype, state_of

_Given = tuple[ref[Tensor], State]


@dataclass(eq=False)
class _Picked:
    """``types``: of every edge, in few bits; ``num_vertices``: below which ids were asked for.

    ``given``: the tensor that had these types last, as it was then; None: it counts no versions.
    """

    source: State
    types: Tensor
    num_vertices: int
    edges: tuple[Tensor, ...]
    given: _Given | None

    def is_for(self, edge_index: Tensor, edge_type: Tensor, num_relations: int, num_vertices: int) -> bool:
        known = (self.source, self.types.shape, len(self.edges), self.num_vertices)
        if known != (state_of(edge_index), edge_type.shape, num_relations, num_vertices):
            return False
        given = _as_given(edge_type)  # before its numbers are read: a write since is a change
        if not self._had_given(edge_type) and not (self.types == edge_type).all():
            return False
        self.given = given
        return True

    def _had_given(self, edge_type: Tensor) -> bool:
        """Whether this very tensor had these types, and nobody has written to it since."""
        given = self.given
        if given is None or given[0]() is not edge_type:
            return False
        return given[1] == state_of(edge_type)


def _as_given(types: Tensor) -> _Given | None:
    return None if types.is_inference() else (ref(types), state_of(types))


_picked: ByTensor[_Picked] = ByTensor()  # of each edge_index, by the types that it had last


def edges_by_relation(
    edge_index: Tensor, edge_type: Tensor, num_relations: int, num_vertices: int
) -> tuple[Tensor, ...] | None:
    """An edge_index for each of the relations 0, 1, 2 ...; the same ones where neither argument has changed.

    None: some edge is of none of them.

    ``edge_index``: (2, edges). ``edge_type``: (edges,), int64. ``num_vertices``: ids are to be below it; those
    that are not stay as they are, for who checks them.
    """
    if edge_index.is_inference():  # which counts no versions: it may have changed
        return _pick(edge_index, edge_type, num_relations, num_vertices)
    known = _picked.get(edge_index)
    if known is None or not known.is_for(edge_index, edge_type, num_relations, num_vertices):
        source, given = state_of(edge_index), _as_given(edge_type)
        edges = _pick(edge_index, edge_type, num_relations, num_vertices)
        if edges is None:
            return None
        known = _picked[edge_index] = _Picked(source, _in_few_bits(edge_type), num_vertices, edges, given)
    return known.edges


@torch.inference_mode(False)  # they may be part of a backward later
def _pick(edge_index: Tensor, edge_type: Tensor, num_relations: int, num_vertices: int) -> tuple[Tensor, ...] | None:
    short = short_dtype(edge_index, num_vertices)
    dtype = short if _are_below(edge_index, num_vertices) else edge_index.dtype
    found = list[Tensor]()
    for relation in range(num_relations):
        places = (edge_type == relation).nonzero().squeeze(1)
        own = edge_index.new_empty((2, places.shape[0]), dtype=dtype)
        for row, ids in zip(own, edge_index, strict=True):
            row.copy_(ids.index_select(0, places))
        found.append(own_edges(own))
    num_picked = sum(own.shape[1] for own in found)
    return tuple(found) if num_picked == edge_index.shape[1] else None


def _are_below(ids: Tensor, end: int) -> bool:
    return ids.numel() == 0 or (int(ids.min()) >= 0 and int(ids.max()) < end)


def _in_few_bits(types: Tensor) -> Tensor:
    """A copy, of which each number is what it was."""
    low, high = (int(end) for end in torch.aminmax(types)) if types.numel() else (0, 0)
    fits = (
        kind for kind in (torch.int8, torch.int16) if torch.iinfo(kind).min <= low and high <= torch.iinfo(kind).max
    )
    return types.detach().to(next(fits, types.dtype), copy=True)
