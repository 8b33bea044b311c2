"""Names that DGL's programs use and that are no better called anything else in vgraph.

Takes: nothing. Gives: constants, the class of graphs, errors. Runs once per process.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

import vgraph
from vgraph.compat import arguments
from vgraph.errors import VGraphError

__version__ = "1.1.3+vgraph"  # what programs compare
ALL, NID, EID, NTYPE, ETYPE = vgraph.ALL, vgraph.NID, vgraph.EID, vgraph.NTYPE, vgraph.ETYPE
DGLGraph = DGLHeteroGraph = vgraph.Graph
DGLError = VGraphError
seed = vgraph.seed
apply_each = arguments.apply_each


class DGLWarning(UserWarning):
    """A warning that a program raises with ``dgl_warning``."""


def dgl_warning(message: str, category: type[Warning] = DGLWarning, stacklevel: int = 2) -> None:
    """Warns."""
    warnings.warn(message, category, stacklevel=stacklevel)


def is_internal_column(name: str) -> bool:
    """Whether a feature's name is one that functions of graphs write."""
    return name in (NID, NTYPE)


def is_all(arg: object) -> bool:
    """Whether an argument is DGL's word for all nodes or edges."""
    return isinstance(arg, str) and arg == ALL


def save_graphs(
    filename: str | Path,
    g_list: vgraph.Graph | Sequence[vgraph.Graph],
    labels: Mapping[str, Tensor] | None = None,
    formats: object = None,
) -> None:
    """``vgraph.save_graphs``, which here makes the folder, too."""
    Path(filename).parent.mkdir(parents=True, exist_ok=True)
    vgraph.save_graphs(filename, g_list, labels, formats)
