"""Asked gradients: which inputs' gradients the backward that runs now leads to, and whether it keeps its graph.

Takes: the context of an autograd.Function. Gives: one truth value an input; another one of the graph. Runs at every
backward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch.autograd.graph import Node

# whether the backward that runs now leaves what was saved for it, as with ``retain_graph=True``
keeps_graph: Callable[[], bool] = torch._C._autograd._get_current_graph_task_keep_graph  # noqa: TID251  # pyright: ignore


class Context(Protocol):
    """What an autograd.Function's context says of its inputs, of which the tensors alone have a next function."""

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """Where the gradient of each tensor goes; None: it has none."""
        ...


def asked_gradients(context: Context) -> tuple[bool, ...]:
    """Of each input that is a tensor, whether autograd has a use for its gradient.

    ``needs_input_grad`` says whether an input has one. Forces are the gradient of the positions alone, and what they
    are trained by that of the parameters alone: the others would be computed, and differentiated, for nobody.
    """
    return tuple(function is not None and _will_execute(function) for function, _ in context.next_functions)


def _will_execute(function: Node) -> bool:
    try:
        return torch._C._will_engine_execute_node(function)  # noqa: TID251  # pyright: ignore
    except RuntimeError:  # its way to say that ``autograd.grad`` asks for this very leaf
        return True
