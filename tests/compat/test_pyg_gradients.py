"""Gradients of accelerated layers: what backward hooks see, and what equal messages get of an extremum's."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vgraph
from tests.compat.test_pyg import F, N, edges, needs_pyg, pyg, runs_of
from vgraph.capture.errors import CaptureError


@needs_pyg
@pytest.mark.parametrize("aggr", ["max", "min"])
def test_the_largest_of_zeros(aggr: str) -> None:
    """torch shares the gradient of an extremum that is 0 with the zeros that the result began with."""
    layer, ids = pyg.SAGEConv(F, F, aggr=aggr).double(), edges()
    x = torch.randint(-1, 2, (N, F)).double().requires_grad_()
    sign = -1.0 if aggr == "max" else 1.0
    for rows in (torch.zeros(N, F).double().requires_grad_(), x, (x.detach() * sign).requires_grad_()):
        (wanted,) = torch.autograd.grad(copy.deepcopy(layer)(rows, ids).square().sum(), rows)
        (found,) = torch.autograd.grad(vgraph.accelerate(copy.deepcopy(layer))(rows, ids).square().sum(), rows)
        torch.testing.assert_close(found, wanted)


@needs_pyg
@pytest.mark.parametrize("kind", ["GCNConv", "GATConv", "EdgeConv"])
def test_backward_hooks_see_gradients(kind: str) -> None:
    """One of the layer leaves its messages captured; one of a module that each message calls must see them."""
    inner = pyg.MLP([2 * F, F, F], norm=None) if kind == "EdgeConv" else None
    layer = pyg.EdgeConv(inner) if inner is not None else getattr(pyg, kind)(F, F)
    plain, x, ids = copy.deepcopy(layer.double()), torch.randn(N, F, dtype=torch.float64, requires_grad=True), edges()
    vgraph.accelerate(layer)

    def hooked(own: Any, where: Callable[[Any], nn.Module]) -> tuple[list[Tensor], bool]:
        seen = list[Tensor]()
        handle = where(own).register_full_backward_hook(lambda _, inward, outward: seen.extend((*inward, *outward)))
        (_, first), (_, runs) = runs_of(lambda: own(x, ids)), runs_of(lambda: own(x, ids).square().sum().backward())
        handle.remove()
        assert len(first) == len(runs)
        return [one for one in seen if one is not None], any(isinstance(run, CaptureError) for run in runs)

    def itself(own: Any) -> nn.Module:
        return own

    for where in (itself, *([lambda own: own.nn] if inner is not None else []), itself):
        found, runs_as_pyg = hooked(layer, where)
        torch.testing.assert_close(found, hooked(plain, where)[0])
        assert found and runs_as_pyg == (where is not itself)


@needs_pyg
def test_a_backward_hook_that_is_gone_is_no_hindrance() -> None:
    layer, x, ids = vgraph.accelerate(pyg.EdgeConv(pyg.MLP([2 * F, F, F], norm=None))), torch.randn(N, F), edges()
    handle = layer.nn.register_full_backward_hook(lambda *_: None)
    assert isinstance(runs_of(lambda: layer(x, ids))[1][0], CaptureError)
    handle.remove()
    assert not isinstance(runs_of(lambda: layer(x, ids))[1][0], CaptureError)
