"""Memory of several processes of one machine: what they map of a graph, they have once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import vgraph
import vgraph.distributed as vd
from tests.distributed.launch import on_ranks, torchrun


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="mappings are listed by /proc")
def test_four_processes_have_the_files_of_a_graph_once(tmp_path: Path) -> None:
    g = vgraph.rand_graph(20_000, 400_000)
    g.ndata["feat"] = torch.randn(20_000, 64)
    vd.partition_graph(g, tmp_path / "g", num_parts=4, method="hash")
    held: list[int] = []
    for ranks in (1, 4):
        said = on_ranks("tests.distributed.mapped_program", ranks, str(tmp_path / "g"))
        held += map(int, re.findall(r"all processes hold (\d+) bytes of files", said))
    one, four = held
    assert one > 20_000 * 64 * 4 + 400_000 * 4, "features and lists are mapped"
    assert four <= 1.05 * one


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is told by /proc")
def test_ranks_hold_what_is_planned(tmp_path: Path) -> None:
    vd.partition_graph(vgraph.rand_graph(100_000, 2_000_000), tmp_path / "g", num_parts=2, method="hash")
    settings = {"VGRAPH_KERNELS": "1", "MALLOC_MMAP_THRESHOLD_": "16384"}  # what is freed is at once the system's again
    said = torchrun("tests.distributed.held_program", 2, str(tmp_path / "g"), "64", **settings)
    planned, meanwhile = (map(int, pair) for pair in re.findall(r"\[(\d+), (\d+)\] in a thousand", said))
    assert all(900 <= share <= 1100 for share in planned), said
    assert all(share <= 1100 for share in meanwhile), said
