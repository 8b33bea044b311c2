"""Linear: which operands of an op may be terms of a sum, so that its result is one too.

Takes: an Op. Gives: groups of operands in which it is jointly linear. Runs once per function.
Source: partial sums as a state of a tensor, beside Tofu's immediate reductions (docs/adr).
"""

from __future__ import annotations

from vgraph.ir.program import Op, Value, op_name
from vgraph.ir.tdl.table import RESAMPLED

_TOGETHER = frozenset("add sub neg cat stack".split())
_FIRST = frozenset(
    """view _unsafe_view reshape squeeze unsqueeze t permute transpose expand alias detach clone contiguous
    slice select split split_with_sizes unbind slice_backward select_backward sum mean repeat
    constant_pad_nd div embedding embedding_dense_backward gather index_select avg_pool2d avg_pool2d_backward
    convolution_backward""".split()
) | {name + end for name in RESAMPLED.split() for end in ("", "_backward")}
_EACH = frozenset("mul mm bmm mv dot".split())


def linear_operands(op: Op) -> list[frozenset[int]]:
    """Sets of operand positions: if those of one set are terms of sums, so is the result."""
    operands = list(op.operands())
    if not operands or not all(v.dtype.is_floating_point for v in op.results):
        return []
    found = _groups(op, operands)
    return found if all(operands[i].dtype.is_floating_point for group in found for i in group) else []


def _groups(op: Op, operands: list[Value]) -> list[frozenset[int]]:
    name, count = op_name(op.target), len(operands)
    if name in ("add", "sub", "rsub") and not all(isinstance(arg, Value) for arg in op.args[:2]):
        return []  # a number would be added once a term
    if name in _TOGETHER:
        return [frozenset(range(count))]
    if name == "_to_copy":
        return [frozenset({0})] if op.results[0].dtype.itemsize >= operands[0].dtype.itemsize else []
    if name == "div":
        return [frozenset({0})] if isinstance(op.args[0], Value) and not op.kwargs.get("rounding_mode") else []
    if name == "constant_pad_nd":
        return [frozenset({0})] if len(op.args) < 3 or not op.args[2] else []
    if name == "where":
        return [frozenset({1, 2})] if count == 3 else []
    if name == "convolution":
        return [frozenset({0}), frozenset({1})] if count == 2 else []  # a bias would be added once a term
    if name in _FIRST:
        return [frozenset({0})]
    if name in _EACH:
        return [frozenset({i}) for i in range(count)] if len({v.id for v in operands}) == count else []
    return []
