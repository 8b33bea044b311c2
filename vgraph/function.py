"""Built-in messages and reductions, written as a user would write them.

Takes: names of features. Gives: functions of edges or nodes for ``g.update_all``. Runs at every call.
Source: DGL section 3 (its built-ins are a second language; here they are ordinary functions).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vgraph.errors import ShapeError

Message = Callable[[Any], dict[str, Tensor]]
Reduce = Callable[[Any], dict[str, Tensor]]


def copy_u(u: str, out: str) -> Message:
    """Sends the source's feature as a message.

    Args:
        u: the name of a feature of the sources.
        out: the name of the message.

    Returns:
        A function of edges for ``Graph.update_all`` and its relatives; messages are (edges, ...), as the feature.

    Source: DGL 1.1, ``dgl.function.copy_u``.

    Example:
        >>> import torch, vgraph, vgraph.function as fn
        >>> g = vgraph.graph(([0, 1], [2, 2]))
        >>> g.ndata["h"] = torch.tensor([[1.0], [2.0], [0.0]])
        >>> g.update_all(fn.copy_u("h", "m"), fn.sum("m", "s"))
        >>> g.ndata["s"].squeeze(1)
        tensor([0., 0., 3.])
    """
    return lambda edges: {out: edges.src[u]}


def copy_e(e: str, out: str) -> Message:
    """Sends the edge's feature as a message.

    Args:
        e: the name of a feature of the edges.
        out: the name of the message.

    Returns:
        A function of edges for ``Graph.update_all`` and its relatives; messages are (edges, ...), as the feature.

    Source: DGL 1.1, ``dgl.function.copy_e``.

    Example:
        >>> import torch, vgraph, vgraph.function as fn
        >>> g = vgraph.graph(([0, 1], [2, 2]))
        >>> g.edata["w"] = torch.tensor([1.0, 5.0])
        >>> g.update_all(fn.copy_e("w", "m"), fn.sum("m", "s"))
        >>> g.ndata["s"]
        tensor([0., 0., 6.])
    """
    return lambda edges: {out: edges.data[e]}


_ENDS: dict[str, Callable[[Any], Any]] = {
    "u": lambda edges: edges.src,
    "v": lambda edges: edges.dst,
    "e": lambda edges: edges.data,
}


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(-1, keepdim=True) if a.dim() > 1 else a * b


_OPERATORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "dot": _dot,
}


def _aligned(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Rows stay first: a feature of lower rank gets its missing dims right after the rows."""
    while a.dim() < b.dim():
        a = a.unsqueeze(1)
    while b.dim() < a.dim():
        b = b.unsqueeze(1)
    return a, b


def _fit(a: Tensor, b: Tensor) -> bool:
    """Whether rows of the two can be joined number by number."""
    return all(m == n or 1 in (m, n) for m, n in zip(a.shape[:0:-1], b.shape[:0:-1], strict=False))


WORDS = {"u": "source", "v": "destination", "e": "edge"}
RESULTS = {
    "add": "the sum",
    "sub": "the difference",
    "mul": "the product",
    "div": "the quotient",
    "dot": "the dot product",
}
_MANUAL = """Sends {result} of the {left}'s feature and the {right}'s as a message.

Args:
    lhs_field: the name of a feature of the {left}s.
    rhs_field: the name of a feature of the {right}s.
    out: the name of the message.

Returns:
    A function of edges for ``Graph.update_all`` and its relatives; messages are (edges, ...). A feature of lower rank
    has its missing dims after the rows{width}.

Source: DGL 1.1, ``dgl.function.{name}``.

Example:
    >>> import torch, vgraph, vgraph.function as fn
    >>> g = vgraph.graph(([0], [1]))
    >>> g.ndata["h"], g.edata["w"] = torch.tensor([[6.0], [2.0]]), torch.tensor([[3.0]])
    >>> g.apply_edges(fn.{name}("{lhs}", "{rhs}", "m"))
    >>> round(g.edata["m"].item(), 4)
    {shown}
"""
EXAMPLE = {"u": 6.0, "v": 2.0, "e": 3.0}  # what the features of manuals are


def _manual(left: str, name: str, right: str) -> str:
    combine = operator.mul if name == "dot" else _OPERATORS[name]  # rows of one number
    number: Any = combine(EXAMPLE[left], EXAMPLE[right])  # type: ignore[arg-type]
    features = {"u": "h", "v": "h", "e": "w"}
    return _MANUAL.format(
        result=RESULTS[name],
        left=WORDS[left],
        right=WORDS[right],
        name=f"{left}_{name}_{right}",
        width="; the last dim of the result is 1, and of two numbers a row the product" if name == "dot" else "",
        lhs=features[left],
        rhs=features[right],
        shown=round(number, 4),
    )


def _binary(left: str, name: str, right: str) -> Callable[..., Message]:
    first, second, combine = _ENDS[left], _ENDS[right], _OPERATORS[name]

    def builtin(lhs_field: str, rhs_field: str, out: str) -> Message:
        return lambda edges: {
            out: combine(*joined(first(edges)[lhs_field], second(edges)[rhs_field], lhs_field, rhs_field))
        }

    def joined(a: Tensor, b: Tensor, lhs_field: str, rhs_field: str) -> tuple[Tensor, Tensor]:
        if not _fit(a, b):
            fact = f"{builtin.__name__} joins the {WORDS[left]}'s {lhs_field!r}, in rows of {tuple(a.shape[1:])}, "
            fact += f"and the {WORDS[right]}'s {rhs_field!r}, in rows of {tuple(b.shape[1:])}"
            raise ShapeError(fact, cure="make one as wide as the other, or 1 wide")
        return _aligned(a, b)

    builtin.__name__ = builtin.__qualname__ = f"{left}_{name}_{right}"
    builtin.__doc__ = _manual(left, name, right)
    return builtin


u_add_v, u_sub_v, u_mul_v, u_div_v, u_dot_v = (_binary("u", name, "v") for name in _OPERATORS)
u_add_e, u_sub_e, u_mul_e, u_div_e, u_dot_e = (_binary("u", name, "e") for name in _OPERATORS)
v_add_u, v_sub_u, v_mul_u, v_div_u, v_dot_u = (_binary("v", name, "u") for name in _OPERATORS)
v_add_e, v_sub_e, v_mul_e, v_div_e, v_dot_e = (_binary("v", name, "e") for name in _OPERATORS)
e_add_u, e_sub_u, e_mul_u, e_div_u, e_dot_u = (_binary("e", name, "u") for name in _OPERATORS)
e_add_v, e_sub_v, e_mul_v, e_div_v, e_dot_v = (_binary("e", name, "v") for name in _OPERATORS)


def _is_total(reduce: Reduce) -> Reduce:
    """Marks a reduction that gives 0 for no messages by itself: nothing need be masked."""
    reduce.is_total = True  # type: ignore[attr-defined]
    return reduce


def sum(msg: str, out: str) -> Reduce:
    """Adds up the messages of every node.

    Args:
        msg: the name of the message.
        out: the name of the feature that is set.

    Returns:
        A function of nodes for ``Graph.update_all`` and its relatives; 0 for a node without in-edges.

    Source: DGL 1.1, ``dgl.function.sum``.

    Example:
        >>> import torch, vgraph, vgraph.function as fn
        >>> g = vgraph.graph(([0, 1], [2, 2]))
        >>> g.ndata["h"] = torch.tensor([1.0, 3.0, 5.0])
        >>> g.update_all(fn.copy_u("h", "m"), fn.sum("m", "s"))
        >>> g.ndata["s"]
        tensor([0., 0., 4.])
    """
    return _is_total(lambda nodes: {out: nodes.mailbox[msg].sum(1)})


def mean(msg: str, out: str) -> Reduce:
    """Takes the mean of the messages of every node.

    Args:
        msg: the name of the message.
        out: the name of the feature that is set.

    Returns:
        A function of nodes for ``Graph.update_all`` and its relatives; 0 for a node without in-edges.

    Source: DGL 1.1, ``dgl.function.mean``.

    Example:
        >>> import torch, vgraph, vgraph.function as fn
        >>> g = vgraph.graph(([0, 1], [2, 2]))
        >>> g.ndata["h"] = torch.tensor([1.0, 3.0, 5.0])
        >>> g.update_all(fn.copy_u("h", "m"), fn.mean("m", "s"))
        >>> g.ndata["s"]
        tensor([0., 0., 2.])
    """
    return _is_total(lambda nodes: {out: nodes.mailbox[msg].mean(1)})


def max(msg: str, out: str) -> Reduce:
    """Takes the largest message of every node, elementwise, the first in edge order among equals.

    Args:
        msg: the name of the message.
        out: the name of the feature that is set.

    Returns:
        A function of nodes for ``Graph.update_all`` and its relatives; 0 for a node without in-edges.

    Source: DGL 1.1, ``dgl.function.max``.

    Example:
        >>> import torch, vgraph, vgraph.function as fn
        >>> g = vgraph.graph(([0, 1], [2, 2]))
        >>> g.ndata["h"] = torch.tensor([1.0, 3.0, 5.0])
        >>> g.update_all(fn.copy_u("h", "m"), fn.max("m", "s"))
        >>> g.ndata["s"]
        tensor([0., 0., 3.])
    """
    return _is_total(lambda nodes: {out: torch.max(nodes.mailbox[msg], 1).values})


def min(msg: str, out: str) -> Reduce:
    """Takes the smallest message of every node, elementwise, the first in edge order among equals.

    Args:
        msg: the name of the message.
        out: the name of the feature that is set.

    Returns:
        A function of nodes for ``Graph.update_all`` and its relatives; 0 for a node without in-edges.

    Source: DGL 1.1, ``dgl.function.min``.

    Example:
        >>> import torch, vgraph, vgraph.function as fn
        >>> g = vgraph.graph(([0, 1], [2, 2]))
        >>> g.ndata["h"] = torch.tensor([1.0, 3.0, 5.0])
        >>> g.update_all(fn.copy_u("h", "m"), fn.min("m", "s"))
        >>> g.ndata["s"]
        tensor([0., 0., 1.])
    """
    return _is_total(lambda nodes: {out: torch.min(nodes.mailbox[msg], 1).values})


def prod(msg: str, out: str) -> Reduce:
    """Multiplies the messages of every node, elementwise.

    Args:
        msg: the name of the message.
        out: the name of the feature that is set.

    Returns:
        A function of nodes for ``Graph.update_all`` and its relatives; 0 for a node without in-edges.

    Source: none (DGL had it before 1.0).

    Example:
        >>> import torch, vgraph, vgraph.function as fn
        >>> g = vgraph.graph(([0, 1], [2, 2]))
        >>> g.ndata["h"] = torch.tensor([2.0, 3.0, 5.0])
        >>> g.update_all(fn.copy_u("h", "m"), fn.prod("m", "s"))
        >>> g.ndata["s"]
        tensor([0., 0., 6.])
    """
    return lambda nodes: {out: nodes.mailbox[msg].prod(1)}
