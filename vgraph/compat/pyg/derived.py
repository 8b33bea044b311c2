"""What is derived from an edge_index, by adding self-loops and the like: made once, so that its topology is.

Takes: one of PyG's functions and its arguments. Gives: what it gives; where its arguments are the tensors of an
earlier call, unchanged, what it gave then. Runs at every call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from vgraph.api.messages.indexed import is_plain_tensor
from vgraph.capture.guards.functorch_checks import is_transformed
from vgraph.capture.record.modes import autocast_kind
from vgraph.compat.pyg.by_tensor import ByTensor
from vgraph.compat.pyg.layer_types import Method
from vgraph.compat.pyg.masked import pick
from vgraph.compat.pyg.topologies import State, state_of

_PLAIN = (type(None), bool, int, str, torch.dtype)
_MOST = 8  # calls remembered of a tensor: a program that makes others all the time does not fill memory with them
Args = tuple[object, ...]
Result = Tensor | tuple[Tensor, "Tensor | list[Tensor] | None"]  # edges; edges and their rows


@dataclass(eq=False)
class _Made:
    """What a call made of a tensor, and the states of both then."""

    tensor: Tensor | None  # None: the tensor itself for edges, and nothing for rows
    source: State
    state: State | None
    with_rows: bool = False
    edges: _Made | None = None  # of rows: the edges whose rows they are

    def holds(self, source: Tensor) -> bool:
        return self.source == state_of(source) and (self.tensor is None or self.state == state_of(self.tensor))


_made: ByTensor[dict[object, _Made]] = ByTensor()  # what was made of each tensor, by call


def derive(theirs: Method, edge_index: Tensor, args: Args, named: Mapping[str, object]) -> Result:
    """``theirs(edge_index, *args, **named)``; its tensors are the same again, and belong to all who ask."""
    given = (*args, *named.values())
    tensors = [one for one in given if isinstance(one, Tensor)]
    call = (theirs, tuple(named), *map(_described, given), *_modes(edge_index))
    picks = theirs.__name__ == "masked_edge_index"  # by a mask, which need not be watched
    watched = (edge_index,) if picks else (edge_index, *tensors)
    if None in call or len(tensors) > 1 or not all(map(_is_watched, watched)) or _is_traced():
        return cast("Result", theirs(edge_index, *args, **named))
    if picks:
        return pick(theirs, edge_index, tensors[0])
    source = tensors[0] if tensors else edge_index  # of what rows are made
    edges = _find(edge_index, call)
    if edges is not None and not edges.with_rows:
        return _edges_of(edges, edge_index)
    rows = None if edges is None or source.requires_grad else _find(source, (call, "rows"))
    if edges is not None and rows is not None and rows.edges is edges:
        return _edges_of(edges, edge_index), rows.tensor
    with torch.inference_mode(False):  # what is kept may be part of a backward later
        out = cast("Result", theirs(edge_index, *args, **named))
    return _remembered(out, edge_index, source, call, edges)


def _remembered(out: Result, edge_index: Tensor, source: Tensor, call: Args, edges: _Made | None) -> Result:
    index, rows = (out, None) if isinstance(out, Tensor) else out
    if isinstance(rows, list):  # of rows, which to_undirected gives to who gave it one
        return out
    if any(one is not edge_index and one is not None and one._is_view() for one in (index, rows)):  # it holds its base
        return out
    if edges is None:
        edges = _keep(edge_index, call, None if index is edge_index else index)
        edges.with_rows = not isinstance(out, Tensor)
    if isinstance(out, Tensor):
        return _edges_of(edges, edge_index)
    if rows is None or not (rows is source or rows.requires_grad):
        _keep(source, (call, "rows"), rows).edges = edges
    return _edges_of(edges, edge_index), rows


def _edges_of(made: _Made, edge_index: Tensor) -> Tensor:
    return edge_index if made.tensor is None else made.tensor


# ---------------------------------------------------------------- what is remembered
def _find(source: Tensor, call: object) -> _Made | None:
    calls = _made.get(source)
    made = None if calls is None else calls.get(call)
    return made if made is not None and made.holds(source) else None


def _keep(source: Tensor, call: object, tensor: Tensor | None) -> _Made:
    calls = _made.get(source)
    if calls is None:
        calls = _made[source] = {}
    calls.pop(call, None)
    if len(calls) == _MOST:
        calls.pop(next(iter(calls)))
    calls[call] = _Made(tensor, state_of(source), None if tensor is None else state_of(tensor))
    return calls[call]


def _described(value: object) -> object:
    """What tells an argument from others; None: it cannot be told."""
    if isinstance(value, Tensor):
        return Tensor
    if type(value) in (tuple, list):
        parts = tuple(_described(one) for one in cast("Args", value))
        return None if None in parts or Tensor in parts else (type(value), parts)
    if type(value) is float:
        return float, value.hex()  # which tells 0.0 from -0.0
    return (type(value), value) if type(value) in _PLAIN else None


def _modes(edge_index: Tensor) -> Args:
    return torch.get_default_dtype(), torch.is_autocast_enabled(autocast_kind(edge_index.device))


def _is_watched(tensor: Tensor) -> bool:
    """Whether its changes are counted."""
    return is_plain_tensor(tensor) and tensor.layout == torch.strided and not tensor.is_inference()


def _is_traced() -> bool:
    return torch.jit.is_tracing() or is_transformed()
