"""propagate and edge_updater of a MessagePassing layer, captured as one function.

Takes: a layer, PyG's own method, what it was given. Gives: what PyG gives. Runs at every call.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from vgraph.api.messages.indexed import Found, Joined, Kept, Out, is_plain_tensor, join
from vgraph.capture.capture import note_run
from vgraph.capture.capture_cache import function_key
from vgraph.capture.errors import CaptureError
from vgraph.capture.guards.functorch_checks import is_transformed
from vgraph.capture.record.function_mode import without_innermost_function_mode
from vgraph.capture.rows.indexed_rows import IndexedRows
from vgraph.compat.pyg.arguments import collect
from vgraph.compat.pyg.askers import deferred, may_defer, may_defer_update
from vgraph.compat.pyg.call import Call
from vgraph.compat.pyg.deferred import DeferredRows, made_rows
from vgraph.compat.pyg.functions import standing_in
from vgraph.compat.pyg.holdings import Holdings
from vgraph.compat.pyg.layer_types import Given, Layer, Method, Size
from vgraph.compat.pyg.own_products import are_own_products_innermost

logger = logging.getLogger("vgraph")
_ABSENT = object()
_FIRST = ("edge_update",)
_GENERAL = "torch_geometric.nn.conv.message_passing"  # where PyG's methods lie that are not printed for one class
STEPS = {"propagate": ("message", "aggregate", "update"), "edge_updater": _FIRST}
_HOOKED = {"propagate": ("propagate", "message", "aggregate"), "edge_updater": _FIRST}
_HOOKS = {  # attributes that hold them
    which: [f"_{step}_forward_{when}hooks" for step in hooked for when in ("", "pre_")]
    for which, hooked in _HOOKED.items()
}


class _EdgeIndex(Protocol):
    def as_tensor(self) -> Tensor: ...


class _TooEarlyError(CaptureError):
    """Parameters are made of the shapes that a first call sees, which must not be those of example rows."""

    is_kept = False


def run(layer: Layer, which: str, theirs: Method, edge_index: object, given: Given) -> object:
    """``which``: propagate or edge_updater; ``theirs``: PyG's own, which runs where it cannot be captured."""
    if which == "edge_updater" and may_defer_update(layer):
        with suppress(CaptureError):
            call = _call(layer, which, theirs, edge_index, given)
            return deferred(layer, call, lambda: _run(layer, which, theirs, edge_index, given), joins=True)
    return _run(layer, which, theirs, edge_index, given)


def _run(layer: Layer, which: str, theirs: Method, edge_index: object, given: Given) -> object:
    if not are_own_products_innermost():
        return _captured_or_theirs(layer, which, theirs, edge_index, given)
    with without_innermost_function_mode():
        return _captured_or_theirs(layer, which, theirs, edge_index, given)


def _captured_or_theirs(layer: Layer, which: str, theirs: Method, edge_index: object, given: Given) -> object:
    try:
        if _is_empty(edge_index):
            note_run(type(layer).__name__, CaptureError("there are no edges, and no messages"), "runs as PyG runs it")
            return theirs(layer, edge_index, **given)
        return _captured(layer, which, theirs, edge_index, given)
    except _TooEarlyError:
        return _initialized(layer, which, theirs, edge_index, given)
    except CaptureError as error:
        if any(isinstance(value, DeferredRows) for value in given.values()):
            made = {name: made_rows(value) for name, value in given.items()}
            return _captured_or_theirs(layer, which, theirs, edge_index, made)
        _say_why(layer, which, error)
    return theirs(layer, edge_index, **given)


def _initialized(layer: Layer, which: str, theirs: Method, edge_index: object, given: Given) -> object:
    """A first call. PyG makes the parameters; what is given is rounded as that of later calls is."""
    out = theirs(layer, edge_index, **given)
    try:
        return _captured(layer, which, theirs, edge_index, given, initialized=True)
    except CaptureError as error:
        _say_why(layer, which, error)
    return out


def _captured(
    layer: Layer, which: str, theirs: Method, edge_index: object, given: Given, *, initialized: bool = False
) -> object:
    """``initialized``: whether parameters that are lazy even now are of no concern to the functions."""
    call = _call(layer, which, theirs, edge_index, given)
    out, kept = _join(layer, which, call, initialized=initialized, defers=may_defer(layer))
    for name, rows in kept.items():  # as layers of attention keep their weights
        if rows is None:
            make = functools.partial(_join_kept, layer, which, call, name, initialized=initialized)
            rows = deferred(layer, call, make, joins=False)
        setattr(layer, name, rows)
    return out


def _join_kept(layer: Layer, which: str, call: Call, name: str, *, initialized: bool) -> object:
    """What a layer keeps under a name. Guards look at the layer: what stands for rows is away meanwhile."""
    held = {key: rows for key, rows in vars(layer).items() if isinstance(rows, DeferredRows)}
    for key in held:
        vars(layer).pop(key)
    try:
        return _join(layer, which, call, initialized=initialized, gives=name)[0]
    finally:
        vars(layer).update(held)


def _join(
    layer: Layer, which: str, call: Call, *, initialized: bool, defers: bool = False, gives: str | None = None
) -> tuple[Out, Found]:
    """``gives``: what the layer keeps that is asked for, in place of what its last function gives."""
    steps = (*(_FIRST if call.before else ()), *STEPS[which])
    methods = [getattr(layer, step) for step in steps]
    held = functools.partial(_nothing, **call.all_shared())  # whose dict guards put other things in for a recording
    roots = (*methods, held)
    key = (which, gives, *[function_key(method) for method in methods], tuple(call.whats.items()))
    function = functools.partial(
        _run_steps, layer, STEPS[which], call.without_rows(), held.keywords, initialized=initialized, gives=gives
    )
    return join(call.topology, call.all_rows(), function, roots, key, type(layer).__name__, defers=defers)


def _call(layer: Layer, which: str, theirs: Method, edge_index: object, given: Given) -> Call:
    check_unseen(layer, which)
    given = dict(given)
    edges, asked = _edges_of(layer, edge_index), given.pop("size", None)
    prefix = "" if which == "propagate" else f"{which}."
    size, by_template = _sizes_of(layer, edge_index, edges, asked), theirs.__module__ != _GENERAL
    holder = None if edges is edge_index else cast("Tensor", edge_index)
    return collect(layer, edges, size, given, STEPS[which], prefix, by_template=by_template, holder=holder)


def _sizes_of(layer: Layer, edge_index: object, edges: Tensor, asked: object) -> Size:
    """How many nodes either end has, as PyG tells it: of ids in a plain tensor as it was asked, or not known."""
    if asked is None and edge_index is edges and edges.layout == torch.strided:
        return (None, None)
    return layer._check_input(edge_index, asked)  # pyright: ignore[reportPrivateUsage]


def _is_empty(edge_index: object) -> bool:
    if not isinstance(edge_index, Tensor) or edge_index.dim() != 2:
        return False
    return (edge_index.numel() if edge_index.layout == torch.strided else edge_index._nnz()) == 0


def _nothing(**_: Tensor | float) -> None:
    """Holds numbers, and tensors of neither nodes nor edges, where guards look for them."""


def _run_steps(
    layer: Layer,
    steps: Sequence[str],
    call: Call,
    shared: Given,
    joined: Joined,
    *,
    initialized: bool,
    gives: str | None,
) -> tuple[Out, Kept]:
    """PyG's functions one after the other, each on what stands for its arguments; and what the layer keeps of them.

    ``gives``: what it keeps that is given alone.
    """
    if not initialized and any(is_lazy(parameter) for parameter in (*layer.parameters(), *layer.buffers())):
        raise _TooEarlyError("its parameters are not initialized yet")
    before, holdings = dict(layer.__dict__), Holdings(cast("nn.Module", layer))
    try:
        with standing_in():
            made = {name: _edge_update(layer, part, shared, joined) for name, part in call.before.items()}
            first, *others = steps
            out = getattr(layer, first)(**call.arguments(first, joined, shared, made))
            for step in others:
                out = getattr(layer, step)(out, **call.arguments(step, joined, shared, made))
        written = {name: one for name, one in layer.__dict__.items() if one is not before.get(name, _ABSENT)}
        kept: Kept = {name: rows for name, rows in written.items() if isinstance(rows, IndexedRows)}
        if len(kept) < len(written):
            raise CaptureError(f"it writes {', '.join(map(repr, written.keys() - kept.keys()))} of the layer")
        place = holdings.first_written()
        if place:
            raise CaptureError(f"it writes to {place!r} of the layer")
        return (out, kept) if gives is None else (kept[gives], {})
    finally:
        for name in [name for name, value in layer.__dict__.items() if value is not before.get(name, _ABSENT)]:
            layer.__dict__.pop(name)
            if name in before:
                layer.__dict__[name] = before[name]


def _edge_update(layer: Layer, call: Call, shared: Given, joined: Joined) -> object:
    """What edge_updater gives, as a part of propagate."""
    (step,) = _FIRST
    rows = getattr(layer, step)(**call.arguments(step, joined, shared, {}))
    if joined.has_drawn():  # whoever asks for the rows later on must get those that the messages were made of
        raise CaptureError(f"{step} draws random numbers")
    return rows


def _edges_of(layer: Layer, edge_index: object) -> Tensor:
    """The edges as a tensor of torch's: ids (2, edges), or a sparse matrix."""
    if not isinstance(edge_index, Tensor):
        raise CaptureError(f"the edges are a {type(edge_index).__name__}")
    if type(edge_index).__name__ == "EdgeIndex":
        edge_index = cast("_EdgeIndex", edge_index).as_tensor()
    if not is_plain_tensor(edge_index):
        raise CaptureError(f"the edges are a {type(edge_index).__name__}")
    if edge_index.is_meta:
        raise CaptureError("the edges are on the meta device, where ids have no numbers")
    if edge_index.layout == torch.strided:
        if edge_index.dim() != 2 or edge_index.shape[0] != 2 or edge_index.dtype not in (torch.int64, torch.int32):
            raise CaptureError("edge_index is not (2, edges) of int64 or int32")
    elif layer.fuse:
        raise CaptureError("the edges are a sparse matrix, which it multiplies by itself, without messages")
    elif edge_index.layout not in (torch.sparse_coo, torch.sparse_csr) or edge_index.requires_grad:
        raise CaptureError(f"the edges are a sparse matrix, {edge_index.layout}")
    elif edge_index.layout == torch.sparse_coo and not edge_index.is_coalesced():
        raise CaptureError("the edges are a sparse matrix that is not coalesced")
    elif layer.flow != "source_to_target":
        raise CaptureError("the edges are a sparse matrix, against the flow")
    return edge_index


def check_unseen(layer: Layer, which: str) -> None:
    """Raises CaptureError where what a layer passes on must be there for others to see."""
    if layer.explain:
        raise CaptureError("an explainer looks at its messages")
    own = vars(layer)
    for hooks in _HOOKS[which]:
        if own[hooks]:
            raise CaptureError("hooks look at what it passes on")
    if torch.jit.is_tracing():
        raise CaptureError("torch.jit traces it")
    if is_transformed() or torch.compiler.is_exporting():
        raise CaptureError("a transform of torch.func or torch.export is active")


_said: set[tuple[type, str, str]] = set()


def _say_why(layer: Layer, which: str, error: CaptureError) -> None:
    note_run(type(layer).__name__, error, "runs as PyG runs it")
    told = (type(layer), which, error.reason)
    if told not in _said:
        _said.add(told)
        logger.info("%s.%s runs as PyG runs it: %s %s", type(layer).__name__, which, error.reason, error.line)
