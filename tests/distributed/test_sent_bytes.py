"""What full-graph training sends is what the cost model says, as whole numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

import vgraph.distributed as vd
from tests.distributed.launch import on_ranks
from tests.distributed.small_graphs import homogeneous


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_bytes_equal_the_cost_model(ranks: int, tmp_path: Path) -> None:
    vd.partition_graph(homogeneous(), tmp_path, num_parts=ranks, method="hash")
    said = on_ranks("tests.distributed.sent_bytes", ranks, str(tmp_path), VGRAPH_CHECK_RANKS="1")
    assert said.count("all bytes as planned") == ranks
