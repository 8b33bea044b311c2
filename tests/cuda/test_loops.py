"""Loops over frontiers as on a GPU: a few launches a frontier, or one for all, whoever shares the work."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any
from unittest import mock

import pytest
import torch

import vgraph
from tests.cuda import shim
from tests.runtime import engine_models
from tests.runtime.engine_models import GRAPHS, MODELS, PLAIN, features, outcome, outcome_with
from tests.tables import table, thorough
from vgraph import compiler
from vgraph.capture import capture
from vgraph.fusion.cpu import build
from vgraph.fusion.cuda import build as build_cuda
from vgraph.ir.loop_body import Walk
from vgraph.runtime.cuda import frontier_loop as device_loop
from vgraph.runtime.cuda.frontier_loop import Share, share_out

pytestmark = [
    pytest.mark.skipif(build.find_compiler() is None, reason="there is no C++ compiler"),
    pytest.mark.usefixtures("launches"),
]


def walked() -> Counter[str]:
    return Counter("walk" if "walk" in n else "section" if "section" in n else "kernel" for n in shim.launched)


def cut(walk: Walk, mean_rows: float, blocks: int, most_room: int) -> Share | None:
    """As if the matrices had not fitted into one block."""
    whole = share_out(walk, mean_rows, blocks, most_room)
    assert whole is not None
    return share_out(walk, mean_rows, blocks, whole.room - 1) if walk.products else whole


@pytest.mark.parametrize("name", MODELS)
def test_all_frontiers_in_one_launch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of blocks share rows, slices share columns; threads in either order give the same bits."""
    model, g = MODELS[name]().double(), GRAPHS["trees"]()
    x = features(g)
    wanted = outcome_with(monkeypatch, PLAIN, model, g, x)
    monkeypatch.setenv("VGRAPH_WALK", "1")
    runs: list[list[torch.Tensor]] = []
    for divide, rows, backwards in [(share_out, 16, False), (share_out, 1, True), (cut, 1, False), (cut, 1, True)]:
        monkeypatch.setattr(device_loop, "share_out", divide)
        monkeypatch.setattr(device_loop, "ROWS_OF_GROUP", rows)
        capture.forget()
        shim.launched.clear()
        with shim.in_place_of_cpu(backwards=backwards):
            runs.append(outcome(model, g, x))
        assert walked()["walk"] == 2 == walked()["section"], "leaves are one frontier, forward and backward"
    for one, two in zip(runs[0], wanted, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-12)
    for others in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(runs[0], others, strict=True))


@pytest.mark.parametrize(
    ("name", "dtype", "walks"), table(["gru", "child-sum", "attentive"], [torch.bfloat16, torch.float16], "01")
)
def test_numbers_of_16_bits(name: str, dtype: torch.dtype, walks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sections and walks, whose products are added in 32 bits; whoever shares the work, the same bits."""
    monkeypatch.setenv("VGRAPH_WALK", walks)
    model, g = MODELS[name]().to(dtype), GRAPHS["trees"]()
    x = features(g, torch.float64).detach().to(dtype)

    def squares(rows: torch.Tensor) -> list[torch.Tensor]:
        leaves = [rows.requires_grad_(), *model.parameters()]
        outputs = list(model(g, x=rows).values())
        found = torch.autograd.grad(sum(o.square().sum() for o in outputs), leaves, allow_unused=True)
        return [*(o.detach() for o in outputs), *(t for t in found if t is not None)]

    runs: list[list[torch.Tensor]] = []
    for divide, backwards in [(share_out, False), (cut, True)][: 1 + int(walks)]:
        monkeypatch.setattr(device_loop, "share_out", divide)
        capture.forget()
        shim.launched.clear()
        with shim.in_place_of_cpu(backwards=backwards):
            runs.append(squares(x.clone()))
        assert walked()["section"] and walked()["walk"] == 2 * int(walks)
    capture.forget()
    monkeypatch.setenv("VGRAPH_KERNELS", "0")
    model.double()
    exact = squares(x.double())
    for mine, theirs in zip(runs[0], exact, strict=True):
        slack = 8 * torch.finfo(dtype).eps * (1 + math.log2(g.num_nodes())) * theirs.abs().max()
        assert mine.dtype == dtype and bool(((mine.double() - theirs).abs() <= slack + 1e-12).all())
    assert all(torch.equal(a, b) for a, b in zip(runs[0], runs[-1], strict=True))


@pytest.mark.parametrize(
    ("name", "architecture", "dtype"),
    [
        *table(["gru", "child-sum"], ["sm_80", "sm_90"], [torch.float32]),
        pytest.param("child-sum", "sm_90", torch.bfloat16, marks=thorough),
    ],
)
def test_loops_compile_without_spills(
    name: str, architecture: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvrtc = build_cuda.find_nvrtc()
    if nvrtc is None:
        pytest.skip("there is no NVRTC: pip install nvidia-cuda-nvrtc")
    monkeypatch.setattr(engine_models, "WIDTH", 32)
    sources: list[str] = []

    def noted(emitted: Any) -> Any:
        sources.append("\n".join(['#include "prelude.cuh"', *(text for text, _ in emitted)]))
        return shim.loops(emitted)

    model, g = MODELS[name]().to(dtype), vgraph.batch([engine_models.binary_tree(3)])
    with shim.in_place_of_cpu(), mock.patch.dict(compiler.LOOPS, cpu=noted):
        outcome(model, g, features(g, dtype))
    assert sources
    for source in sources:
        cubin, said = nvrtc.compile(source, architecture)
        assert cubin[:4] == b"\x7fELF", said
        used = build_cuda.usages(said)
        assert len(used) == source.count("__global__"), said
        assert all(usage.spilled == 0 for usage in used.values()), used
