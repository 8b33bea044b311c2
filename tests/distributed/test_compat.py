"""The names of ``dgl.distributed``."""

from __future__ import annotations

from pathlib import Path

import torch

import vgraph
import vgraph.distributed as vd
import vgraph.function as fn
from vgraph.compat.modules import lookup


def test_a_program_of_distdgl(tmp_path: Path) -> None:
    names = ("initialize", "partition_graph", "DistGraph", "exit_client")
    initialize, partition_graph, dist_graph, exit_client = (lookup("dgl.distributed", name) for name in names)
    g = vgraph.graph(([0, 1, 2, 3], [1, 2, 3, 0]))
    g.ndata["h"] = torch.arange(4.0)
    initialize("ip_config.txt", num_workers=0)
    partition_graph(g, "ring", 2, str(tmp_path), part_method="hash")
    own = dist_graph("ring", part_config=str(tmp_path / "ring.json"))
    assert isinstance(own, vd.DistGraph)
    own.update_all(fn.copy_u("h", "m"), fn.sum("m", "s"))
    assert own.ndata["s"][own.new_ids(torch.arange(4))].tolist() == [3.0, 0.0, 1.0, 2.0]
    exit_client()
    assert lookup("dgl.distributed", "init") is vd.init
