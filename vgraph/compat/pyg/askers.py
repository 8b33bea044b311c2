"""Who asks for what is derived from an edge_index: layers that run, each in its thread, or a program around them.

Takes: PyG's functions and its class of layers. Gives: the same, which derive once for all who ask under acceleration.
Installed once per process; runs at every call.
"""

from __future__ import annotations

import importlib
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from types import FunctionType
from typing import TypeGuard, TypeVar

import torch
from torch import Tensor, nn

from vgraph.capture.guards.functorch_checks import is_transformed
from vgraph.capture.record.aliases import leaves_of, storage_key
from vgraph.compat.pyg.call import Call
from vgraph.compat.pyg.deferred import DeferredRows, made_rows
from vgraph.compat.pyg.derived import derive
from vgraph.compat.pyg.layer_types import Layer, Method, in_place_of, is_of_pyg
from vgraph.compat.pyg.own_products import own_products_within
from vgraph.compat.pyg.switch import is_accelerated, is_everywhere
from vgraph.compat.pyg.topologies import share_topologies
from vgraph.compiled_calls import compiled_calls
from vgraph.ir.program import map_leaves

T = TypeVar("T")
_FUNCTIONS = {
    "torch_geometric.utils": (
        "remove_self_loops",
        "add_self_loops",
        "add_remaining_self_loops",
        "get_laplacian",
        "to_undirected",
    ),
    "torch_geometric.nn.conv.gcn_conv": ("gcn_norm",),
    "torch_geometric.nn.conv.rgcn_conv": ("masked_edge_index",),
}
_OWN_CALLS = {"forward", "_compiled_call_impl"}  # attributes of one layer: a forward of its own, what compile() makes


@dataclass(eq=False, slots=True)
class _Asker:
    """``is_accelerated``: whether it gets what was derived before; ``writes``: whether it may write to that.

    ``deferred``: rows of edges that stand for what its layer computes; none outlives the layer's call.
    """

    is_accelerated: bool
    writes: bool = True
    layer: object = None
    deferred: Sequence[weakref.ref[DeferredRows]] = ()
    given: Sequence[Tensor] = ()  # what others are given, too


class _Running(threading.local):
    def __init__(self) -> None:
        self.askers: list[_Asker] = []  # layers within one another


_running = _Running()
_calls = set[object]()  # of classes of layers


def install_askers(base: type[nn.Module]) -> None:
    """Lets PyG's functions ask who calls them, and layers say so."""
    if "__call__" in vars(base):
        return
    all_theirs = [vars(importlib.import_module(home))[name] for home, names in _FUNCTIONS.items() for name in names]
    ours = {id(theirs): _asking(theirs) for theirs in all_theirs}
    for module in list(sys.modules.values()):  # those that are imported later find ours
        table = getattr(module, "__dict__", {})
        for name in [name for name, value in list(table.items()) if id(value) in ours]:
            table[name] = ours[id(table[name])]


def install_call(kind: type) -> None:
    """Lets layers of a class say that they run, unless the class has a way of its own to be called.

    Each has code of its own for that: torch.compile bounds how often it compiles one code, as it does once a class.
    """
    if "__call__" not in vars(kind) and (kind.__call__ is nn.Module.__call__ or kind.__call__ in _calls):
        kind.__call__ = FunctionType(_call_layer.__code__.replace(), globals(), "__call__")
        _calls.add(kind.__call__)


def _call_layer(layer: nn.Module, *args: object, **named: object) -> object:
    """``__call__`` of layers; torch.compile leaves its graph for one that is accelerated, torch.export has PyG's."""
    if not torch.compiler.is_dynamo_compiling():
        return _call_eagerly(layer, args, named)
    if is_accelerated(layer) and not torch.compiler.is_exporting():
        return compiled_calls.outside(_call_eagerly, layer, args, named)
    return nn.Module.__call__(layer, *args, **named)


def _call_eagerly(layer: nn.Module, args: tuple[object, ...], named: dict[str, object]) -> object:
    """PyG's own layers write to nothing that they derive; one whose forward a program has replaced or compiled may."""
    is_replaced = not _OWN_CALLS.isdisjoint(vars(layer))
    is_theirs = not is_replaced and is_of_pyg(type(layer).forward)
    asker, askers = _Asker(is_accelerated(layer) and not is_transformed(), not is_theirs, layer), _running.askers
    askers.append(asker)
    try:
        with own_products_within(layer, args) if asker.is_accelerated and is_theirs else nullcontext():
            out = nn.Module.__call__(layer, *args, **named)
    finally:
        askers.pop()
    out = made_rows(out) if asker.deferred else out
    if asker.deferred:
        _make_what_is_left(layer, asker.deferred)
    return _own(out, asker.given) if asker.given else out


def _make_what_is_left(layer: nn.Module, all_rows: Sequence[weakref.ref[DeferredRows]]) -> None:
    """Rows that outlive the layer's call: somebody may ask for them when what they are made of has changed."""
    for rows in all_rows:
        still = rows()
        if still is not None:
            still.rows()
    for name, value in vars(layer).items():
        if isinstance(value, DeferredRows):
            vars(layer)[name] = value.rows()


def is_within_accelerated() -> bool:
    """Whether a layer that is accelerated runs in this thread."""
    return bool(_running.askers) and _running.askers[-1].is_accelerated


def may_defer(layer: Layer) -> bool:
    """Whether rows of this layer's edges may be computed where they are asked for.

    That is where the forward of PyG's own runs, eagerly and without autocast.
    """
    if not _running.askers or _running.askers[-1].layer is not layer or _running.askers[-1].writes:
        return False
    return not torch.is_autocast_enabled("cpu")


def may_defer_update(layer: Layer) -> bool:
    """Whether those that edge_updater gives may be; that must be PyG's own function of one tensor."""
    update = getattr(type(layer), "edge_update", None)
    if not isinstance(update, FunctionType) or not is_of_pyg(update):
        return False
    return update.__annotations__.get("return") in (Tensor, "Tensor") and may_defer(layer)


def deferred(layer: Layer, call: Call, make: Callable[[], object], *, joins: bool) -> DeferredRows:
    """What stands for rows of edges while the layer runs.

    ``make`` computes them; messages do where it ``joins`` them.
    """
    rows = DeferredRows.of(layer, call, make, joins=joins)
    asker = _running.askers[-1]
    asker.deferred = [*asker.deferred, weakref.ref(rows)]
    return rows


def _asking(theirs: FunctionType) -> Method:
    def choose(edge_index: object, args: tuple[object, ...], named: dict[str, object]) -> object:
        if torch.compiler.is_dynamo_compiling() or not _is_strided(edge_index):
            return theirs(edge_index, *args, **named)
        asker = _running.askers[-1] if _running.askers else _Asker(is_everywhere())
        if not asker.is_accelerated:
            return theirs(edge_index, *args, **named)
        out = derive(theirs, edge_index, args, named)
        shared = [one for one in leaves_of(out) if isinstance(one, Tensor) and not one.requires_grad]
        asker.given = [*asker.given, *(one for one in shared if one is not edge_index)]
        return _own(out, asker.given) if asker.writes else out

    def function(edge_index: object, *args: object, **named: object) -> object:
        return choose(edge_index, args, named)

    return in_place_of(theirs, function)


def _is_strided(value: object) -> TypeGuard[Tensor]:
    return isinstance(value, Tensor) and value.layout == torch.strided


def _own(out: T, shared: Sequence[Tensor]) -> T:
    """With copies in place of what others are given, too, whose topologies are those of the originals."""
    originals = {storage_key(one): one for one in shared}

    def own(leaf: object) -> object:
        if not _is_strided(leaf):
            return leaf
        original = originals.get(storage_key(leaf))
        if original is None:
            return leaf
        copy = leaf.clone()
        if leaf is original:
            share_topologies(original, copy)
        return copy

    return map_leaves(out, own)
