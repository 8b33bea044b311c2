"""Topologies of edge_index tensors: found again by the tensor and its version, and let go with it.

Takes: an edge_index. Gives: a Topology. Runs at every call; once per tensor it is copied and its ids are checked, in
one pass of native code where they are few. Copies of many are given back in the second call (ADR 0049).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from vgraph.capture.errors import CaptureError
from vgraph.compat.pyg.by_tensor import ByTensor
from vgraph.compat.pyg.lent_ids import copied, give_back
from vgraph.compiler import checked_topology
from vgraph.ir.schedule import MANY, MOST_SHORT
from vgraph.ir.topology import Topology

_Key = tuple[int, int, bool]  # sources, destinations, whether edges lead from the first row to the second
State = tuple[int, int, torch.Size]  # what changes with a tensor: its version, where it lies, its shape


@dataclass(eq=False, slots=True)
class _Known:
    """``is_ours``: nobody else has the tensor, so that its ids need not be copied.

    ``short``: topologies that hold copies of its ids in fewer bits; ``is_shared``: so do those of another tensor.
    """

    state: State
    largest: tuple[int, int] | None = None  # of either row; -1: there are no edges; None: nobody has asked yet
    made: dict[_Key, Topology] = field(default_factory=dict[_Key, Topology])
    is_ours: bool = False
    short: set[_Key] = field(default_factory=set[_Key])
    is_shared: bool = False


_known: ByTensor[_Known] = ByTensor()


def topology_of(
    edge_index: Tensor, num_src: int, num_dst: int, *, forward: bool, holder: Tensor | None = None
) -> Topology:
    """The edges ``edge_index[0] -> edge_index[1]``, or turned round where ``forward`` is False.

    Of a sparse matrix, each entry's: from its column to its row. ``holder``: the EdgeIndex whose ids these are, if they
    are one's: a write to it changes them, and it alone counts that.

    Raises:
        CaptureError: an id is out of range.
    """
    known = _of_tensor(edge_index, holder)
    key = (num_src, num_dst, forward)
    made = known.made.get(key)
    if made is None:
        made = known.made[key] = _small(edge_index, key) or _checked(edge_index, known, key)
    elif key in known.short and not known.is_shared and give_back(made, edge_index.detach(), forward=forward):
        known.short.discard(key)
    return made


def _small(edge_index: Tensor, key: _Key) -> Topology | None:
    """That of few edges, whose ids are checked while they are put in order; None: they are not few, or one is none."""
    num_src, num_dst, forward = key
    if edge_index.layout != torch.strided or edge_index.dtype != torch.int64 or not edge_index.shape[1]:
        return None
    return checked_topology(edge_index, num_src, num_dst, forward=forward)


def _checked(edge_index: Tensor, known: _Known, key: _Key) -> Topology:
    num_src, num_dst, forward = key
    ids = _ids(edge_index).detach()
    if known.largest is None:
        known.largest = _largest(ids)
    largest = known.largest if forward else known.largest[::-1]
    if largest[0] >= num_src or largest[1] >= num_dst:
        raise CaptureError("an id in edge_index is out of range")
    dtype = ids.dtype if known.is_ours else short_dtype(ids, max(num_src, num_dst))
    first, second = ids if known.is_ours else copied(ids, dtype)  # a backward may still need them
    if dtype != ids.dtype and edge_index.layout == torch.strided:
        known.short.add(key)
    ends = (first, second) if forward else (second, first)
    return Topology(*ends, num_src, num_dst, given_idtype=ids.dtype)


def state_of(tensor: Tensor) -> State:
    """What a write to a tensor changes; of one whose versions are counted."""
    strided = tensor.layout == torch.strided
    return tensor._version, tensor.data_ptr() if strided else 0, tensor.shape


def share_topologies(edge_index: Tensor, copy: Tensor) -> None:
    """Lets a copy have the topologies of an edge_index, whichever of the two is asked for them first."""
    if copy.is_inference():  # which counts no versions
        return
    if edge_index.dtype == torch.int64 and edge_index.dim() == 2:
        of_both = _of_tensor(edge_index)
        of_both.is_shared = True
        for topology in of_both.made.values():
            _ = topology.src  # whoever has one of the tensors may write to it: each needs ids that are copies
        _known[copy] = _Known(state_of(copy), of_both.largest, of_both.made, is_shared=True)


def _of_tensor(edge_index: Tensor, holder: Tensor | None = None) -> _Known:
    key = edge_index if holder is None else holder
    if edge_index.is_inference() or key.is_inference():  # which count no versions: they may have changed
        return _Known((0, 0, edge_index.shape))
    version, place, shape = state_of(edge_index)
    state = (version if holder is None else version + holder._version, place, shape)
    known = _known.get(key)
    if known is None or known.state != state:
        known = _known[key] = _Known(state)
    return known


def _ids(edges: Tensor) -> Tensor:
    """(2, edges), sources first."""
    if edges.layout == torch.strided:
        return edges
    if edges.layout == torch.sparse_coo:
        return edges.indices().flip(0)
    rows = torch.repeat_interleave(edges.crow_indices().diff(), output_size=edges.col_indices().shape[0])
    return torch.stack([edges.col_indices(), rows])


def own_edges(edges: Tensor) -> Tensor:
    """An edge_index that nobody else has, which stays as it is: its topologies read it where it lies."""
    _known[edges] = _Known(state_of(edges), is_ours=True)
    return edges


def short_dtype(ids: Tensor, num_vertices: int) -> torch.dtype:
    """Many ids on the CPU take as few bits as they need."""
    is_short = ids.device.type == "cpu" and ids.shape[1] >= MANY and max(num_vertices, ids.shape[1]) < MOST_SHORT
    return torch.int32 if is_short else ids.dtype


def _largest(edge_index: Tensor) -> tuple[int, int]:
    if edge_index.shape[1] == 0:
        return -1, -1
    smallest, largest = torch.aminmax(edge_index, dim=1)
    if min(smallest.tolist()) < 0:
        raise CaptureError("an id in edge_index is negative")
    first, second = largest.tolist()
    return first, second
