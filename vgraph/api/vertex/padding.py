"""Padding: a topology with vertices added, so that many have as many vertices and edges in every frontier.

Takes: a Topology. Gives: one of few forms, whose calls share recordings. Runs once per topology.
The vertices that are added come last, hang on one another alone, and have the features of the first vertex: what they
compute is finite where that is, nobody reads it, and no gradient reaches it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vgraph.compiler import levels
from vgraph.ir.topology import Topology
from vgraph.ir.upload import send

_LEVELS = 4  # their number is a multiple of this
Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Padded:
    """The larger topology, and how many vertices and edges were added behind the others."""

    topology: Topology
    num_vertices: int
    num_edges: int

    def rows(self, kind: str, value: Tensor) -> Tensor:
        """A vertex or edge feature for all rows."""
        count = {"vertex": self.num_vertices, "edge": self.num_edges}.get(kind, 0)
        more = value[:1].detach() if value.shape[0] else value.new_zeros((1, *value.shape[1:]))
        return torch.cat([value, more.expand(count, *value.shape[1:])]) if count else value


def pad(topology: Topology) -> Padded:
    """Every frontier, and its in-edges, up to a power of two; kept with the topology."""
    return topology.keep("padded", lambda: _pad(topology))


def _pad(topology: Topology) -> Padded:
    host = topology.on_host
    level, dst = levels(host), host.dst.numpy()
    depth = int(level.max(initial=0)) + 1
    depth += -depth % _LEVELS
    widths, edges = (np.bincount(of, minlength=depth) for of in (level, level[dst]))
    degrees = np.unique(host.in_degrees.numpy())
    inner = degrees[degrees > 0]
    added = _upper(widths + 1) - widths
    into = added * inner[0] if len(inner) == 1 else _upper(edges + added) - edges
    into[0] = 0
    heads, tails = _edges(added, into, len(level))
    both = [torch.from_numpy(ids).to(topology.src.dtype) for ids in (tails, heads)]
    sizes = topology.num_src + int(added.sum())
    larger = Topology(torch.cat([host.src, both[0]]), torch.cat([host.dst, both[1]]), sizes, sizes)
    if topology is not host:
        more = [send(ids, topology.device) for ids in both]
        larger = larger.stored(torch.cat([topology.src, more[0]]), torch.cat([topology.dst, more[1]]))
    return Padded(larger, int(added.sum()), len(heads))


def _upper(counts: Counts) -> Counts:
    """The next power of two."""
    return 1 << np.ceil(np.log2(np.maximum(counts, 1))).astype(np.int64)


def _edges(added: Counts, into: Counts, first: int) -> tuple[Counts, Counts]:
    """Heads and tails: each added vertex's in-edges come from those added a level below, by turns."""
    starts = first + np.cumsum(added) - added
    heads, tails = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for number in range(1, len(added)):
        count, own = int(into[number]), int(added[number])
        each = count // own
        counts = np.full(own, each)
        counts[0] += count - each * own
        heads.append(np.repeat(starts[number] + np.arange(own), counts))
        tails.append(starts[number - 1] + np.arange(count) % added[number - 1])
    return np.concatenate(heads), np.concatenate(tails)
