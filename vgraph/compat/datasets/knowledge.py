"""Knowledge graphs: FB15k, FB15k-237, WN18.

Takes: folders as DGL's archives have them. Gives: data sets of one graph. Runs once per set.
Source: Bordes et al. 2013, Toutanova and Chen 2015 (the data).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from vgraph.compat.data import dgl_url
from vgraph.compat.datasets.kinds import StoredGraph, Transform, graph_of
from vgraph.errors import DataError
from vgraph.files import read_text

PARTS = ("train", "valid", "test")


class KnowledgeGraphDataset(StoredGraph):
    """A graph from ``entities.dict``, ``relations.dict`` and triplets in ``train.txt``, ``valid.txt``, ``test.txt``.

    ``edata``: ``etype`` (the relation), ``train_mask``, ``val_mask``, ``test_mask``, and ``train_edge_mask`` ...:
    the same without reversed edges. Edges stand relation by relation, reversed ones after all others.
    """

    suffix = ".tgz"

    def __init__(
        self,
        name: str,
        reverse: bool = True,
        raw_dir: str | None = None,
        force_reload: bool = False,
        verbose: bool = True,
        transform: Transform | None = None,
    ) -> None:
        self.reverse = reverse
        url = dgl_url(f"dataset/{name}.tgz")
        super().__init__(name, url, raw_dir, force_reload=force_reload, verbose=verbose, transform=transform)

    def read(self, folder: Path) -> None:
        inner = folder / self.name
        folder = inner if inner.is_dir() else folder
        entities, relations = (_numbers(folder / f"{kind}.dict") for kind in ("entities", "relations"))
        triplets = [_triplets(folder / f"{part}.txt", entities, relations) for part in PARTS]
        self._train, self._valid, self._test = triplets
        self.num_nodes, self.num_rels = len(entities), len(relations)
        ends = np.concatenate(triplets)
        part = np.repeat([1, 2, 3], [len(rows) for rows in triplets])
        order = _by_first_use(ends[:, 1])
        src, relation, dst = ends[order].T
        part = part[order]
        stated = part
        if self.reverse:
            src, dst = np.concatenate([src, dst]), np.concatenate([dst, src])
            relation = np.concatenate([relation, relation + self.num_rels])
            part, stated = np.concatenate([part, part]), np.concatenate([part, np.zeros_like(part)])
        g = graph_of(src, dst, self.num_nodes)
        for number, (edge, mask) in enumerate((("train", "train"), ("valid", "val"), ("test", "test")), 1):
            g.edata[f"{edge}_edge_mask"] = torch.from_numpy(stated == number)
            g.edata[f"{mask}_mask"] = torch.from_numpy(part == number)
        g.edata["etype"] = torch.from_numpy(relation.copy())
        g.ndata["ntype"] = torch.zeros(self.num_nodes, dtype=torch.int64)
        self._g = self._graph = g

    @property
    def train(self) -> NDArray[np.int64]:
        """(edges, 3): subject, relation, object."""
        return self._train

    @property
    def valid(self) -> NDArray[np.int64]:
        """As ``train``."""
        return self._valid

    @property
    def test(self) -> NDArray[np.int64]:
        """As ``train``."""
        return self._test


def _by_first_use(relation: NDArray[np.int64]) -> NDArray[np.int64]:
    """The order in which relations stand one after the other, that which is used first before all."""
    _, first, which = np.unique(relation, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(np.argsort(first))[which], kind="stable")


def _lines(path: Path, cells: int) -> Iterable[tuple[int, list[str]]]:
    for number, line in enumerate(read_text(path).split("\n"), 1):
        words = line.strip().split("\t")
        if words == [""]:
            continue
        if len(words) != cells:
            raise DataError(f"there are not {cells} cells", line=f"{path}:{number}", cure="separate them by tabs")
        yield number, words


def _numbers(path: Path) -> dict[str, int]:
    found = {name: int(number) for _, (number, name) in _lines(path, 2)}
    if sorted(found.values()) != list(range(len(found))):
        raise DataError(f"its {len(found)} names are not 0, 1, ...", line=str(path), cure="unpack DGL's archive anew")
    return found


def _triplets(path: Path, entities: Mapping[str, int], relations: Mapping[str, int]) -> NDArray[np.int64]:
    found: list[tuple[int, int, int]] = []
    for number, (subject, relation, value) in _lines(path, 3):
        if subject not in entities or value not in entities or relation not in relations:
            fact = "a name is not in entities.dict or relations.dict"
            raise DataError(fact, line=f"{path}:{number}", cure="unpack DGL's archive anew")
        found.append((entities[subject], relations[relation], entities[value]))
    return np.array(found, np.int64).reshape(-1, 3)


class _Stated(KnowledgeGraphDataset):
    set_name = ""

    def __init__(
        self,
        reverse: bool = True,
        raw_dir: str | None = None,
        force_reload: bool = False,
        verbose: bool = True,
        transform: Transform | None = None,
    ) -> None:
        super().__init__(self.set_name, reverse, raw_dir, force_reload, verbose, transform)


class FB15k237Dataset(_Stated):
    """Freebase with 237 relations, none of them the reverse of another."""

    set_name = "FB15k-237"


class FB15kDataset(_Stated):
    """Freebase with 1,345 relations."""

    set_name = "FB15k"


class WN18Dataset(_Stated):
    """WordNet with 18 relations."""

    set_name = "wn18"


def load_data(dataset: str) -> KnowledgeGraphDataset:
    """A knowledge graph by name."""
    known: dict[str, type[_Stated]] = {kind.set_name: kind for kind in (FB15k237Dataset, FB15kDataset, WN18Dataset)}
    if dataset not in known:
        raise DataError(f"there is no knowledge graph {dataset!r}", cure=f"name one of {', '.join(known)}")
    return known[dataset]()
