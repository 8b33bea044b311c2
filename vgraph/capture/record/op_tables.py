"""Known operators: which look at data, and the functional twins of those that write.

Takes: an aten operator's name and arguments. Gives: what a recording makes of it. Runs once per function.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from vgraph.ir.program import op_name

# Views whose bases nobody reads any more: what is written to one is its own. Else they are what stands behind them.
UNSAFE_VIEWS = {
    "unsafe_split": torch.ops.aten.split.Tensor,
    "unsafe_split_with_sizes": torch.ops.aten.split_with_sizes.default,
}


# Views that say how their numbers differ from what lies in memory. What is recorded has numbers of its own instead.
LAZY_VIEWS = {
    "_neg_view": torch.ops.aten.neg.default,
    "_conj": torch.ops.aten._conj_physical.default,
}


@cache
def functional_twin(func: Any) -> Any:
    """The operator that gives what this one writes in place, by what it takes; None if there is none.

    Names of overloads do not tell: ``pow_.Scalar`` takes a tensor, as ``pow.Tensor_Scalar`` does.
    """
    packet = getattr(torch.ops.aten, op_name(func).rstrip("_"), None)
    taken = [str(argument.type) for argument in func._schema.arguments]
    found = [getattr(packet, name) for name in packet.overloads()] if packet is not None else []
    alike = [t for t in found if not t._schema.is_mutable and [str(a.type) for a in t._schema.arguments] == taken]
    return next((t for t in alike if t._overloadname == func._overloadname), alike[0] if alike else None)


def looks_at_data(name: str, func: Any, args: tuple[Any, ...]) -> bool:
    """Whether an operator's result has a shape or is a number that only the data tell."""
    if name == "index":  # its shape depends on data only where it is indexed by booleans
        return any(t is not None and t.dtype in (torch.bool, torch.uint8) for t in args[1])
    tags = func.tags
    return torch.Tag.data_dependent_output in tags or torch.Tag.dynamic_output_shape in tags
