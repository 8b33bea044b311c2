"""Dense ops: one op of a dense Program, run on tensors.

Takes: an Op, tensors by value id. Gives: its results. Runs at every step.
Source: random numbers are keyed by the position of an element in the whole tensor (docs/adr/0005).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from vgraph.ir.index_set import IndexSet
from vgraph.ir.moves import Random, RandomPart
from vgraph.ir.program import Op, Value, map_leaves, op_name
from vgraph.ir.tdl.table import READ_AS_DENSE
from vgraph.runtime.extent import draw_random


def evaluate(op: Op, env: dict[int, Tensor], device: torch.device | None = None) -> None:
    """Runs an op and files its results; tensors that it makes from nothing lie on ``device``."""
    is_dense = op_name(op.target) in READ_AS_DENSE

    def swap(leaf: object) -> object:
        if isinstance(leaf, torch.device):
            return device or leaf
        if not isinstance(leaf, Value):
            return leaf
        return env[leaf.id].contiguous() if is_dense else env[leaf.id]

    found = _random(op.target, op.mapped(swap)) if isinstance(op.target, Random | RandomPart) else op.evaluate(swap)
    results = found if isinstance(found, (tuple, list)) else (found,)
    for value, tensor in zip(op.results, results, strict=True):
        if tensor is not None:
            env[value.id] = tensor


def _random(target: Random | RandomPart, op: Op) -> Tensor:
    """Every element is keyed by its position among all elements of the whole tensor."""
    shape, dtype, extra = op.args
    seed = op.kwargs["seed"]
    if isinstance(target, RandomPart):
        ids = _positions(target.shape, target.region, seed.device)
        target = target.whole
    else:
        ids = torch.arange(math.prod(shape), device=seed.device)
    flat = map_leaves(tuple(extra), lambda leaf: leaf.flatten() if isinstance(leaf, Tensor) else leaf)
    return draw_random(target.distribution, target.number, seed, ids, (ids.shape[0],), dtype, flat).reshape(
        tuple(shape)
    )


def _positions(shape: tuple[int, ...], region: tuple[IndexSet, ...], device: torch.device) -> Tensor:
    found = torch.zeros((), dtype=torch.int64, device=device)
    for size, entries in zip(shape, region, strict=True):
        runs = [torch.arange(low, high, device=device) for low, high in entries.runs]
        here = torch.cat(runs) if runs else found.new_empty((0,))
        found = found[..., None] * size + here
    return found.flatten()
