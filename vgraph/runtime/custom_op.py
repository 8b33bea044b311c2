"""Custom operators: what ``torch.compile`` sees of a captured function, one operator for all.

Takes: the key of a captured function, a topology's handle, tensors. Gives: its outputs. Runs at every step.
Backward is the same operator at the next level: the key says of what it is the derivative.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from vgraph.errors import FunctionError
from vgraph.ir.topology import Topology, topology_of
from vgraph.runtime.autograd import Derivation, Step, cotangent_name


@dataclass(frozen=True)
class Rows:
    """What an output looks like: one row an edge or one a vertex, of this shape and dtype."""

    per_edge: bool
    row_shape: tuple[int, ...]
    dtype: torch.dtype


class Callee(Protocol):
    """A captured function as the operator calls it."""

    names: tuple[str, ...]  # of its inputs
    outputs: tuple[Rows, ...]
    states: tuple[Rows, ...]  # what a derivative reads beside the inputs, as rows lie

    def evaluate(
        self, derivation: Derivation, names: tuple[str, ...], tensors: Sequence[Tensor], topology: Topology, seed: Any
    ) -> list[Tensor | None]:
        """The outputs of a level; of the function itself, also its states."""
        ...


_MOST_CALLEES = 4096
_callees: OrderedDict[str, Callee] = OrderedDict()


def register(key: str, callee: Callee) -> None:
    """Lets the operator find a function; the same key means the same function in every process."""
    _callees.setdefault(key, callee)
    if len(_callees) > _MOST_CALLEES:
        _callees.popitem(last=False)


def known(key: str) -> bool:
    """Whether a function of this key was registered."""
    return key in _callees


# ---------------------------------------------------------------- keys
def _key_of(key: str, cotangents: Sequence[int], wrt: Sequence[int]) -> str:
    """The key of a derivative: cotangents of these outputs, gradients of inputs at these places."""
    return f"{key}|{','.join(map(str, cotangents))}>{','.join(map(str, wrt))}"


def _parse(key: str) -> tuple[Callee, Derivation]:
    base, *steps = key.split("|")
    callee = _callees.get(base)
    if callee is None:
        raise FunctionError(
            "a compiled function calls a vertex or message function that this process has not captured",
            cure="compile the model again in this process: torch.compiler.reset()",
        )
    derivation: Derivation = ()
    for step in steps:
        given, wrt = ([int(number) for number in part.split(",") if number] for part in step.split(">"))
        names = _names(callee, derivation)
        derivation = (*derivation, Step(tuple(given), tuple(names[i] for i in wrt)))
    return callee, derivation


def _names(callee: Callee, derivation: Derivation) -> tuple[str, ...]:
    """Of all inputs of a level: the function's, its states, then cotangents level by level."""
    names = list(callee.names)
    if derivation:
        names += [f"state0:{i}" for i in range(len(callee.states))]
    for level, step in enumerate(derivation, 1):
        names += [cotangent_name(level, i, level == 1 and i >= len(callee.outputs)) for i in step.cotangents]
    return tuple(names)


# ---------------------------------------------------------------- the operators
_SCHEMA = "(str key, Tensor handle, SymInt num_dst, SymInt num_edges, Tensor? seed, Tensor[] tensors) -> Tensor[]"


@torch.library.custom_op("vgraph::call", mutates_args=(), schema=_SCHEMA)
def call(
    key: str, handle: Tensor, num_dst: int, num_edges: int, seed: Tensor | None, tensors: Sequence[Tensor]
) -> list[Tensor]:
    """One level of a captured function, on the topology of this handle."""
    callee, derivation = _parse(key)
    names = _names(callee, derivation)
    with torch.no_grad():
        found = callee.evaluate(derivation, names, tensors, topology_of(handle), seed)
        if not derivation:
            return [_owned(t, tensors) for t in found if t is not None]
        by_name = dict(zip(names, tensors, strict=True))
        wanted = [by_name[name] for name in derivation[-1].wrt]
        return [w.new_zeros(w.shape) if t is None else _owned(t, tensors) for t, w in zip(found, wanted, strict=True)]


def _owned(found: Tensor, given: Sequence[Tensor]) -> Tensor:
    """Dense memory of its own: an operator's result may not be one of its arguments."""
    found = found.contiguous()
    at = found.untyped_storage().data_ptr()
    return found.clone() if any(tensor.untyped_storage().data_ptr() == at for tensor in given) else found


@call.register_fake
def _fake(
    key: str, handle: Tensor, num_dst: int, num_edges: int, seed: Tensor | None, tensors: Sequence[Tensor]
) -> list[Tensor]:
    callee, derivation = _parse(key)
    if derivation:
        by_name = dict(zip(_names(callee, derivation), tensors, strict=True))
        wanted = [by_name[name] for name in derivation[-1].wrt]
        return [w.new_empty(w.shape) for w in wanted]
    sizes, like = (num_dst, num_edges), (tensors[0] if tensors else handle)
    return [
        like.new_empty((sizes[rows.per_edge], *rows.row_shape), dtype=rows.dtype)
        for rows in (*callee.outputs, *callee.states)
    ]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Sequence[Tensor]) -> None:
    key, handle, num_dst, num_edges, seed, tensors = inputs
    callee, derivation = _parse(key)
    states = () if derivation else output[len(callee.outputs) :]
    ctx.key, ctx.sizes, ctx.has_seed = key, (num_dst, num_edges), seed is not None
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(handle, *([seed] if seed is not None else ()), *tensors, *states)


def _backward(ctx: Any, grads: Sequence[Tensor | None]) -> Any:
    callee, derivation = _parse(ctx.key)
    if derivation and callee.states:
        raise FunctionError(
            "a second derivative is asked of a compiled vertex function",
            cure="call the function outside torch.compile",
        )
    handle, *saved = ctx.saved_tensors
    seed = saved.pop(0) if ctx.has_seed else None
    names, needs = _names(callee, derivation), ctx.needs_input_grad[5]
    wrt = [i for i, needed in enumerate(needs) if needed]
    given = {i: grad for i, grad in enumerate(grads) if grad is not None}
    found: list[Tensor | None] = [None] * len(names)
    if given:
        key = _key_of(ctx.key, tuple(given), wrt)
        made = call(key, handle, *ctx.sizes, seed, [*saved, *given.values()])
        for i, grad in zip(wrt, made, strict=True):
            found[i] = grad
    return None, None, None, None, None, found


call.register_autograd(_backward, setup_context=_setup)


@torch.library.custom_op("vgraph::degrees", mutates_args=(), schema="(Tensor handle, bool out, SymInt num) -> Tensor")
def degrees(handle: Tensor, out: bool, num: int) -> Tensor:
    """In- or out-degrees of every vertex, (num,) int64."""
    topology = topology_of(handle)
    return (topology.out_degrees if out else topology.in_degrees).clone()


@degrees.register_fake
def _fake_degrees(handle: Tensor, out: bool, num: int) -> Tensor:
    return handle.new_empty((num,), dtype=torch.int64)


@torch.library.custom_op(
    "vgraph::groups", mutates_args=(), schema="(Tensor handle, bool of_edges, SymInt num) -> (Tensor, Tensor)"
)
def groups(handle: Tensor, of_edges: bool, num: int) -> tuple[Tensor, Tensor]:
    """The graphs of a batch as groups of their vertices, or edges: their handle, and the graph of each, (num,)."""
    made = topology_of(handle).groups(of_edges)
    found = made.handle.clone()
    vars(found)["topology"] = made
    return found, made.dst.clone()


@groups.register_fake
def _fake_groups(handle: Tensor, of_edges: bool, num: int) -> tuple[Tensor, Tensor]:
    return torch.empty_like(handle), handle.new_empty((num,), dtype=torch.int64)
