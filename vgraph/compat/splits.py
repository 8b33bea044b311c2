"""``dgl.data.utils``: parts of data sets, and masks.

Takes: data sets, ids. Gives: data sets, masks. Runs once per data set.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, Protocol

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
