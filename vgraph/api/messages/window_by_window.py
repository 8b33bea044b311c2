"""Window by window: a captured function on some own vertices at a time, whose rows come, are used and are let go.

Takes: a function that is captured, own rows. Gives: own rows. Runs at every call where rows of others have little
room; the backward has them come again, and runs the function once more. Source: Mostafa 2022 (SAR), section 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from vgraph.capture.capture import Bound
from vgraph.errors import GraphError
from vgraph.ir.halo import Halo, InEdges, Window
from vgraph.ir.topology import Topology
from vgraph.runtime.asked_gradients import keeps_graph
from vgraph.runtime.call_rows import CallContext

Outputs = list[Tensor | None]
SRC = "src:"


@dataclass(frozen=True, eq=False)
class Part:
    """A window, and its edges as a Topology."""

    window: Window
    topology: Topology


def run_by_window(
    bound: Bound, tensors: Sequence[Tensor], topology: Topology, halo: Halo, *, of_edges: bool
) -> Outputs:
    """Own rows of every output; ``of_edges``: a row an edge, else one a destination. Differentiable once."""
    given = dict(zip(bound.captured.names, tensors, strict=True))
    row_bytes = sum(t.shape[1:].numel() * t.element_size() for name, t in given.items() if name.startswith(SRC))
    if not row_bytes:  # it reads nothing of sources
        return bound(tuple(tensors), topology, "once")
    parts = topology.keep(("windows", row_bytes), lambda: _parts(topology, halo, row_bytes))
    return Windowed(bound, bound.call_context(topology, "once"), parts, of_edges).run(tensors)


def _parts(topology: Topology, halo: Halo, row_bytes: int) -> list[Part]:
    host, device = topology.on_host, topology.device
    edge_ids = torch.arange(host.num_edges, device="cpu") if host.csc.edge_ids is None else host.csc.edge_ids
    known = {kind: ids.to("cpu") for kind, ids in host.original_ids.items()}
    parts: list[Part] = []
    for window in halo.windows(InEdges(host.csc.ptr, host.csc.other, edge_ids, known), row_bytes):
        src, dst = (ids.to(device) for ids in window.ends)
        ids = {kind: one.to(device) for kind, one in window.original_ids.items()}
        parts.append(Part(window, Topology(src, dst, window.num_sources, len(window.vertex_ids), original_ids=ids)))
    return parts


@dataclass(frozen=True, eq=False)
class Windowed:
    """One call: the function, what all windows share, and whether its outputs are rows of edges."""

    bound: Bound
    call_context: CallContext
    parts: Sequence[Part]
    of_edges: bool

    def run(self, tensors: Sequence[Tensor]) -> Outputs:
        """Own rows of every output, by number; differentiable once."""
        return list(_WindowByWindow.apply(self, *tensors))

    @property
    def names(self) -> tuple[str, ...]:
        return self.bound.captured.names

    def _fetched(self, window: Window, tensors: Sequence[Tensor]) -> list[Tensor]:
        sent = {name: one for name, one in sorted(zip(self.names, tensors, strict=True)) if name.startswith(SRC)}
        rows = dict(zip(sent, window.fetch(list(sent.values()), ",".join(sent)), strict=True))
        ids = {"dst": window.vertex_ids, "edge": window.edge_ids}
        for name, tensor in zip(self.names, tensors, strict=True):
            kind = name.partition(":")[0]
            if kind in ids:
                rows[name] = tensor.index_select(0, ids[kind])
            rows.setdefault(name, tensor)
        return [rows[name] for name in self.names]

    def _outputs(self, part: Part, given: Sequence[Tensor]) -> Outputs:
        return self.bound.run(tuple(given), replace(self.call_context, topology=part.topology))

    def _ids(self, window: Window) -> Tensor:
        return window.edge_ids if self.of_edges else window.vertex_ids

    def forward(self, tensors: Sequence[Tensor]) -> Outputs:
        """Every window's outputs at their places; the first window, which reads own rows alone, may be empty."""
        whole, topology = Outputs(), self.call_context.topology
        count = topology.num_edges if self.of_edges else topology.num_dst
        for index, part in enumerate(self.parts):
            window, given = part.window, self._fetched(part.window, tensors)
            if index and not len(window.vertex_ids):
                continue
            found = self._outputs(part, given)
            if not index:
                whole = [None if rows is None else rows.new_zeros((count, *rows.shape[1:])) for rows in found]
            for total, rows in zip(whole, found, strict=True):
                if total is not None and rows is not None:
                    total.index_copy_(0, self._ids(window), rows)
        return whole

    def backward(self, tensors: Sequence[Tensor], needs: Sequence[bool], grads: Sequence[Tensor | None]) -> Outputs:
        """The gradients of what needs one."""
        totals = [torch.zeros_like(one) if need else None for one, need in zip(tensors, needs, strict=True)]
        asked = dict(sorted((name, total) for name, total in zip(self.names, totals, strict=True) if total is not None))
        for index, part in enumerate(self.parts):
            fetched = zip(self._fetched(part.window, tensors), needs, strict=True)
            given = [one.detach().requires_grad_(need) for one, need in fetched]
            is_empty = index and not len(part.window.vertex_ids)
            self._add(part.window, asked, self._gradients(part, given, [None] * len(grads) if is_empty else grads))
        return list(totals)

    def _gradients(self, part: Part, given: Sequence[Tensor], grads: Sequence[Tensor | None]) -> dict[str, Tensor]:
        wanted = {name: one for name, one in zip(self.names, given, strict=True) if one.requires_grad}
        pairs: list[tuple[Tensor, Tensor]] = []
        if any(grad is not None for grad in grads):
            with torch.enable_grad():
                found = self._outputs(part, given)
            for rows, grad in zip(found, grads, strict=True):
                if rows is not None and grad is not None and rows.requires_grad:
                    pairs.append((rows, grad.index_select(0, self._ids(part.window))))
        if not pairs:
            return {name: torch.zeros_like(one) for name, one in wanted.items()}
        outputs, cotangents = zip(*pairs, strict=True)
        made = torch.autograd.grad(
            outputs, list(wanted.values()), cotangents, allow_unused=True, materialize_grads=True
        )
        return dict(zip(wanted, made, strict=True))

    def _add(self, window: Window, totals: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> None:
        sent = [name for name in totals if name.startswith(SRC)]
        window.give_back([totals[name] for name in sent], [found[name] for name in sent], ",".join(sent))
        ids = {"dst": window.vertex_ids, "edge": window.edge_ids}
        for name, total in totals.items():
            kind = name.partition(":")[0]
            if kind in ids:
                total.index_add_(0, ids[kind], found[name])
            elif name not in sent:
                total.add_(found[name])


class _Saved(Protocol):
    windowed: Windowed | None
    needs_input_grad: Sequence[bool]

    @property
    def saved_tensors(self) -> tuple[Tensor, ...]: ...
    def save_for_backward(self, *tensors: Tensor) -> None: ...
    def mark_non_differentiable(self, *tensors: Tensor) -> None: ...
    def set_materialize_grads(self, value: bool) -> None: ...


class _WindowByWindow(torch.autograd.Function):
    """Nothing that a window made stays for the backward."""

    @staticmethod
    def forward(ctx: _Saved, windowed: Windowed, *tensors: Tensor) -> tuple[Tensor | None, ...]:
        ctx.windowed = windowed
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        found = windowed.forward([tensor.detach() for tensor in tensors])
        whole_numbers = (t for t in found if t is not None and not (t.is_floating_point() or t.is_complex()))
        ctx.mark_non_differentiable(*whole_numbers)
        return tuple(found)

    @staticmethod
    def backward(ctx: _Saved, *grads: Tensor | None) -> object:
        if torch.is_grad_enabled():
            raise GraphError(
                "create_graph=True, and this graph fetches rows window by window, which has one derivative",
                cure="make DistGraph without halo_bytes for second derivatives",
            )
        saved, windowed = ctx.saved_tensors, ctx.windowed
        assert windowed is not None  # else autograd has said that this is a second backward
        found = windowed.backward([tensor.detach() for tensor in saved], ctx.needs_input_grad[1:], grads)
        if not keeps_graph():
            ctx.windowed = None  # its function may hold what has been made of its results, which holds this node
        return None, *found
