"""What stands for a call while torch.compile reads it: one slot, empty here, filled by ``vgraph/api/torch_compile``.

Takes: nothing. Gives: ``compiled_calls``, which the folders below read where Dynamo is compiling, so that none of them
imports what stands above it. Filled once, with ``import vgraph``. See ADR 0012.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from torch import Tensor

Results = dict[str, Tensor]


def _empty(*_args: object, **_named: object) -> NoReturn:
    raise AssertionError("vgraph/__init__.py fills this slot")


@dataclass
class CompiledCalls:
    """Functions that give operators of a compiled graph; None in place of results: the call cannot become one.

    ``outside(function, *args, **named)`` leaves the compiled graph and calls the function there.
    """

    outside: Callable[..., Any] = _empty
    updated: Callable[[Any, Any, Any, Any], Results | None] = _empty  # topology, frames, message, reduce
    edges_evaluated: Callable[[Any, Any, Any], Results | None] = _empty  # topology, frames, function
    vertices_evaluated: Callable[[Any, Any, dict[str, Any]], Results | None] = _empty  # function, graph, features
    degrees: Callable[[Tensor, bool, int], Tensor] = _empty  # a topology's handle, whether out-edges, vertices
    groups: Callable[[Tensor, bool, int], tuple[Tensor, Tensor]] = _empty  # handle, whether of edges, rows


compiled_calls = CompiledCalls()
