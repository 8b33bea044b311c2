"""Joined ends: the ids of many topologies as those of one.

Takes: Topologies. Gives: ``src`` and ``dst`` of a batch. Runs at every step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vgraph.ir.topology import Topology
from vgraph.ir.upload import send

ENDS = "ends"  # (edges, 2) of src and dst, as bytes, among what is kept of a Topology
SMALL = 1024  # edges a graph, up to which its ids are kept as bytes, too: hundreds of tensors are far apart in memory


def join_ends(parts: Sequence[Topology], num_src: Sequence[int], num_dst: Sequence[int]) -> Sequence[Tensor]:
    """The ids of all, each behind as many as the graphs before it have vertices."""
    first = parts[0].src
    width = 2 * first.element_size()
    known: list[bytes] = [ends for t in parts if (ends := t.kept.get(ENDS)) is not None]
    is_known = len(known) == len(parts)
    counts = np.array([len(ends) // width for ends in known] if is_known else [t.num_edges for t in parts])
    shifts = [_offsets(num_src, counts)]
    shifts.append(shifts[0] if num_dst is num_src else _offsets(num_dst, counts))
    if is_known:
        pairs: NDArray[np.integer] = np.frombuffer(b"".join(known), np.int32 if width == 8 else np.int64).reshape(-1, 2)
        joined = np.empty(pairs.shape[::-1], pairs.dtype)
        for row, (ids, shift) in enumerate(zip(pairs.T, shifts, strict=True)):
            np.add(ids, shift, out=joined[row], casting="same_kind")
        return torch.from_numpy(joined).unbind()
    whole = torch.cat([t.src for t in parts]), torch.cat([t.dst for t in parts])
    if first.device.type == "cpu" and len(shifts[0]) <= SMALL * len(parts):
        _keep_ends(parts, torch.stack(whole, 1).numpy().tobytes(), counts * width)
    return [
        ids.add_(send(torch.from_numpy(by).to(ids.dtype), ids.device)) for ids, by in zip(whole, shifts, strict=True)
    ]


def _keep_ends(parts: Sequence[Topology], pairs: bytes, sizes: NDArray[np.int64]) -> None:
    stops = sizes.cumsum().tolist()
    for t, start, stop in zip(parts, [0, *stops], stops, strict=False):
        t.kept[ENDS] = pairs[start:stop]


def _offsets(counts: Sequence[int], num_edges: NDArray[np.int64]) -> NDArray[np.int64]:
    array = np.array(counts)
    return (array.cumsum() - array).repeat(num_edges)
