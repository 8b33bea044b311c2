"""Sequential: layers on a graph and modules of rows one after the other; what follows a layer row by row ends its loop.

Takes: modules, a graph, features. Gives: what the last module gives. Runs at every call.
Source: DGL 1.1, ``dgl.nn.Sequential``.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any

import torch
from torch import nn

import vgraph
from vgraph.errors import FunctionError
from vgraph.nn import signatures
from vgraph.nn.hooks import is_plain
from vgraph.nn.inputs import check_graph
from vgraph.nn.propagate import OfRows, in_turn

_ACTIVATIONS = (
    "CELU ELU GELU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU LogSigmoid Mish ReLU ReLU6 SELU SiLU Sigmoid "
    "Softplus Softshrink Softsign Tanh Tanhshrink Threshold"
).split()
_OTHERS = ("Dropout", "Identity", "LayerNorm", "Linear", "RMSNorm")
_BY_ROW = frozenset(getattr(nn, name) for name in (*_ACTIVATIONS, *_OTHERS))


class Sequential(nn.Sequential):
    """Layers one after the other, all on one graph, or each on its own of a list; between them modules of rows alone.

    It is made as ``torch.nn.Sequential`` is: of modules, or of an ordered dict of them. A module gets the graph first
    if its ``forward`` needs one argument more than there are features; if that argument may be left out, its first
    parameter tells, by its annotation or as it is called (``g``, ``graph``, ``block``; ``x``, ``h``, ``feat``);
    modules of torch get features alone, and wrappers (``*args``) what their only child gets.

    Activations, ``Dropout``, ``LayerNorm``, ``RMSNorm`` and ``Linear`` of torch that follow a layer directly are
    passed to it as ``then``, if its ``forward`` has such a parameter: they end its loop, as its own activation does,
    and numbers that they draw are drawn row by row. Modules with hooks, or that write in place, are called as they
    stand.

    Source: DGL 1.1, ``dgl.nn.Sequential``.

    Example:
        >>> import torch, vgraph
        >>> from torch import nn
        >>> from vgraph.nn import GraphConv, Sequential
        >>> net = Sequential(GraphConv(2, 3), nn.ReLU(), nn.Dropout(0.5), GraphConv(3, 4))
        >>> net(vgraph.graph(([0, 1], [1, 0])), torch.ones(2, 2)).shape
        torch.Size([2, 4])
    """

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, graph: vgraph.Graph | list[vgraph.Graph], *feats: Any, then: OfRows | None = None
    ) -> Any:
        """What the last module gives.

        Args:
            graph: a graph, or a list of one for each module that gets a graph; where the list ends, so does the call.
            *feats: what the first module takes; every other one takes what the one before gave.
            then: a function of the result's rows, row by row, in the last layer's loop; None: none.

        Returns:
            What the last module gives: a tensor, or a tuple of them.

        Raises:
            FunctionError: it is called without a graph; it cannot be told whether a module gets the graph; torch's own
                Sequential stands around a layer.
        """
        for one in graph if isinstance(graph, list) else (graph,):
            check_graph(self, one)
        graphs = iter(graph) if isinstance(graph, list) else repeat(graph)
        runs = list(_runs(list(self)))
        for number, (module, behind) in enumerate(runs):
            end, given = in_turn(*behind), feats
            if gets_graph(module, len(feats)):
                one = next(graphs, None)
                if one is None:
                    break
                given = (one, *feats)
            if then is not None and number + 1 == len(runs) and _ends_in_loop(module):
                end, then = in_turn(end, then), None
            found = module(*given) if end is None else module(*given, then=end)
            feats = found if isinstance(found, tuple) else (found,)
        feats = feats if then is None else (then(*feats),)
        return feats[0] if len(feats) == 1 else feats


def _runs(modules: list[nn.Module]) -> Iterator[tuple[nn.Module, list[nn.Module]]]:
    """Modules that are called, each with those that end its loop."""
    while modules:
        module, *modules = modules
        behind: list[nn.Module] = []
        while modules and _ends_in_loop(module) and is_by_row(modules[0]):
            behind.append(modules.pop(0))
        yield module, behind


def _ends_in_loop(layer: nn.Module) -> bool:
    """Whether a layer takes what follows it, and nobody else waits for its own result."""
    return _has_then(type(layer)) and is_plain(layer)


def is_by_row(module: nn.Module) -> bool:
    """Whether a module of torch computes every row by itself, and calling it does nothing else."""
    if type(module) is nn.Sequential:
        return is_plain(module) and all(is_by_row(inner) for inner in module)
    if type(module) not in _BY_ROW or getattr(module, "inplace", False):
        return False
    if isinstance(module, (nn.LayerNorm, nn.RMSNorm)) and len(module.normalized_shape) > 1:
        return False  # one dim may be that of all rows
    return is_plain(module)


def gets_graph(module: nn.Module, num_feats: int) -> bool:
    """Whether a module is called with a graph before its features.

    FunctionError: its ``forward`` does not tell; it is torch's Sequential, which would not pass the graph on.
    """
    if type(module) is nn.Sequential:
        layers = [type(inner).__name__ for inner in module if _manner(type(inner), 1) == "graph"]
        if layers:
            fact = f"torch's Sequential within vgraph's does not give {layers[0]} the graph"
            raise FunctionError(fact, cure="write vgraph.nn.Sequential(...) for the inner one, too")
    manner = _manner(type(module), num_feats)
    if manner == "child":
        children = list(module.children())
        if len(children) == 1:
            return gets_graph(children[0], num_feats)
        manner = ""
    if not manner:
        name = type(module).__name__
        raise FunctionError(
            f"Sequential cannot tell whether {name}, which {num_feats} features reach, gets the graph",
            cure=f"let {name}.forward take (graph, x, ...) or (x, ...), its first parameter called so",
        )
    return manner == "graph"


def _manner(kind: type[nn.Module], num_feats: int) -> str:
    if torch.compiler.is_dynamo_compiling():
        from vgraph.nn import traced_signatures

        return traced_signatures.manner(kind, num_feats)
    return signatures.manner(kind, num_feats)


def _has_then(kind: type[nn.Module]) -> bool:
    if torch.compiler.is_dynamo_compiling():
        from vgraph.nn import traced_signatures

        return traced_signatures.has_then(kind)
    return signatures.has_then(kind)
