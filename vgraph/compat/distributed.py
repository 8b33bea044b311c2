"""``dgl.distributed``: what programs of DistDGL call, on ``vgraph.distributed``.

Takes: DGL's arguments. Gives: the same as ``vgraph.distributed``. Runs once per process or graph.
There are no servers: torchrun starts the program, and a graph's folder is ``out_path/graph_name``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import vgraph
import vgraph.distributed as vd


def initialize(ip_config: Any = None, **options: Any) -> None:
    """Joins the processes that torchrun has started; addresses and servers are not asked for."""
    vd.init()


def exit_client() -> None:
    """Nothing: there are no servers to leave."""


def partition_graph(
    g: vgraph.Graph, graph_name: str, num_parts: int, out_path: str, num_hops: int = 1, part_method: str = "metis"
) -> None:
    """Divides a graph into the folder ``out_path/graph_name``; halos are found when it is loaded."""
    vd.partition_graph(g, Path(out_path) / graph_name, num_parts=num_parts, method=part_method)


def DistGraph(graph_name: str, gpb: Any = None, part_config: str | None = None) -> vd.DistGraph:
    """The graph of that name in the folder of ``part_config``, or in the current one."""
    folder = Path() if part_config is None else Path(part_config)
    return vd.DistGraph((folder.parent if folder.suffix == ".json" else folder) / graph_name)
