"""``dgl.sampling.sample_neighbors_fused``: a block instead of a graph of all nodes.

Takes: a graph, ids. Gives: a block. Runs at every step.
"""

from __future__ import annotations

import torch

import vgraph
from vgraph.graphs.draw.neighbors import Fanout, Hop, draw_edges, without
from vgraph.graphs.draw.pick import renumber
from vgraph.graphs.ids_by_type import nodes_by_type
from vgraph.graphs.types import Edges, Nodes
from vgraph.sampling.given import check_direction
from vgraph.sampling.samplers import make_block


def sample_neighbors_fused(
    g: vgraph.Graph,
    nodes: Nodes,
    fanout: Fanout,
    edge_dir: str = "in",
    prob: str | None = None,
    replace: bool = False,
    copy_ndata: bool = True,
    copy_edata: bool = True,
    exclude_edges: Edges | None = None,
    mapping: object = None,
) -> vgraph.Graph:
    """As ``sample_neighbors`` and ``to_block`` one after the other; ``mapping`` is ignored."""
    check_direction(edge_dir)
    seeds = {
        name: torch.from_numpy(renumber(ids.long().numpy(), g.num_nodes(name))[0])
        for name, ids in nodes_by_type(g, nodes).items()
    }
    drawn = draw_edges(g, Hop(seeds, fanout, prob, replace))
    block = make_block(g, seeds, without(g, drawn, exclude_edges))[1]
    of_nodes = (*block.src_frames.values(), *block.dst_frames.values())
    for frame in (*(() if copy_ndata else of_nodes), *(() if copy_edata else block.edge_frames.values())):
        frame.columns = {"_ID": frame["_ID"]}
    return block
