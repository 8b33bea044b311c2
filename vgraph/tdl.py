"""tdl: describes an operator of the user's own, so that it is batched, fused and divided like any other.

Takes: a function of operands that returns a lambda of indices. Gives: a Description. Runs once per operator.
Source: Tofu section 4.1 (tensor description language).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from vgraph.ir.program import op_name
from vgraph.ir.tdl.lambdas import Description, describe_function, opaque, reducer
from vgraph.ir.tdl.table import register

__all__ = ["Max", "Min", "Prod", "Sum", "describe", "opaque"]

Sum, Max, Min, Prod = (
    reducer(kind, word) for kind, word in (("sum", "sum"), ("max", "maximum"), ("min", "minimum"), ("prod", "product"))
)


def describe(function: Any = None, *, op: Any = None) -> Any:
    """Describes an operator: ``@vgraph.tdl`` for the one of the function's name, ``@vgraph.tdl(op=...)`` for another.

    Args:
        function: takes the operands and returns a lambda of the result's indices, which reads the operands at affine
            indices and reduces with ``Sum``, ``Max``, ``Min`` and ``Prod``; ``opaque()`` makes a function of whole
            slices, ``Inverse(matrix[b, :, :])[i, j]``. A window's index that stands alone nowhere needs its size:
            ``Max(lambda dx: x[2 * i + dx], dx=3)``. None: what is given is a decorator.
        op: the operator that is described; None: the one of the function's name.

    Returns:
        The description, which prints in index notation and tells by ``regions`` what a part reads; a decorator
        without ``function``.

    Raises:
        DescriptionError: an index that is not affine, or a name that is described already.

    Source: Wang, Huang and Li 2019 (Tofu), section 4.1.

    Example:
        >>> import vgraph
        >>> from vgraph.tdl import Sum
        >>> @vgraph.tdl
        ... def shifted_sum(data, filters):
        ...     return lambda b, co, x: Sum(lambda ci, dx: data[b, ci, x + dx] * filters[ci, co, dx])
        >>> print(shifted_sum)
        b ci x+dx, ci co dx -> b co x
        >>> shifted_sum.regions("x")
        ('all, all, [x.lower+dx.lower, x.upper+dx.upper-1)', 'all, all, all')
    """
    if function is None:
        return lambda given: describe(given, op=op)
    found: Description = describe_function(function)
    register(found.name if op is None else op_name(op), found.rule)
    return found


class _Module(ModuleType):
    """So that ``@vgraph.tdl`` decorates and ``from vgraph.tdl import Sum`` imports."""

    __call__: Callable[..., Any] = staticmethod(describe)


sys.modules[__name__].__class__ = _Module
