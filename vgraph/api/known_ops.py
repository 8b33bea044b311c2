"""Known operators: which look at data, which draw numbers, and the functional twins of those that write.

Takes: an aten operator's name and arguments. Gives: what a recording makes of it; tempo: once a function.
"""

from __future__ import annotations

from typing import Any

import torch

TWINS = {"transpose_": torch.ops.aten.transpose.int}  # where the overloads' names differ


def looks_at_data(name: str, func: Any, args: tuple[Any, ...]) -> bool:
    """Whether an operator's result has a shape or is a number that only the data tell."""
    if name == "index":  # its shape depends on data only where it is indexed by booleans
        return any(t is not None and t.dtype in (torch.bool, torch.uint8) for t in args[1])
    tags = func.tags
    return torch.Tag.data_dependent_output in tags or torch.Tag.dynamic_output_shape in tags


RANDOM = {
    "bernoulli_": ("bernoulli", True),
    "bernoulli": ("bernoulli", False),
    "rand_like": ("uniform", False),
    "rand": ("uniform", False),
    "uniform_": ("uniform", True),
    "randn_like": ("normal", False),
    "randn": ("normal", False),
    "normal_": ("normal", True),
    "exponential_": ("exponential", True),
}
