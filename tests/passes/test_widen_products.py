"""Loops over frontiers multiply 16-bit rows as 32-bit ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
import torch
from torch import Tensor, nn

import vgraph
from vgraph import compiler
from vgraph.capture import capture
from vgraph.fusion.grouping import PhaseGrouping
from vgraph.ir.cost import is_product
from vgraph.ir.kernel import Unit
from vgraph.ir.schedule import Phase


class Sum(vgraph.VertexFunction):
    """Two children's states, side by side, times a matrix, beside a product that no child feeds."""

    def __init__(self) -> None:
        super().__init__(states={"h": 4})
        self.W, self.U = nn.Linear(3, 4), nn.Linear(8, 4)

    def forward(self, v: vgraph.Vertex) -> None:
        both = torch.cat([v.gather(0)["h"], v.gather(1)["h"]], -1)
        h = torch.tanh(self.W(v.pull("x")) + self.U(both))
        v.scatter(h=h)
        v.push(h=h)


@pytest.fixture
def loops(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[bool, set[torch.dtype]]]:
    """The dtypes of products, in loops and elsewhere; torch's operators run."""
    seen, group_ops = {True: set[torch.dtype](), False: set[torch.dtype]()}, compiler.group_ops

    def noted(
        phase: Phase, wanted: set[int], names: Mapping[int, str], begun: PhaseGrouping | None
    ) -> tuple[Unit, ...]:
        seen[phase.is_loop].update(op.results[0].dtype for op in phase.ops if is_product(op))
        return group_ops(phase, wanted, names, begun)

    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    monkeypatch.setattr(compiler, "group_ops", noted)
    monkeypatch.setitem(compiler.TARGETS, "cpu", lambda specs: None)
    monkeypatch.setattr(compiler, "load_native", lambda: None)
    capture.forget()
    yield seen
    capture.forget()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_loops_multiply_in_float32(loops: dict[bool, set[torch.dtype]], dtype: torch.dtype) -> None:
    tree, function, rows = vgraph.graph(([0, 1, 2, 4], [4, 4, 5, 5])), Sum(), torch.rand(6, 3)

    def outcome(function: Sum, rows: Tensor) -> list[Tensor]:
        out = function(tree, x=rows)["h"]
        return [out, *torch.autograd.grad(out.double().square().sum(), [*function.parameters()])]

    with torch.autocast("cpu", dtype):
        found = outcome(function, rows)
    assert loops[True] == {torch.float32} and dtype in loops[False]
    wanted = outcome(function.double(), rows.double())
    for one, two in zip(found, wanted, strict=True):
        torch.testing.assert_close(one.double(), two, rtol=0.03, atol=0.03 * two.abs().max().item())
