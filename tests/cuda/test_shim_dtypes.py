"""Kernels for a GPU in every dtype, run on the CPU: what is stored in 16 bits is computed in 32."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.cuda import shim
from tests.fusion.fuzz import check_rounded
from tests.fusion.test_attention_passes import attend, by_feature, gatv2
from tests.fusion.test_dtypes import MESSAGES, a_graph
from tests.runtime.engine_models import GRAPHS, MODELS, WIDTH
from vgraph.capture import capture
from vgraph.fusion.cpu import build

pytestmark = [
    pytest.mark.skipif(build.find_compiler() is None, reason="there is no C++ compiler"),
    pytest.mark.usefixtures("launches"),
]
DTYPES = [torch.bfloat16, torch.float16, torch.float32, torch.float64]
NUM_NODES, NUM_EDGES = 40, 400


def weigh(name: str) -> tuple[Any, Any]:
    if name in MESSAGES:
        message = MESSAGES[name]
        send = lambda e: {"m": message(e.src["h"], e.dst["h"], e.data["w"])}  # noqa: E731
        return send, lambda nodes: {"o": nodes.mailbox["m"].sum(1)}
    return (gatv2 if name == "gatv2" else by_feature), attend


def run(name: str, rows: Tensor, weights: Tensor) -> list[Tensor]:
    """An output of a hub and others, and its gradients."""
    torch.manual_seed(0)
    g, leaves = a_graph(), [rows.requires_grad_(), weights.requires_grad_()]
    g.ndata["h"], g.edata["w"] = leaves
    g.update_all(*weigh(name))
    out = g.ndata["o"]
    found = torch.autograd.grad(out.sum(), leaves, allow_unused=True)
    return [out, *(t for t in found if t is not None)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", [*MESSAGES, "gatv2", "softmax"])
def test_forward_and_backward(name: str, dtype: torch.dtype) -> None:
    made = torch.Generator().manual_seed(5)
    rows = torch.randn(NUM_NODES, 2, 4, generator=made).to(dtype)
    weights = torch.rand(NUM_EDGES, 1, 1, generator=made).to(dtype)
    exact = run(name, rows.double(), weights.double())
    capture.forget()
    with shim.in_place_of_cpu():
        found = run(name, rows.clone(), weights.clone())
    assert shim.launched, "no kernel ran"
    for mine, theirs in zip(found, exact, strict=True):
        slack = 8 * torch.finfo(dtype).eps * (1 + math.log2(NUM_EDGES)) * theirs.abs().max()
        assert mine.dtype == dtype and bool(((mine.double() - theirs).abs() <= slack + 1e-12).all())


@pytest.mark.parametrize("start", range(0, 18, 3))
def test_random_functions(start: int) -> None:
    """Each dtype in turn; ``python -m tests.fusion.fuzz --ways cuda-shim --dtype bf16`` runs more of them."""
    for seed in range(start, start + 3):
        check_rounded(seed, DTYPES[seed % 3])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_sums_of_outer_products(dtype: torch.dtype) -> None:
    """A parameter's gradient over the edges of all trees: summed in 32 bits where rows have 16."""
    torch.manual_seed(0)
    g, model = GRAPHS["trees"](), MODELS["child-sum"]().to(dtype)
    rows = torch.randn(g.num_nodes(), WIDTH).to(dtype)

    def gradients(model: Any, rows: Tensor) -> list[Tensor]:
        h = model(g, x=rows.requires_grad_())["h"]
        return [h.detach(), *torch.autograd.grad(h.square().sum(), [rows, *model.parameters()])]

    exact = gradients(model.double(), rows.double())
    capture.forget()
    with shim.in_place_of_cpu():
        found = gradients(model.to(dtype), rows.clone())
    assert any("kernel" in name for name in shim.launched)
    for mine, theirs in zip(found, exact, strict=True):
        slack = 8 * torch.finfo(dtype).eps * (1 + math.log2(g.num_nodes())) * theirs.abs().max()
        assert mine.dtype == dtype and bool(((mine.double() - theirs).abs() <= slack + 1e-12).all())
