"""Rows that a layer computes for its own messages: a part of propagate, unless others ask for them.

Takes: a call of edge_updater, or the name of what a layer keeps of its messages. Gives: what stands for those rows
within the layer. Runs at every call of GATConv and TransformerConv.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from typing_extensions import Self

from vgraph.compat.pyg.call import Call
from vgraph.compat.pyg.layer_types import Layer
from vgraph.errors import VGraphError
from vgraph.ir.program import map_leaves
from vgraph.ir.topology import Topology


class RowsChangedError(VGraphError, RuntimeError):
    """Rows that nobody can compute any more: what they are computed from has other values by now."""


class DeferredRows(Tensor):
    """Stands for the rows until a function of torch asks for them; from then on for what they are.

    ``_unmade``: parameters and buffers that were not initialized when the layer had these rows, by id.
    """

    layer: Layer
    call: Call
    _joins: bool
    _make: Callable[[], object]
    _made: object
    _state: tuple[object, ...]
    _unmade: Mapping[int, Tensor]
    _has_grad: bool

    @classmethod
    def of(cls, layer: Layer, call: Call, make: Callable[[], object], *, joins: bool) -> Self:
        """``make``: computes them; ``joins``: whether messages may repeat the call in place of that."""
        rows = Tensor._make_subclass(cls, torch.empty(0))
        rows.layer, rows.call, rows._joins, rows._make, rows._made = layer, call, joins, make, None
        rows._unmade = {id(one): one for one in (*layer.parameters(), *layer.buffers()) if is_lazy(one)}
        rows._state, rows._has_grad = rows._state_now(), torch.is_grad_enabled()
        return rows

    def may_join(self, layer: Layer, topology: Topology) -> bool:
        """Whether messages of this layer over these edges may compute them on the way."""
        return self._joins and self._made is None and self.layer is layer and self.call.topology is topology

    def rows(self) -> object:
        """The rows, as PyG would have computed them.

        Raises:
            RowsChangedError: something that they are computed from has been written to.
        """
        if self._made is None:
            if self._state_now() != self._state:
                raise RowsChangedError(
                    f"rows that {type(self.layer).__name__} computes for its messages are asked for after a write "
                    "to what it was given, or to its parameters",
                    cure="write to them when the layer has returned, or to copies of them",
                )
            with torch.set_grad_enabled(self._has_grad):
                self._made = self._make()
        return self._made

    def _state_now(self) -> tuple[object, ...]:
        """What changes with a write to anything that rows are computed from.

        Tensors of inference count no writes; rows are not computed from what was not initialized yet.
        """
        given = [one for part in self.call.with_before() for one in part.tensors()]
        all_of_them = (*given, *self.layer.parameters(), *self.layer.buffers())
        watched = [one for one in all_of_them if id(one) not in self._unmade and not one.is_inference()]
        return self.layer.training, *((id(one), one._version) for one in watched)

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
