"""Rows of edges that a layer computes for its own messages: a part of propagate, unless others ask for them.

Takes: a call of edge_updater. Gives: what stands for its rows within the layer. Runs at every call of GATConv.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from typing_extensions import Self

from vgraph.compat.pyg.call import Call
from vgraph.compat.pyg.layer_types import Layer
from vgraph.ir.program import map_leaves
from vgraph.ir.topology import Topology


class DeferredRows(Tensor):
    """Stands for the rows until a function of torch asks for them; from then on for what they are."""

    layer: Layer
    call: Call
    _make: Callable[[], object]
    _made: object
    _has_grad: bool

    @classmethod
    def of(cls, layer: Layer, call: Call, make: Callable[[], object]) -> Self:
        """``make``: computes them."""
        rows = Tensor._make_subclass(cls, torch.empty(0))
        rows.layer, rows.call, rows._make, rows._made = layer, call, make, None
        rows._has_grad = torch.is_grad_enabled()
        return rows

    def may_join(self, layer: Layer, topology: Topology) -> bool:
        """Whether messages of this layer over these edges may compute them on the way."""
        return self._made is None and self.layer is layer and self.call.topology is topology

    def rows(self) -> object:
        """The rows, as edge_updater would have given them."""
        if self._made is None:
            with torch.set_grad_enabled(self._has_grad):
                self._made = self._make()
        return self._made

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., object],
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        named = {name: made_rows(value) for name, value in (kwargs or {}).items()}
        return func(*(made_rows(value) for value in args), **named)


def made_rows(tree: object) -> object:
    """The same nest of tuples and lists with rows that are there."""
    return map_leaves(tree, lambda leaf: leaf.rows() if isinstance(leaf, DeferredRows) else leaf)
