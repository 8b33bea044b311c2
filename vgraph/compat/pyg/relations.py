"""RGCNConv's sums over relations: rows are mapped before they are summed, so that nothing is kept for the backward.

Takes: a layer and what its forward was given. Gives: what PyG's forward gives. Runs at every call.
Source: Schlichtkrull et al. 2018, equation 2; PyG, ``torch_geometric.nn.RGCNConv``.

PyG maps the sum of each relation, and keeps that sum for the gradient of the relation's matrix. Sums and means are
linear: of mapped rows they give the same. The gradient of the matrix then takes the rows that the layer was given, and
each relation's rows use the memory of those of the relation before.
"""

from __future__ import annotations

import importlib
from types import FunctionType, ModuleType
from typing import Protocol, cast

import torch
from torch import Tensor

from vgraph.api.linear import linear
from vgraph.api.messages.indexed import is_plain_tensor
from vgraph.capture.errors import CaptureError
from vgraph.capture.record.modes import autocast_kind
from vgraph.compat.pyg.by_relation import edges_by_relation
from vgraph.compat.pyg.layer_types import Layer, Method, in_place_of
from vgraph.compat.pyg.propagate import check_unseen, run
from vgraph.compat.pyg.switch import is_accelerated

_LINEAR = ("mean", "add", "sum")  # aggregations


class _RelationalLayer(Layer, Protocol):
    """An ``RGCNConv``."""

    aggr: object
    weight: Tensor
    comp: Tensor | None
    root: Tensor | None
    bias: Tensor | None
    num_relations: int
    num_blocks: int | None
    in_channels_l: int
    out_channels: int

    def propagate(self, edge_index: Tensor, **given: object) -> Tensor: ...


def install_relations() -> None:
    """Lets ``RGCNConv`` ask whether it is accelerated; what a user makes of that class runs as it is written."""
    kind = _home().RGCNConv
    if not hasattr(kind.forward, "__wrapped__"):
        kind.forward = _choosing(kind, kind.forward)


def _home() -> ModuleType:
    return importlib.import_module("torch_geometric.nn.conv.rgcn_conv")


def _choosing(kind: type[object], theirs: FunctionType) -> Method:
    def choose(layer: _RelationalLayer, x: object, edge_index: object, edge_type: object) -> object:
        both = cast("tuple[object, ...]", x) if isinstance(x, tuple) else (x, x)
        given = (*both, edge_index, edge_type)
        if type(layer) is not kind or not is_accelerated(layer) or not all(map(is_plain_tensor, given)):
            return theirs(layer, x, edge_index, edge_type)
        tensors = cast("tuple[Tensor, Tensor, Tensor, Tensor]", given)
        if torch.compiler.is_dynamo_compiling() or not _may_map_first(layer, *tensors):
            return theirs(layer, x, edge_index, edge_type)
        out = _sum(layer, *tensors)
        return theirs(layer, x, edge_index, edge_type) if out is None else out

    def forward(self: _RelationalLayer, x: object, edge_index: object, edge_type: object = None) -> object:
        return choose(self, x, edge_index, edge_type)

    return in_place_of(theirs, forward)


def _may_map_first(layer: _RelationalLayer, x_l: Tensor, x_r: Tensor, edge_index: Tensor, edge_type: Tensor) -> bool:
    """Whether sums are linear and mapped rows no wider than those given, and PyG would go relation by relation."""
    if edge_type.shape != edge_index.shape[1:] or edge_index.shape[0] != 2 or edge_type.dtype != torch.int64:
        return False  # PyG says what is wrong
    if edge_index.dtype not in (torch.int64, torch.int32):
        return False  # and that these are no ids
    if layer.aggr not in _LINEAR or layer.num_blocks is not None or layer.out_channels > layer.in_channels_l:
        return False
    if edge_index.layout != torch.strided or edge_index.is_meta or "propagate" in vars(layer):
        return False
    if torch.is_autocast_enabled(autocast_kind(x_l.device)):
        return False
    if importlib.import_module("torch_geometric.typing").WITH_SEGMM:
        return False
    try:
        check_unseen(layer, "propagate")
    except CaptureError:
        return False
    widest = torch.promote_types(torch.get_default_dtype(), x_l.dtype)  # PyG's sum begins with the default
    return x_l.dim() == x_r.dim() == 2 and x_l.dtype == x_r.dtype == layer.weight.dtype == widest


def _sum(layer: _RelationalLayer, x_l: Tensor, x_r: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor | None:
    """None: some edge is of no relation, which is for PyG to say."""
    root, bias, size = layer.root, layer.bias, (x_l.shape[0], x_r.shape[0])
    all_edges = edges_by_relation(edge_index, edge_type, layer.num_relations, max(size))
    if all_edges is None:
        return None
    out = x_r.new_zeros(size[1], layer.out_channels) if root is None else linear(x_r, root.t(), bias)
    for weight, edges in zip(_matrices(layer), all_edges, strict=True):
        given = {"x": linear(x_l, weight.t()), "edge_type_ptr": None, "size": size}
        out.add_(cast("Tensor", run(layer, "propagate", _by_pyg, edges, given)))
    return out if bias is None or root is not None else out + bias


def _by_pyg(layer: _RelationalLayer, edges: Tensor, **given: object) -> Tensor:
    """PyG's own way, which takes long ids."""
    return layer.propagate(edges.long(), **given)


def _matrices(layer: _RelationalLayer) -> Tensor:
    """Of every relation, (relations, in, out); sums of bases where the layer has them."""
    if layer.comp is None:
        return layer.weight
    return (layer.comp @ layer.weight.flatten(1)).view(-1, *layer.weight.shape[1:])
