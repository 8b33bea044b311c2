"""PyG's samplers and loaders where pyg-lib or torch-sparse is missing: vgraph's own take the place of what these have.

Takes: PyG's classes. Gives: the same, which choose. Installed once per process; the switch is read at every call.
Their methods see, under acceleration, another ``torch.ops``; nobody else does, and nothing that is installed is hidden.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import wraps
from types import FunctionType, SimpleNamespace
from typing import Protocol, cast

import torch

from vgraph.compat.pyg import adjacency, operators
from vgraph.compat.pyg.clusters import metis
from vgraph.compat.pyg.hgt import hgt_sample
from vgraph.compat.pyg.layer_types import Method
from vgraph.compat.pyg.switch import is_accelerated, is_everywhere, switch_on
from vgraph.errors import FunctionError

_SAMPLERS = {"NeighborSampler": ("__init__", "_sample")}
_OF_TORCH_SPARSE = {"HGTSampler": ("__init__", "sample_from_nodes")}  # asks for it where it is made, and never again
_LOADERS = {  # those that are made under acceleration keep to it, as does the sampler above
    "NeighborSampler": ("__init__",),
    "ClusterData": ("_metis",),
    "GraphSAINTSampler": ("__init__",),
    "ShaDowKHopSampler": ("__init__", "__collate__"),
}
_OPERATORS = {  # by the package that has them
    "pyg": {
        "neighbor_sample": operators.neighbor_sample,
        "hetero_neighbor_sample": operators.hetero_neighbor_sample,
    },
    "torch_sparse": {
        "neighbor_sample": operators.induced_neighbor_sample,
        "hetero_neighbor_sample": operators.induced_hetero_neighbor_sample,
        "hgt_sample": hgt_sample,
        "ego_k_hop_sample_adj": adjacency.ego_k_hop_sample_adj,
        "ptr2ind": adjacency.ptr2ind,
    },
}
_NAMES: dict[str, dict[str, object]] = {  # what of a package is called by its own name
    "pyg": {"pyg_lib": SimpleNamespace(partition=SimpleNamespace(metis=metis))},
    "torch_sparse": {"SparseTensor": adjacency.Adjacency},
}
_FLAGS = {
    "pyg": ("WITH_PYG_LIB", "WITH_EDGE_TIME_NEIGHBOR_SAMPLE", "WITH_WEIGHTED_NEIGHBOR_SAMPLE", "WITH_METIS"),
    "torch_sparse": ("WITH_TORCH_SPARSE",),
}


class _Typing(Protocol):
    """``torch_geometric.typing``."""

    WITH_PYG_LIB: bool
    WITH_TORCH_SPARSE: bool


class _WithNames:
    """A module in which some names are others."""

    def __init__(self, module: object, names: dict[str, object]) -> None:
        self._module = module
        vars(self).update(names)

    def __getattr__(self, name: str) -> object:
        return getattr(self._module, name)


def install_samplers() -> None:
    """Lets PyG's samplers ask whether they are accelerated, where a package is missing that they call."""
    missing = _missing()
    if not missing:
        return
    names = _names(missing)
    _install("torch_geometric.sampler", _SAMPLERS, names, stays=False)
    _install("torch_geometric.sampler", _OF_TORCH_SPARSE, names, stays=True)
    _install("torch_geometric.loader", _LOADERS, names, stays=True)


def _install(module: str, chosen: Mapping[str, tuple[str, ...]], names: dict[str, object], *, stays: bool) -> None:
    for name, methods in chosen.items():
        kind: type = getattr(importlib.import_module(module), name)
        if "__reduce_ex__" in vars(kind):
            continue
        setattr(kind, "__reduce_ex__", _reduce)  # noqa: B010 (PyG has none)
        for method in methods:
            setattr(kind, method, _choosing(vars(kind)[method], names, stays=stays))


def accelerate_samplers(loader: object) -> None:
    """Those that a loader draws from.

    Raises:
        FunctionError: it has none.
    """
    base: type = importlib.import_module("torch_geometric.sampler").BaseSampler
    samplers = [value for value in getattr(loader, "__dict__", {}).values() if isinstance(value, base)]
    if not samplers:
        fact = f"{type(loader).__name__} is neither a module nor a loader of PyG's that samples"
        raise FunctionError(fact, cure="pass a model, or a NeighborLoader")
    for sampler in samplers:
        switch_on(sampler)


def _missing() -> list[str]:
    typing = cast("_Typing", importlib.import_module("torch_geometric.typing"))
    has = {"pyg": typing.WITH_PYG_LIB, "torch_sparse": typing.WITH_TORCH_SPARSE}
    return [package for package in _OPERATORS if not has[package]]


def _names(missing: list[str]) -> dict[str, object]:
    """What samplers' methods find under the names that lead to packages."""
    flags: dict[str, object] = {flag: True for package in missing for flag in _FLAGS[package]}
    operators_of: dict[str, object] = {package: SimpleNamespace(**_OPERATORS[package]) for package in missing}
    theirs = importlib.import_module("torch_geometric")
    typing = _WithNames(importlib.import_module("torch_geometric.typing"), flags)
    return {
        **{name: value for package in missing for name, value in _NAMES[package].items()},
        **flags,
        "torch": _WithNames(torch, {"ops": _WithNames(torch.ops, operators_of)}),
        "torch_geometric": _WithNames(theirs, {"typing": typing}),
    }


def _choosing(theirs: FunctionType, names: dict[str, object], *, stays: bool) -> Method:
    table = {**theirs.__globals__, **names}
    ours = FunctionType(theirs.__code__, table, theirs.__name__, theirs.__defaults__, theirs.__closure__)
    ours.__kwdefaults__ = theirs.__kwdefaults__

    @wraps(theirs)
    def method(self: object, *args: object, **named: object) -> object:
        if not is_accelerated(self):
            return theirs(self, *args, **named)
        if stays:
            switch_on(self)
        return ours(self, *args, **named)

    return method


# ---------------------------------------------------------------- processes
def _reduce(sampler: object, protocol: int) -> object:
    """One that is accelerated is so in the process it is sent to, too: a loader's workers may be new ones."""
    if not is_accelerated(sampler):
        return object.__reduce_ex__(sampler, protocol)
    return _restored, (type(sampler),), vars(sampler)  # by itself: a loader's functions lead back to it


def _restored(kind: Callable[[], object]) -> object:
    install_samplers()
    sampler: object = object.__new__(kind)  # type: ignore[arg-type]
    if not is_everywhere():
        switch_on(sampler)
    return sampler
