"""Layers whose propagate is captured: all of a model, or all of the process for a while; samplers likewise.

Takes: a model, a loader. Gives: the same. Runs once per class of layers; the switch is read at every call.
"""

from __future__ import annotations

import importlib
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from functools import wraps
from types import FunctionType
from typing import TypeVar

import torch
from torch import nn

from vgraph.compat.pyg.askers import install_askers, install_call
from vgraph.compat.pyg.layer_types import Given, Layer, Method, in_place_of, is_of_pyg, module_of
from vgraph.compat.pyg.linear import install_linear
from vgraph.compat.pyg.propagate import run
from vgraph.compat.pyg.relations import install_relations
from vgraph.compat.pyg.samplers import accelerate_samplers, install_samplers
from vgraph.compat.pyg.switch import everywhere, is_accelerated, switch_on
from vgraph.compiled_calls import compiled_calls
from vgraph.errors import FunctionError

Model = TypeVar("Model", bound=nn.Module | Iterable[object])
_METHODS = {"propagate": ("propagate", "_jinja_propagate"), "edge_updater": ("edge_updater", "_jinja_edge_updater")}


def message_passing() -> type[nn.Module]:
    """PyG's class of layers.

    Raises:
        FunctionError: PyG is not installed.
    """
    try:
        return importlib.import_module("torch_geometric.nn").MessagePassing
    except ImportError as error:
        raise FunctionError("torch_geometric is not installed", cure="pip install torch_geometric") from error


def accelerate(model: Model) -> Model:
    """Runs every ``torch_geometric.nn.MessagePassing`` of a model on vgraph's kernels, which store no message.

    Parameters, ``state_dict``, hooks and ``repr`` stay as they are, and so do results. Copies of the model are
    accelerated, too; a model that another process has loaded is, once it is passed here again. What cannot be captured
    runs as PyG runs it, and one line of the logger ``vgraph`` names the layer and the reason.

    A loader of PyG's (``NeighborLoader``, ``LinkNeighborLoader``) draws by vgraph's sampler from then on, where PyG
    would ask for pyg-lib or torch-sparse and they are not installed.

    Args:
        model: a module with layers of PyG anywhere in it; a layer itself; a loader of PyG's.

    Returns:
        The same model or loader.

    Raises:
        FunctionError: PyG is not installed; ``model`` is neither a module nor a loader of PyG's that samples.

    Source: Fey and Lenssen 2019 (PyG), ``torch_geometric.nn.MessagePassing``.

    Example:
        >>> import torch, vgraph
        >>> from torch_geometric.nn import GCNConv  # doctest: +SKIP
        >>> model = vgraph.accelerate(GCNConv(16, 32))  # doctest: +SKIP
    """
    base = message_passing()
    _install(base)
    if not isinstance(model, nn.Module):
        accelerate_samplers(model)
        return model
    for layer in model.modules():
        if isinstance(layer, base):
            switch_on(layer)
            if not layer.explain and layer.decomposed_layers == 1:
                layer.__dict__.pop("propagate", None)  # PyG's own, which it leaves there after an explanation
    return model


@contextmanager
def accelerated() -> Generator[None]:
    """While it lasts, every ``MessagePassing`` and sampler of the process runs as ``vgraph.accelerate`` makes it.

    Samplers that are made meanwhile need neither pyg-lib nor torch-sparse: ``HGTLoader``, and ``NeighborLoader`` with
    weights or times of edges, ask for these when they are made.

    Raises:
        FunctionError: PyG is not installed.

    Source: Fey and Lenssen 2019 (PyG), ``torch_geometric.nn.MessagePassing``.

    Example:
        >>> import vgraph.compat.pyg
        >>> with vgraph.compat.pyg.accelerated():  # doctest: +SKIP
        ...     train()
    """
    _install(message_passing())
    with everywhere():
        yield


# ---------------------------------------------------------------- PyG's methods
def _install(base: type[nn.Module]) -> None:
    """Lets methods of all layers, and of those whose class is made later, ask whether they are to be captured."""
    install_askers(base)
    install_linear()
    install_relations()
    install_samplers()
    make: Method = vars(base)["_set_jittable_templates"]
    if not hasattr(make, "__wrapped__"):

        @wraps(make)
        def make_and_wrap(self: nn.Module, *args: object, **named: object) -> None:
            make(self, *args, **named)
            _wrap(type(self))

        setattr(base, make.__name__, make_and_wrap)
    classes: list[type] = [base]
    for kind in classes:  # grows meanwhile
        _wrap(kind)
        classes += [below for below in kind.__subclasses__() if below not in classes]


def _wrap(kind: type) -> None:
    """PyG's own methods; one that a user has written calls them, if it does."""
    install_call(kind)
    for which, names in _METHODS.items():
        for name in names:
            theirs = vars(kind).get(name)
            if theirs is not None and (is_of_pyg(theirs) or module_of(theirs).startswith(_made_for(kind))):
                if not hasattr(theirs, "__wrapped__"):
                    setattr(kind, name, _choosing(which, theirs))


def _made_for(kind: type) -> str:
    """What the modules are called that PyG prints for a class."""
    return f"{kind.__module__}_{kind.__name__}"


def _choosing(which: str, theirs: FunctionType) -> Method:
    def choose(layer: Layer, edge_index: object, args: tuple[object, ...], given: Given) -> object:
        if args or not is_accelerated(layer):
            return theirs(layer, edge_index, *args, **given)
        if not torch.compiler.is_dynamo_compiling():
            return run(layer, which, theirs, edge_index, given)
        if torch.compiler.is_exporting():
            return theirs(layer, edge_index, **given)
        return compiled_calls.outside(run, layer, which, theirs, edge_index, given)

    def method(self: Layer, edge_index: object, *args: object, **given: object) -> object:
        return choose(self, edge_index, args, given)

    return in_place_of(theirs, method)
