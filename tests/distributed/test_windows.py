"""With room for few rows of others, training gives what it gives with all of them."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import vgraph.distributed as vd
from tests.distributed.launch import on_ranks
from tests.distributed.small_graphs import homogeneous
from vgraph.distributed.windows import _cut_up


@pytest.mark.parametrize("ranks", [2, 4])
def test_training_window_by_window(ranks: int, tmp_path: Path) -> None:
    vd.partition_graph(homogeneous(), tmp_path / "hash", num_parts=ranks, method="hash")
    said = on_ranks("tests.distributed.windowed", ranks, str(tmp_path), VGRAPH_CHECK_RANKS="1")
    assert said.count("all windows are right") == ranks


def test_windows_are_as_few_as_a_walk_makes() -> None:
    remote, starts = torch.tensor([5, 6, 5, 6, 7, 5, 6, 8, 9, 10]), torch.tensor([0, 2, 4, 5, 7, 10])
    assert _cut_up(remote, starts, 3) == [(0, 4), (4, 5)]
    assert _cut_up(remote, starts, 10) == [(0, 5)]
    assert _cut_up(remote, starts, 1) == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]
    assert _cut_up(remote[:0], starts[:1], 3) == []


@given(st.lists(st.lists(st.integers(0, 8), min_size=1, max_size=4), max_size=12), st.integers(1, 9))
def test_no_window_could_take_one_vertex_more(reads: list[list[int]], most: int) -> None:
    remote = torch.tensor([row for rows in reads for row in rows], dtype=torch.int64)
    starts = torch.tensor([0, *accumulate(map(len, reads))])
    wanted, first = list[tuple[int, int]](), 0
    while first < len(reads):
        last = first + 1
        while last < len(reads) and len({row for rows in reads[first : last + 1] for row in rows}) <= most:
            last += 1
        wanted.append((first, last))
        first = last
    assert _cut_up(remote, starts, most) == wanted
