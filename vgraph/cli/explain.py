"""How a built-in model is run: its Programs, phases and schedule, as ``vgraph.explain`` shows them.

Takes: a name. Gives: text, and a picture. Runs once.
"""

from __future__ import annotations

import torch

import vgraph
from vgraph.nn import ChildSumTreeLSTM, GATConv, GraphConv, NaryTreeLSTM


def explain(name: str, picture: str | None = None) -> str:
    """The explanation of a model on a tree of seven vertices, or of a layer on a square with self-loops.

    ``picture``: an SVG file that is to show it; None: none.
    """
    if name in ("gcn", "gat"):
        square = vgraph.add_self_loop(vgraph.graph(([0, 1, 2, 3], [1, 2, 3, 0])))
        layer = GraphConv(16, 8, activation=torch.relu) if name == "gcn" else GATConv(16, 4, num_heads=2)
        found = vgraph.explain(layer, square, torch.ones(4, 16, requires_grad=True))
    else:
        tree = vgraph.graph(([0, 1, 2, 3, 4, 5], [4, 4, 5, 5, 6, 6]))
        cell = ChildSumTreeLSTM(8, 16) if name == "tree-lstm" else NaryTreeLSTM(8, 16)
        found = vgraph.explain(cell, tree, x=torch.ones(7, 8))
    if picture is not None:
        found.save(picture)
    return str(found)
