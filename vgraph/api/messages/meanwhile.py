"""Meanwhile: vertices that read own rows alone are computed while those of other ranks come.

Takes: a function that is captured, own rows, what brings others'. Gives: own rows. Runs at every call where ranks are
to overlap. In the backward gradients of others' rows leave first, and those of inner vertices are computed meanwhile.
Source: Wan et al. 2022 (PipeGCN), section 3, whose rows are those of the step before; here none is (ADR 0034).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from vgraph.capture.capture import Bound
from vgraph.graphs.adjacency import runs
from vgraph.ir.topology import Topology
from vgraph.ir.upload import upload

Outputs = list[Tensor | None]
Coming = tuple[dict[str, Tensor], Callable[[], dict[str, Tensor]]]  # own rows by name, and what waits for others'


@dataclass(frozen=True, eq=False)
class Half:
    """Some vertices with all of their in-edges."""

    vertex_ids: Tensor
    edge_ids: Tensor
    topology: Topology


@dataclass(frozen=True, eq=False)
class Halves:
    """Vertices that read own rows alone, of which all are sources of ``inner``; and the others.

    Sources of ``outer`` are those at ``source_ids``: first ``own_ids``, own ones that it reads, then all of others.
    """

    inner: Half
    outer: Half
    own_ids: Tensor
    source_ids: Tensor

    def ids(self, kind: str) -> tuple[Tensor, Tensor] | None:
        """Where the rows of both halves lie: of "dst" or "edge", else None."""
        if kind == "dst":
            return self.inner.vertex_ids, self.outer.vertex_ids
        return (self.inner.edge_ids, self.outer.edge_ids) if kind == "edge" else None


def halves_of(topology: Topology) -> Halves:
    """Kept."""
    return topology.keep("halves", lambda: _make_halves(topology))


def _make_halves(topology: Topology) -> Halves:
    host, num_own = topology.on_host, topology.num_own_sources
    ends = torch.repeat_interleave(host.in_degrees, output_size=host.num_edges)
    is_outer = torch.zeros(host.num_dst, dtype=torch.bool, device="cpu")
    is_outer[ends[host.csc.other >= num_own]] = True
    outer, inner = (_half(host, ids.nonzero().squeeze(1)) for ids in (is_outer, ~is_outer))
    read = torch.unique(outer.topology.src).long()
    own_ids = read[read < num_own]
    source_ids = torch.cat([own_ids, torch.arange(num_own, host.num_src, device="cpu")])
    device = topology.device
    return Halves(
        _with_sources(inner, torch.arange(num_own, device="cpu"), device),
        _with_sources(outer, source_ids, device),
        *upload([own_ids, source_ids], device),
    )


def _half(host: Topology, vertex_ids: Tensor) -> Half:
    counts = host.in_degrees.index_select(0, vertex_ids)
    at = runs(host.csc.ptr.index_select(0, vertex_ids), counts)
    edge_ids = at if host.csc.edge_ids is None else host.csc.edge_ids.index_select(0, at)
    src = host.csc.other.index_select(0, at)
    dst = torch.repeat_interleave(torch.arange(len(vertex_ids), dtype=src.dtype, device="cpu"), counts)
    known = {kind: one.to("cpu") for kind, one in host.original_ids.items()}
    ids = {"vertex": known["vertex"][vertex_ids], "edge": known["edge"][edge_ids], "src": known["src"]}
    return Half(vertex_ids, edge_ids, Topology(src, dst, host.num_src, len(vertex_ids), original_ids=ids))


def _with_sources(half: Half, source_ids: Tensor, device: torch.device) -> Half:
    """The same with some of the sources alone, ascending, where the graph lies."""
    whole = half.topology
    places = torch.zeros(whole.num_src, dtype=whole.src.dtype, device="cpu")
    places[source_ids] = torch.arange(len(source_ids), dtype=whole.src.dtype, device="cpu")
    known = {**whole.original_ids, "src": whole.original_ids["src"][source_ids]}
    host = replace(whole, src=places[whole.src.long()], num_src=len(source_ids), original_ids=known)
    if device.type == "cpu":
        return replace(half, topology=host)
    vertex_ids, edge_ids, src, dst, *ids = upload(
        [half.vertex_ids, half.edge_ids, host.src, host.dst, *known.values()], device
    )
    there = replace(host, src=src, dst=dst, original_ids=dict(zip(known, ids, strict=True)), host=host)
    return Half(vertex_ids, edge_ids, there)


# ---------------------------------------------------------------- rows of both, each the other's transpose
Ids = tuple[Tensor, Tensor]


class _Context(Protocol):
    ids: Ids


class _Split(torch.autograd.Function):
    """Rows -> those of one half, those of the other."""

    @staticmethod
    def forward(ctx: _Context, ids: Ids, rows: Tensor) -> tuple[Tensor, ...]:
        ctx.ids = ids
        return tuple(rows.index_select(0, some) for some in ids)

    @staticmethod
    def backward(ctx: _Context, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return None, _Join.apply(ctx.ids, *grads)


class _Join(torch.autograd.Function):
    """Rows of both halves -> rows."""

    @staticmethod
    def forward(ctx: _Context, ids: Ids, *halves: Tensor) -> Tensor:
        ctx.ids = ids
        total = halves[0].new_empty((sum(map(len, halves)), *halves[0].shape[1:]))
        for some, rows in zip(ids, halves, strict=True):
            total.index_copy_(0, some, rows)
        return total

    @staticmethod
    def backward(ctx: _Context, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return None, *_Split.apply(ctx.ids, *grads)


def run_meanwhile(
    bound: Bound,
    given: Mapping[str, Tensor],
    topology: Topology,
    start: Callable[[Halves], Coming],
    *,
    of_edges: bool,
) -> Outputs:
    """What a function gives, with derivatives of any order; ``start`` has rows of sources come."""
    halves, context, names = halves_of(topology), bound.call_context(topology, "once"), bound.captured.names
    own, wait = start(halves)
    split = {name: _Split.apply(ids, given[name]) for name in names if (ids := halves.ids(name.partition(":")[0]))}

    def outputs(number: int, sources: Mapping[str, Tensor], half: Half) -> Outputs:
        rows = {**given, **sources, **{name: both[number] for name, both in split.items()}}
        return bound.run(tuple(rows[name] for name in names), replace(context, topology=half.topology))

    inner = outputs(0, own, halves.inner)
    outer = outputs(1, wait(), halves.outer)
    ids, joined = halves.ids("edge" if of_edges else "dst"), Outputs()
    for a, b in zip(inner, outer, strict=True):
        joined.append(None if a is None or b is None else _Join.apply(ids, a, b))
    return joined
