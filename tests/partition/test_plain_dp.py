"""All steps at once: exact, equal to the recursion in one step, never dearer in several, and executed as it is."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from benchmarks.partitioning import plain_dp as module
from benchmarks.partitioning.plain_dp import plain_dp, search_apart
from tests.partition.test_search import Perceptron, captured
from vgraph.errors import ModelError
from vgraph.partition.rewrite.rewrite import rewrite
from vgraph.partition.search.options import Options

SHAPES = [(64, (64, 128, 64)), (512, (16, 32, 16)), (8, (128, 64, 256))]


def lean(options: Options) -> Options:
    return replace(options, small=0, keeps_terms=False)


@pytest.mark.parametrize(("batch", "widths"), SHAPES)
@pytest.mark.parametrize("axes", [(2,), (2, 2)])
def test_no_sequence_of_choices_is_cheaper(batch: int, widths: tuple[int, ...], axes: tuple[int, ...]) -> None:
    step = captured(Perceptron(widths), torch.zeros(batch, widths[0]), torch.zeros(batch, widths[-1]))
    ours, exact = search_apart(step, axes, lean), plain_dp(step, axes, lean)
    assert sum(exact.step_bytes) <= sum(ours.step_bytes) * (1 + 1e-9)
    if len(axes) == 1:
        assert sum(exact.step_bytes) == pytest.approx(sum(ours.step_bytes))
    moved = rewrite(step.program, exact.plan).communicated_bytes
    assert moved <= 1.1 * sum(exact.step_bytes) + 1024


def test_what_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    step = captured(Perceptron((64, 64)), torch.zeros(64, 64), torch.zeros(64, 64))
    monkeypatch.setattr(module, "MAX_TABLE", 2)
    with pytest.raises(ModelError, match="too large for a search of all steps at once"):
        plain_dp(step, (2,))
