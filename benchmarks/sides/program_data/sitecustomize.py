"""Data for PyG's example programs, which would download theirs: from local files, else drawn, of about the same size.

A process that has this folder on its path when Python starts gets it; the program itself is not changed. Environment:
PROGRAM_DATA is a folder with cora.npz and MUTAG.txt, or nothing; PROGRAM_COMPILES is 1 if torch.compile is to run
each layer that passes messages. Random numbers start from seed 0, so that all sides draw the same parameters.
"""

from __future__ import annotations

import os
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PyG's import uses what torch has deprecated
    from torch_geometric import datasets
    from torch_geometric.data import Data, InMemoryDataset
    from torch_geometric.nn import MessagePassing
    from torch_geometric.utils import coalesce, to_undirected

SEED = int(os.environ.get("PROGRAM_SEED", "0"))


class Given(InMemoryDataset):
    """Graphs that are at hand."""

    def __init__(self, graphs: list[Data], transform: Callable[[Data], Data] | None = None) -> None:
        super().__init__(None, transform)
        self.data, self.slices = self.collate(graphs)


class Planetoid(Given):
    """Cora, or a citation graph of its size."""

    def __init__(self, root: str, name: str, *_: object, transform: Any = None, **_named: object) -> None:
        super().__init__([cora(find("cora.npz"))], transform)


class TUDataset(Given):
    """MUTAG, or molecules."""

    def __init__(self, root: str, name: str, *_: object, transform: Any = None, **_named: object) -> None:
        path = find("MUTAG.txt")
        super().__init__(list(read_mutag(path) if path else molecules(188, 7)), transform)


class ZINC(Given):
    """Molecules with a number to learn."""

    def __init__(self, root: str, subset: bool, split: str) -> None:
        graphs = list(molecules(1024 if split == "train" else 128, 21, seed=len(split)))
        for graph in graphs:
            graph.x, graph.y = graph.x.argmax(1, keepdim=True), graph.x.argmax(1).float().mean().view(1)
            graph.edge_attr = graph.edge_index.sum(0) % 4
        super().__init__(graphs)


class Entities(Given):
    """As large as AIFB: nodes without features, relations, a few nodes with classes."""

    def __init__(self, root: str, name: str) -> None:
        made, nodes = torch.Generator().manual_seed(SEED), 8285
        edge_index = torch.randint(nodes, (2, 58086), generator=made)
        kinds = torch.randint(90, (58086,), generator=made)
        chosen = torch.randperm(nodes, generator=made)[:176]
        classes = kinds.new_zeros(nodes).scatter_reduce_(0, edge_index[1], kinds, "amax")[chosen] % 4
        graph = Data(edge_index=edge_index, edge_type=kinds, num_nodes=nodes)
        graph.train_idx, graph.test_idx = chosen[:140], chosen[140:]
        graph.train_y, graph.test_y = classes[:140], classes[140:]
        super().__init__([graph])

    num_relations, num_classes = 90, 4


# ---------------------------------------------------------------- graphs
def find(name: str) -> Path | None:
    folder = os.environ.get("PROGRAM_DATA")
    return next(iter(sorted(Path(folder).rglob(name))), None) if folder else None


def cora(path: Path | None) -> Data:
    if path is None:
        return citations()
    stored = np.load(path, allow_pickle=False)
    x = torch.zeros(tuple(stored["feat_shape"]))
    rows = np.repeat(np.arange(len(x)), np.diff(stored["feat_indptr"]))
    x[rows, stored["feat_indices"]] = torch.from_numpy(stored["feat_data"])
    edge_index = coalesce(torch.from_numpy(np.stack([stored["src"], stored["dst"]])))
    graph = Data(x=x, edge_index=edge_index, y=torch.from_numpy(stored["label"]))
    for name in ("train_mask", "val_mask", "test_mask"):
        graph[name] = torch.from_numpy(stored[name])
    return graph


def citations() -> Data:
    """Nodes of one class cite one another more often, and share words."""
    made, nodes = torch.Generator().manual_seed(SEED), 2708
    y = torch.randint(7, (nodes,), generator=made)
    near = y.argsort()[(y.argsort().argsort() + torch.randint(-99, 100, (2, nodes), generator=made)) % nodes]
    edge_index = to_undirected(torch.stack([torch.arange(nodes).repeat(2), near.flatten()]))
    words = torch.randint(204, (nodes, 18), generator=made) + 204 * y[:, None]
    graph = Data(x=torch.zeros(nodes, 1433).scatter_(1, words, 1.0), edge_index=edge_index, y=y)
    for name, (first, last) in {"train": (0, 140), "val": (140, 640), "test": (1708, 2708)}.items():
        graph[f"{name}_mask"] = (torch.arange(nodes) >= first) & (torch.arange(nodes) < last)
    return graph


def read_mutag(path: Path) -> Iterator[Data]:
    """Lines of the file: how many graphs; of each, its size and label; of each node, its kind and neighbours."""
    lines = iter(path.read_text().splitlines())
    for _ in range(int(next(lines))):
        nodes, label = map(int, next(lines).split())
        told = [[int(word) for word in next(lines).split()] for _ in range(nodes)]
        src = [i for i, (_, count, *_) in enumerate(told) for _ in range(count)]
        dst = [j for _, _, *neighbours in told for j in neighbours]
        x = torch.nn.functional.one_hot(torch.tensor([kind for kind, *_ in told]), 7).float()
        yield Data(x=x, edge_index=torch.tensor([src, dst]), y=torch.tensor([int(label > 0) if label > -1 else 0]))


def molecules(count: int, kinds: int, seed: int = SEED) -> Iterator[Data]:
    """Chains of atoms with a few rings."""
    made = torch.Generator().manual_seed(seed)
    for number in range(count):
        atoms = int(torch.randint(12, 29, (), generator=made))
        rings = torch.randint(atoms, (2, 3), generator=made)
        bonds = torch.cat([torch.stack([torch.arange(atoms - 1), torch.arange(1, atoms)]), rings], 1)
        bonds: Tensor = to_undirected(bonds[:, bonds[0] != bonds[1]])
        x = torch.nn.functional.one_hot(torch.randint(kinds, (atoms,), generator=made), kinds).float()
        yield Data(x=x, edge_index=bonds, y=torch.tensor([number % 2]))


# ---------------------------------------------------------------- a program's process
def compile_layers() -> None:
    """Every layer that passes messages compiles its ``forward`` at its first call."""
    make = MessagePassing.__init__

    def made(self: Any, *args: Any, **named: Any) -> None:
        make(self, *args, **named)
        self.compile()

    MessagePassing.__init__ = made


def main() -> None:
    for kind in (Planetoid, TUDataset, ZINC, Entities):
        setattr(datasets, kind.__name__, kind)
    random.seed(SEED)
    np.random.seed(SEED)
    torch.manual_seed(SEED)
    sys.dont_write_bytecode = True
    if os.environ.get("PROGRAM_COMPILES") == "1":
        compile_layers()


main()
