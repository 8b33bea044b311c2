"""GroupRevRes: layers in groups with residuals, whose inputs are computed back from their results, with DGL's names.

Takes: a graph and one row a vertex. Gives: one row a vertex. Runs at every call.
Source: Li, Mueller, Ghanem and Koltun 2021, section 3.3.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

import vgraph
from vgraph.arguments import POSITIVE, checked
from vgraph.nn.inputs import check_graph


class GroupRevRes(nn.Module):
    """Copies of a layer, one for each group of columns, of which each is given what the one before made.

    The first is given the sum of the other groups' columns; ``y[i] = x[i] + layer[i](y[i - 1])``. Nothing that layers
    store is kept for the gradient: rows that they were given follow from the result, and they run once more.

    Args:
        gnn_module: the layer of the first group, which takes a graph, rows and more tensors, and gives rows as wide.
        groups: how many groups.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.

    Source: Li et al. 2021, equations 8 and 9.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import GraphConv, GroupRevRes
        >>> g = vgraph.graph(([0, 1, 2], [1, 2, 0]))
        >>> GroupRevRes(GraphConv(2, 2), groups=2)(g, torch.ones(3, 4)).shape
        torch.Size([3, 4])
    """

    @checked(groups=POSITIVE)
    def __init__(self, gnn_module: nn.Module, groups: int = 2) -> None:
        super().__init__()
        others = (deepcopy(gnn_module) for _ in range(1, groups))
        self.gnn_modules, self.groups = nn.ModuleList([gnn_module, *others]), groups

    def forward(self, g: vgraph.Graph, x: Tensor, *args: Tensor) -> Tensor:
        """New rows of the vertices.

        Args:
            g: what the layers take as a graph.
            x: (vertices, width), which ``groups`` divides.
            *args: further tensors, of which each layer is given its columns.

        Returns:
            (vertices, width).

        Raises:
            FunctionError: it is called without a graph.
        """
        check_graph(self, g)
        return cast("Tensor", _Reversible.apply(self, g, len(args), x, *args, *self.learned()))

    def learned(self) -> list[nn.Parameter]:
        """What is trained.

        Returns:
            The parameters of all layers that need a gradient.
        """
        return [parameter for parameter in self.parameters() if parameter.requires_grad]


class _Reversible(torch.autograd.Function):
    """Its gradient runs each layer once more, last first, on rows that it computes back from the result."""

    @staticmethod
    def forward(ctx: Any, layer: GroupRevRes, g: vgraph.Graph, num_args: int, *tensors: Tensor) -> Tensor:
        x, args, as_now = tensors[0], tensors[1 : num_args + 1], g.local_var()
        xs, more = x.chunk(layer.groups, -1), _by_group(args, layer.groups)
        row, found, seeds = _total(xs[1:], x), list[Tensor](), list[tuple[Tensor, ...]]()
        for part, module, given in zip(xs, layer.gnn_modules, more, strict=True):
            seeds.append(_random_state(x))
            row = part + module(g, row, *given)
            found.append(row)
        made = torch.cat(found, -1)
        # with the features of now: what the caller sets later, perhaps the result itself, is neither read nor held
        ctx.layer, ctx.g, ctx.seeds, ctx.autocast = layer, as_now, seeds, _autocast_of(x)
        ctx.save_for_backward(made, *args)
        return made

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *grads: Tensor
    ) -> tuple[Tensor | None, ...]:
        layer: GroupRevRes = ctx.layer
        made, *args = cast("tuple[Tensor, ...]", ctx.saved_tensors)
        ys, of_xs, more = (
            made.chunk(layer.groups, -1),
            [*grads[0].chunk(layer.groups, -1)],
            _by_group(args, layer.groups),
        )
        learned, xs, of_args = layer.learned(), list[Tensor](), list[_Grads]()
        of_learned: _Grads = [None] * len(learned)
        for i in reversed(range(layer.groups)):
            # the layer was given its predecessor's result, and the first one all other inputs, known by then
            row = (ys[i - 1] if i else _total(xs, made)).detach().requires_grad_()
            given = [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in more[i]]
            with torch.enable_grad(), ctx.autocast, _replayed(ctx.seeds[i], made):
                found = layer.gnn_modules[i](ctx.g, row, *given)
            xs.append((ys[i] - found).detach())
            (of_row, *others) = _gradients(found, [row, *given, *learned], of_xs[i].to(found.dtype))
            of_args.append(others[: len(given)])
            of_learned = [_sum(old, new) for old, new in zip(of_learned, others[len(given) :], strict=True)]
            for j in [i - 1] if i else range(1, layer.groups):
                of_xs[j] = of_xs[j] if of_row is None else of_xs[j] + of_row
        joined = [_joined(list(reversed(parts))) for parts in zip(*of_args, strict=True)]
        return None, None, None, torch.cat(of_xs, -1), *joined, *of_learned


_Grads = list[Tensor | None]


def _by_group(args: Sequence[Tensor], groups: int) -> list[list[Tensor]]:
    """The columns of each tensor that each group is given."""
    parts = [arg.chunk(groups, -1) for arg in args]
    return [[part[i] for part in parts] for i in range(groups)]


def _total(rows: Sequence[Tensor], like: Tensor) -> Tensor:
    """Their sum; zeros where a single group has no others, as wide as a group."""
    return torch.stack(list(rows)).sum(0) if rows else torch.zeros_like(like)


def _gradients(found: Tensor, of: Sequence[Tensor], grad: Tensor) -> _Grads:
    wanted = [tensor for tensor in of if tensor.requires_grad]
    grads = iter(torch.autograd.grad(found, wanted, grad, allow_unused=True))
    return [next(grads) if tensor.requires_grad else None for tensor in of]


def _sum(left: Tensor | None, right: Tensor | None) -> Tensor | None:
    return right if left is None else left if right is None else left + right


def _joined(parts: _Grads) -> Tensor | None:
    """The gradient of a tensor from those of its columns."""
    known = [part for part in parts if part is not None]
    return torch.cat([torch.zeros_like(known[0]) if part is None else part for part in parts], -1) if known else None


def _autocast_of(like: Tensor) -> torch.autocast:
    """The autocast that is on or off now for a tensor's device, to be entered later."""
    kind = like.device.type
    return torch.autocast(kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))


def _random_state(like: Tensor) -> tuple[Tensor, ...]:
    """What the next random numbers follow from."""
    return torch.get_rng_state(), *([torch.cuda.get_rng_state(like.device)] if like.is_cuda else [])


@contextmanager
def _replayed(state: tuple[Tensor, ...], like: Tensor) -> Generator[None]:
    """Meanwhile random numbers are those of before: what was dropped is dropped again."""
    with torch.random.fork_rng([like.device] if like.is_cuda else []):
        torch.set_rng_state(state[0])
        if like.is_cuda:
            torch.cuda.set_rng_state(state[1], like.device)
        yield
