"""Segments by their lengths: what was found of them once serves later calls, whichever mode it was found in."""

from __future__ import annotations

import torch

from vgraph import ops
from vgraph.api.messages import segments


def test_equal_lengths_are_one_topology() -> None:
    lengths = torch.tensor([2, 0, 3])
    known = segments.segments_of_lengths(lengths)
    assert segments.segments_of_lengths(lengths.int()) is known
    lengths[1] = 1
    other = segments.segments_of_lengths(lengths)
    assert other is not known
    assert other.dst.tolist() == [0, 0, 1, 2, 2, 2]


def test_many_groups_and_many_rows_are_not_kept() -> None:
    for lengths in (torch.ones(segments._MOST_GROUPS + 1, dtype=torch.int64), torch.tensor([segments._MOST_ROWS + 1])):
        known = segments.segments_of_lengths(lengths)
        assert segments.segments_of_lengths(lengths) is not known
        assert torch.equal(known.dst.bincount(minlength=len(lengths)), lengths)


def test_training_may_follow_inference() -> None:
    segments._kept_segments.cache_clear()
    lengths, x = torch.tensor([1, 4, 0, 2]), torch.randn(7, 3, dtype=torch.float64, requires_grad=True)
    with torch.inference_mode():
        before = ops.segment_reduce(torch.tensor([1, 4, 0, 2]), x.detach(), "max")
    found = ops.segment_reduce(lengths, x, "max")
    assert torch.equal(found, before)
    (slope,) = torch.autograd.grad(found.square().sum(), x, create_graph=True)
    slope.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad.ne(0).sum(0), torch.tensor([3, 3, 3]))
