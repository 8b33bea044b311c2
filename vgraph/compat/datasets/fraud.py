"""Reviews and users, some of them fraudulent: Yelp and Amazon, with three relations each.

Takes: folders as DGL's archives have them. Gives: data sets of one graph. Runs once per set.
Source: Dou et al. 2020 (the data).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

import vgraph
from vgraph.compat.data import dgl_url
from vgraph.compat.datasets.kinds import StoredGraph, Transform, mask_of, whole
from vgraph.errors import DataError
from vgraph.files import dense_rows, read_matlab

ARCHIVES = {"yelp": ("FraudYelp.zip", "YelpChi.mat"), "amazon": ("FraudAmazon.zip", "Amazon.mat")}
RELATIONS = {"yelp": ("net_rsr", "net_rtr", "net_rur"), "amazon": ("net_upu", "net_usu", "net_uvu")}
NODES = {"yelp": "review", "amazon": "user"}
UNLABELLED = 3305  # so many of Amazon's users come first, and have no label


class FraudDataset(StoredGraph):
    """A graph with ``feature``, ``label``, ``train_mask``, ``val_mask`` and ``test_mask``, drawn by ``random_seed``."""

    num_classes = 2

    def __init__(
        self,
        name: str,
        raw_dir: str | None = None,
        random_seed: int = 717,
        train_size: float = 0.7,
        val_size: float = 0.1,
        force_reload: bool = False,
        verbose: bool = True,
        transform: Transform | None = None,
    ) -> None:
        if name not in ARCHIVES or not 0 <= train_size + val_size <= 1:
            fact = f"there is no part {train_size} + {val_size} of {name!r}"
            raise DataError(fact, cure="name yelp or amazon, and parts of 1 in all")
        self.seed, self.train_size, self.val_size = random_seed, train_size, val_size
        super().__init__(
            name,
            dgl_url(f"dataset/{ARCHIVES[name][0]}"),
            raw_dir,
            hash_key=(random_seed, train_size, val_size),
            force_reload=force_reload,
            verbose=verbose,
            transform=transform,
        )

    def read(self, folder: Path) -> None:
        path = folder / ARCHIVES[self.name][1]
        found = read_matlab(path, ("features", "label", *RELATIONS[self.name]))
        label, kind = found["label"].reshape(-1), NODES[self.name]
        edges = {(kind, name, kind): found[name].tocoo() for name in RELATIONS[self.name]}
        ends = {name: (whole(matrix.row), whole(matrix.col)) for name, matrix in edges.items()}
        self.graph = self._graph = g = vgraph.heterograph(ends, {kind: len(label)})
        g.ndata["feature"] = torch.from_numpy(dense_rows(found["features"], path))
        g.ndata["label"] = torch.from_numpy(label.astype(np.int64))
        first = UNLABELLED if self.name == "amazon" else 0
        order = np.random.RandomState(self.seed).permutation(np.arange(min(first, len(label)), len(label)))
        train, val = int(self.train_size * len(order)), len(order) - int(self.val_size * len(order))
        for part, ids in (("train", order[:train]), ("val", order[val:]), ("test", order[train:val])):
            g.ndata[f"{part}_mask"] = mask_of(ids, len(label))


class FraudYelpDataset(FraudDataset):
    """Reviews of Yelp."""

    def __init__(
        self,
        raw_dir: str | None = None,
        random_seed: int = 717,
        train_size: float = 0.7,
        val_size: float = 0.1,
        force_reload: bool = False,
        verbose: bool = True,
        transform: Transform | None = None,
    ) -> None:
        super().__init__("yelp", raw_dir, random_seed, train_size, val_size, force_reload, verbose, transform=transform)


class FraudAmazonDataset(FraudDataset):
    """Users of Amazon."""

    def __init__(
        self,
        raw_dir: str | None = None,
        random_seed: int = 717,
        train_size: float = 0.7,
        val_size: float = 0.1,
        force_reload: bool = False,
        verbose: bool = True,
        transform: Transform | None = None,
    ) -> None:
        super().__init__(
            "amazon", raw_dir, random_seed, train_size, val_size, force_reload, verbose, transform=transform
        )
