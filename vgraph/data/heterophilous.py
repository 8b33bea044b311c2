"""Graphs whose neighbours often differ (Tolokers, Minesweeper), from one .npz of plain arrays.

Takes: a file. Gives: a graph with one of its ten splits. Runs once per file.
Source: Platonov et al. 2023 (the data and the splits).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

import vgraph
from vgraph.arguments import COUNT, PATH, checked
from vgraph.data.planetoid import MOST_CLASSES, CitationGraph
from vgraph.errors import DataError
from vgraph.files import read_arrays

PARTS = ("train", "val", "test")


@checked(path=PATH, split=COUNT)
def load_heterophilous(path: str | Path, split: int = 0) -> CitationGraph:
    """The graph of ``tolokers.npz`` or its like, every edge in both directions; ``ndata`` as in ``load_planetoid``.

    Args:
        path: an .npz with node_features (n, f), node_labels (n,), edges (e, 2), of which each stands there once, and
            train_masks, val_masks, test_masks, each (splits, n).
        split: which of the splits, from 0 up.

    Returns:
        A CitationGraph.

    Raises:
        ArgumentError: ``split`` is no whole number from 0 up.
        DataError: the file is missing or malformed, or has no such split.

    Source: Platonov et al. 2023.

    Example:
        >>> import tempfile
        >>> arrays = {"node_features": [[1.0], [2.0]], "node_labels": [0, 1], "edges": [[0, 1]]}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.savez(f"{folder}/pair.npz", **arrays, **{f"{part}_masks": [[True, False]] for part in PARTS})
        ...     data = load_heterophilous(f"{folder}/pair.npz")
        >>> data.num_classes, data.graph.num_edges(), data.graph.ndata["test_mask"].tolist()
        (2, 2, [True, False])
    """
    members = read_arrays(path)
    kinds = {"node_features": "biuf", "node_labels": "iu", "edges": "iu"}
    feat, label, edges = (_member(members, name, path, kind) for name, kind in kinds.items())
    if feat.ndim != 2 or label.shape != feat.shape[:1] or edges.ndim != 2 or edges.shape[1] != 2:
        fact = f"node_features {feat.shape}, node_labels {label.shape} and edges {edges.shape} do not fit"
        raise DataError(fact, line=str(path), cure="store (n, f), (n,) and (e, 2)")
    count = len(feat)
    if edges.size and not (edges.min() >= 0 and edges.max() < count):
        fact = f"edges name vertices from {edges.min()} to {edges.max()} of {count}"
        raise DataError(fact, line=str(path), cure="number the vertices 0, 1, 2, ...")
    if label.size and not (label.min() >= 0 and label.max() < max(MOST_CLASSES, count)):
        fact = f"node_labels run from {label.min()} to {label.max()}"
        raise DataError(fact, line=str(path), cure="number the classes 0, 1, 2, ...")
    one, other = (torch.from_numpy(edges[:, i].astype(np.int64)) for i in (0, 1))
    graph = vgraph.graph((torch.cat([one, other]), torch.cat([other, one])), num_nodes=count)
    graph.ndata["feat"] = torch.from_numpy(feat.astype(np.float32))
    graph.ndata["label"] = torch.from_numpy(label.astype(np.int64))
    for part in PARTS:
        masks = _member(members, f"{part}_masks", path, "biu")
        if masks.ndim != 2 or masks.shape[1] != count or not 0 <= split < len(masks):
            fact = f"{part}_masks is {masks.shape}; split {split} of {count} vertices was asked for"
            raise DataError(fact, line=str(path), cure="store (splits, n), and ask for one of them")
        graph.ndata[f"{part}_mask"] = torch.from_numpy(masks[split].astype(np.bool_))
    return CitationGraph(graph, int(label.max(initial=-1)) + 1, feat.shape[1])


def _member(members: dict[str, NDArray[np.generic]], name: str, path: str | Path, kinds: str) -> NDArray[np.generic]:
    if name not in members:
        fact = f"member {name!r} is missing; the file has {', '.join(sorted(members))}"
        raise DataError(fact, line=str(path), cure="use the files of heterophilous-graphs")
    if members[name].dtype.kind not in kinds:
        fact = f"member {name!r} has dtype {members[name].dtype}"
        raise DataError(fact, line=str(path), cure="store numbers")
    return members[name]
