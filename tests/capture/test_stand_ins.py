"""What stands in for functions of torch gives what they give, also where operands have several dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from vgraph.capture.rows.torch_overrides import STAND_INS

Case = tuple[Callable[..., Tensor], Callable[[Tensor], tuple[Any, ...]], dict[str, Any]]
MEAN, SPREAD = torch.tensor([0.5, -1.0, 0.0, 2.0]), torch.tensor([0.6, 1.4, 0.9, 1.1])
WEIGHT, BIAS = torch.tensor([0.3, 0.8, 0.5, 0.1]), torch.tensor([0.7, 0.2, 0.9, 0.4])
ROWS = torch.linspace(-2, 2, 24).view(6, 4) * torch.tensor([1, -1, 1, -1])  # a norm divides by no small difference
CLASSES = torch.tensor([0, 3, -100, 1, 2, 2])
EACH: dict[str, Any] = {"reduction": "none"}
CASES: dict[str, Case] = {
    "batch norm": (functional.batch_norm, lambda x: (x, MEAN, SPREAD, WEIGHT, BIAS), {}),
    "group norm": (functional.group_norm, lambda x: (x, 2, WEIGHT, BIAS), {}),
    "instance norm": (functional.instance_norm, lambda x: (torch.stack([x, 2 * x], 2), None, None, WEIGHT, BIAS), {}),
    "negative logarithms": (functional.nll_loss, lambda x: (x.log_softmax(1), CLASSES), EACH),
    "cross entropy": (functional.cross_entropy, lambda x: (x, CLASSES), {**EACH, "label_smoothing": 0.1}),
}


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", CASES)
def test_dtypes(name: str, dtype: torch.dtype, autocast: bool) -> None:
    """Parameters and statistics stay float32 beside rows of 16 bits; torch makes losses of 32 bits under autocast."""
    function, arguments, named = CASES[name]
    given = arguments(ROWS.to(dtype))
    if dtype == torch.float64:
        given = tuple(arg.double() if isinstance(arg, Tensor) and arg.is_floating_point() else arg for arg in given)
    with torch.autocast("cpu", enabled=autocast):
        found, wanted = STAND_INS[function](*given, **named), function(*given, **named)
    assert found is not None and found.dtype == wanted.dtype
    near = torch.finfo(dtype).eps * 4
    torch.testing.assert_close(found, wanted, rtol=near, atol=near)
