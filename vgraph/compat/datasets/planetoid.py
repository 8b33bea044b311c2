"""Cora, CiteSeer and PubMed as DGL's archives have them: eight files ``ind.*``.

Takes: a folder. Gives: a graph and how many classes it has. Runs once per file.
Source: Yang et al. 2016 (the files and the split), Kipf and Welling 2017 (row-normalised features).
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

import networkx
import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray

import vgraph
from vgraph.errors import DataError
from vgraph.files import Pickled, SparseMatrix, check_vertices, damage_told, dense_rows, read_pickle, read_text

PARTS = ("x", "y", "tx", "ty", "allx", "ally", "graph")
VALIDATED = 500  # so many nodes after those of train
CURE = "unpack DGL's archive anew"


def read_planetoid(folder: Path, name: str, *, reverse_edge: bool) -> tuple[vgraph.Graph, int]:
    """The graph of ``ind.name.x`` and its companions: ``feat``, ``label``, ``train_mask``, ``val_mask``, ``test_mask``.

    Raises:
        DataError: a file is missing or damaged, or they do not fit each other.
    """
    found = {part: read_pickle(folder / f"ind.{name}.{part}", CURE) for part in PARTS}
    places = folder / f"ind.{name}.test.index"
    with damage_told(folder, CURE, fact="the files do not fit each other"):
        tested = np.array([int(word) for word in read_text(places).split()])
        features, onehot = _joined(found, tested, places)
        label = onehot.argmax(1)
        g = _graph_of(found["graph"], len(label), reverse_edge)
        for part, chosen in (
            ("train", slice(len(found["y"]))),
            ("val", slice(len(found["y"]), len(found["y"]) + VALIDATED)),
            ("test", np.sort(tested)),
        ):
            mask = np.zeros(len(label), np.bool_)
            mask[chosen] = True
            g.ndata[f"{part}_mask"] = torch.from_numpy(mask)
        g.ndata["label"] = torch.from_numpy(label)
        g.ndata["feat"] = torch.from_numpy(_normalized(features, folder / f"ind.{name}.allx"))
    return g, onehot.shape[1]


def _joined(found: dict[str, Pickled], tested: NDArray[np.int64], path: Path) -> tuple[SparseMatrix, NDArray[np.int64]]:
    """Features and labels of all nodes; those of test stand in the order of ``tested``, and some have none."""
    order = np.sort(tested)
    span = range(order[0], order[-1] + 1)
    check_vertices(len(span), path.stat().st_size, str(path), CURE)
    if order[0] != found["allx"].shape[0] or len(order) != found["tx"].shape[0]:
        raise ValueError(f"test begins at {order[0]}, and {found['allx'].shape[0]} nodes come before it")
    rows = scipy.sparse.coo_matrix(found["tx"])
    spread = scipy.sparse.coo_matrix(
        (rows.data, (order[rows.row] - order[0], rows.col)), shape=(len(span), found["allx"].shape[1])
    )
    features = cast("SparseMatrix", scipy.sparse.vstack([found["allx"], spread]).tocsr())
    onehot = np.zeros((features.shape[0], found["ally"].shape[1]), np.int64)
    onehot[: len(found["ally"])] = found["ally"]
    onehot[order] = found["ty"]
    source = np.arange(features.shape[0])
    source[tested] = order
    return features[source], onehot[source]


def _normalized(features: SparseMatrix, path: Path) -> NDArray[np.float32]:
    dense = dense_rows(features, path)
    total = dense.sum(1, keepdims=True)
    dense /= np.where(total == 0, np.float32(1), total)
    return dense


def _graph_of(lists: Pickled, count: int, reverse_edge: bool) -> vgraph.Graph:
    """Nodes are 0, 1, ...; every edge once or, as most programs want it, in both directions."""
    if not isinstance(lists, dict) or set(lists) != set(range(count)):
        raise DataError(f"its lists of neighbours are not those of {count} nodes", cure=CURE)
    undirected = networkx.from_dict_of_lists(lists)
    if reverse_edge:
        return vgraph.from_networkx(networkx.DiGraph(undirected))
    ends = np.array(list(undirected.edges), np.int64).reshape(-1, 2)
    return vgraph.graph((torch.from_numpy(ends[:, 0].copy()), torch.from_numpy(ends[:, 1].copy())), num_nodes=count)
