"""How a built-in model is run: its Programs, phases and schedule, as ``vgraph.explain`` shows them.

Takes: a name. Gives: text. Runs once.
"""

from __future__ import annotations

import torch

import vgraph
import vgraph.function as fn
from vgraph.nn import ChildSumTreeLSTM, NaryTreeLSTM


def explain(name: str) -> str:
    """The explanation of a model on a tree of seven vertices, or on a square with self-loops."""
    if name == "gcn":
        square = vgraph.add_self_loop(vgraph.graph(([0, 1, 2, 3], [1, 2, 3, 0])))
        square.ndata["h"] = torch.ones(4, 16)
        return str(vgraph.explain(square, fn.copy_u("h", "m"), fn.sum("m", "h")))
    tree = vgraph.graph(([0, 1, 2, 3, 4, 5], [4, 4, 5, 5, 6, 6]))
    cell = ChildSumTreeLSTM(8, 16) if name == "tree-lstm" else NaryTreeLSTM(8, 16)
    return str(vgraph.explain(cell, tree, x=torch.ones(7, 8)))
