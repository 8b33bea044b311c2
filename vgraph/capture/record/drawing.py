"""Drawing: what a recording makes of torch's operators that draw random numbers.

Takes: such an operator. Gives: a distribution whose numbers are keyed by rows. Runs once per function.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vgraph.capture.record.aliases import bare
from vgraph.capture.record.op_tables import Kwargs, Overload

DRAW_BEFORE = "draw its numbers before the call and pass them as a tensor"  # a cure
_KNOWN: dict[str, tuple[str, bool, tuple[float, ...]]] = {
    # operators: the distribution, whether they write to their first argument, and parameters that a call may leave out
    "bernoulli_": ("bernoulli", True, ()),
    "bernoulli": ("bernoulli", False, ()),
    "rand_like": ("uniform", False, ()),
    "rand": ("uniform", False, ()),
    "uniform_": ("uniform", True, (0.0, 1.0)),
    "randn_like": ("normal", False, ()),
    "randn": ("normal", False, ()),
    "normal_": ("normal", True, (0.0, 1.0)),
    "exponential_": ("exponential", True, (1.0,)),
}
_DTYPES = frozenset({torch.float64, torch.float32, torch.float16, torch.bfloat16})


@dataclass(frozen=True, eq=False)
class Drawing:
    """Numbers to draw; ``like`` has their shape, if a tensor tells it, and ``writes`` says that they are put there."""

    distribution: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    parameters: tuple[object, ...]
    like: Tensor | None
    writes: bool


def drawing_of(name: str, func: Overload, args: tuple[Any, ...], kwargs: Kwargs) -> Drawing | str:
    """What a call draws; a string says why there are no such numbers that are keyed by rows.

    Raises: what torch raises for parameters that no distribution has.
    """
    if name not in _KNOWN:
        return f"{name} has no counterpart that is keyed by rows"
    if kwargs.get("generator") is not None:
        return f"{name} draws from a generator of its own"
    distribution, writes, defaults = _KNOWN[name]
    like = args[0] if args and isinstance(args[0], Tensor) else None
    sizes: Any = args[0] if like is None else like.shape
    shape = tuple(sizes)
    dtype = kwargs.get("dtype") or (like.dtype if like is not None else torch.get_default_dtype())
    if dtype not in _DTYPES and (dtype.is_complex or not distribution.startswith("bernoulli")):
        return f"{name} of {dtype} has no counterpart that is keyed by rows"
    if writes and like is not None:
        func(bare(like).new_empty(0), *args[1:])  # draws none, but refuses what torch refuses
    if name == "bernoulli" and len(args) == 1:
        return Drawing("bernoulli_tensor", shape, dtype, args, like, writes)
    given = args[1:]  # all of a distribution's, or none; a call may leave out the last ones
    return Drawing(distribution, shape, dtype, (*given, *defaults[len(given) :]) if given else (), like, writes)
