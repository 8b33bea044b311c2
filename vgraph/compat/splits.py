"""``dgl.data.utils``: parts of data sets, and masks.

Takes: data sets, ids. Gives: data sets, masks. Runs once per data set.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any, Protocol, cast

import networkx
import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from vgraph.errors import GraphError


class Dataset(Protocol):
    """Samples by number."""

    def __getitem__(self, item: int, /) -> Any: ...
    def __len__(self) -> int: ...


class Subset:
    """Some samples of a data set."""

    def __init__(self, dataset: Dataset, indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, item: int) -> Any:
        return self.dataset[int(self.indices[item])]

    def __len__(self) -> int:
        return len(self.indices)


def split_dataset(
    dataset: Dataset, frac_list: Sequence[float] | None = None, shuffle: bool = False, random_state: int | None = None
) -> list[Subset]:
    """A data set in parts of these shares, 0.8, 0.1 and 0.1 unless said otherwise.

    Raises:
        GraphError: the shares do not sum to 1.
    """
    shares = [0.8, 0.1, 0.1] if frac_list is None else list(frac_list)
    if not math.isclose(sum(shares), 1.0, abs_tol=1e-6):
        raise GraphError(f"the shares sum to {sum(shares)}", cure="give shares that sum to 1")
    count = len(dataset)
    order = np.random.RandomState(random_state).permutation(count) if shuffle else np.arange(count)
    sizes = [int(count * share) for share in shares]
    sizes[-1] = count - sum(sizes[:-1])
    return [Subset(dataset, order[low:high].tolist()) for low, high in pairwise([0, *accumulate(sizes)])]


def idx2mask(idx: ArrayLike, len: int) -> NDArray[np.bool_]:
    """A boolean array, true at these places."""
    mask = np.zeros(len, bool)
    mask[np.asarray(idx)] = True
    return mask


def generate_mask_tensor(mask: ArrayLike) -> Tensor:
    """A mask as a boolean tensor."""
    return torch.as_tensor(np.asarray(mask), dtype=torch.bool)


def add_nodepred_split(dataset: Dataset, ratio: Sequence[float], ntype: str | None = None) -> None:
    """Gives the nodes of every graph ``train_mask``, ``val_mask`` and ``test_mask``, drawn by these three shares.

    Raises:
        GraphError: there are not three.
    """
    if len(ratio) != 3:
        raise GraphError(f"there are {len(ratio)} shares", cure="give three, of train, val and test")
    for number in range(len(dataset)):
        g = dataset[number]
        count = g.num_nodes(ntype)
        order = np.random.permutation(count)
        train, val = int(count * ratio[0]), int(count * ratio[1])
        data = g.nodes[ntype].data if ntype else g.ndata
        for part, ids in (
            ("train", order[:train]),
            ("val", order[train : train + val]),
            ("test", order[train + val :]),
        ):
            data[f"{part}_mask"] = torch.from_numpy(idx2mask(ids, count))


def mask_nodes_by_property(
    property_values: ArrayLike, part_ratios: Sequence[float], random_seed: int | None = None
) -> dict[str, Tensor]:
    """Five masks of these shares: nodes in order of a property, the first three parts of them mixed."""
    values = np.asarray(property_values)
    count = len(values)
    sizes = np.round(count * np.array(part_ratios)).astype(int)
    sizes[-1] -= sizes.sum() - count
    rng = np.random.RandomState(random_seed)
    order = rng.permutation(count)
    order = order[np.argsort(values[order])]
    order[: sizes[:3].sum()] = rng.permutation(order[: sizes[:3].sum()])
    names = ("in_train_mask", "in_valid_mask", "in_test_mask", "out_valid_mask", "out_test_mask")
    parts = np.split(order, np.cumsum(sizes))[:-1]
    return {name: torch.from_numpy(idx2mask(ids, count)) for name, ids in zip(names, parts, strict=True)}


def add_node_property_split(
    dataset: Dataset,
    part_ratios: Sequence[float],
    property_name: str,
    ascending: bool = True,
    random_seed: int | None = None,
) -> None:
    """Gives the nodes of every graph five masks by "popularity", "locality" or "density".

    They are its PageRank, its PageRank seen from the most popular node, its clustering coefficient. ``ascending``
    puts the largest first, as in DGL.

    Raises:
        GraphError: there are not five shares, or no such property.
    """
    if property_name not in _PROPERTIES or len(part_ratios) != 5:
        fact = f"there are {len(part_ratios)} shares by {property_name!r}"
        raise GraphError(fact, cure=f"give five, by one of {', '.join(_PROPERTIES)}")
    for number in range(len(dataset)):
        g = dataset[number]
        found = _PROPERTIES[property_name](networkx.Graph(g.to_networkx()))
        values = np.array(list(found.values())) * (-1 if ascending else 1)
        for name, mask in mask_nodes_by_property(values, part_ratios, random_seed).items():
            g.ndata[name] = mask


def _locality(graph: networkx.Graph[int]) -> dict[int, float]:
    ranks = networkx.pagerank(graph)
    return networkx.pagerank(graph, personalization={max(ranks, key=ranks.__getitem__): 1.0})


_PROPERTIES: dict[str, Callable[[networkx.Graph[int]], dict[int, float]]] = {
    "popularity": lambda graph: networkx.pagerank(graph),
    "locality": _locality,
    "density": lambda graph: cast("dict[int, float]", networkx.clustering(graph)),
}
