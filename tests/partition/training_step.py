"""A whole training step of a small model as a dense Program, and any legal plan for it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx

from vgraph.ir.program import SHARED, Input, Op, Program, Value, map_leaves


def step_of(model: nn.Module, *batch: Tensor) -> tuple[Program, list[Tensor]]:
    """inputs: parameters, batch; outputs: loss, gradients."""
    names = [name for name, _ in model.named_parameters()]
    params = [p.detach().clone() for p in model.parameters()]

    def step(*given: Tensor) -> list[Tensor]:
        leaves = [g.detach().requires_grad_() for g in given[: len(names)]]
        loss = functional_call(model, dict(zip(names, leaves, strict=True)), given[len(names) :])
        return [loss, *torch.autograd.grad(loss, leaves)]

    from torch._decomp import core_aten_decompositions

    traced = make_fx(step, decomposition_table=core_aten_decompositions())(*params, *batch)
    return from_graph(traced.graph, [f"p{i}" for i in range(len(params))] + [f"x{i}" for i in range(len(batch))]), [
        *params,
        *batch,
    ]


def from_graph(graph: Any, names: list[str]) -> Program:
    values: dict[Any, Any] = {}
    inputs: list[Input] = []
    ops: list[Op] = []
    outputs: tuple[Any, ...] = ()
    count = iter(range(1_000_000))

    def new(tensor: Tensor) -> Value:
        return Value(next(count), SHARED, tensor.dtype, tuple(tensor.shape))

    def swap(leaf: Any) -> Any:
        return values[leaf] if isinstance(leaf, torch.fx.Node) else leaf

    import operator

    graph.eliminate_dead_code()
    for item in graph.nodes:
        if item.op == "placeholder":
            values[item] = new(item.meta["val"])
            inputs.append(Input(values[item], names[len(inputs)]))
        elif item.op == "call_function" and item.target is operator.getitem:
            values[item] = values[item.args[0]][item.args[1]]
        elif item.op == "call_function":
            meta = item.meta["val"]
            made = (
                [new(m) if m is not None else Value(next(count), SHARED, torch.float32, (0,)) for m in meta]
                if isinstance(meta, (tuple, list))
                else [new(meta)]
            )
            args = map_leaves(tuple(item.args), swap)
            kwargs = {k: map_leaves(v, swap) for k, v in item.kwargs.items()}
            ops.append(Op(item.target, args, kwargs, tuple(made), returns_sequence=isinstance(meta, (tuple, list))))
            values[item] = made if isinstance(meta, (tuple, list)) else made[0]
        elif item.op == "output":
            outputs = tuple(swap(a) for a in item.args[0])
    return Program("step", tuple(inputs), tuple(ops), outputs)


def evaluate(program: Program, inputs: list[Tensor]) -> list[Tensor]:
    """What one process computes."""
    env = {given.value.id: tensor for given, tensor in zip(program.inputs, inputs, strict=True)}

    def swap(leaf: Any) -> Any:
        return env[leaf.id] if isinstance(leaf, Value) else leaf

    for op in program.ops:
        found = op.target(*map_leaves(op.args, swap), **{k: map_leaves(v, swap) for k, v in op.kwargs.items()})
        env.update((v.id, t) for v, t in zip(op.results, found if op.returns_sequence else (found,), strict=True))
    return [env[v.id] for v in program.outputs if v is not None]
