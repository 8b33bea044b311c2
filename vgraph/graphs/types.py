"""Types of what users give to functions of graphs, told once: ids, names of types, devices.

Takes: nothing. Gives: aliases, which say nothing at run time; ``resolve_ids`` and its like check what is given. Also a
type's name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

EdgeType: TypeAlias = tuple[str, str, str]  # (type of sources, name, type of destinations)
EType: TypeAlias = str | EdgeType | None  # a name, if it is one of its kind; None: the only type there is
Device: TypeAlias = torch.device | str | int | None  # None: where it is

Ids: TypeAlias = Tensor | NDArray[np.generic] | Sequence[int] | int | slice  # of one type; a mask, too
Nodes: TypeAlias = Ids | Mapping[str, Ids]
Ends: TypeAlias = tuple[Ids, Ids]  # edges by their sources and destinations
Edges: TypeAlias = Ids | Ends | Mapping[str, Ids | Ends] | Mapping[EdgeType, Ids | Ends]


def name_of(key: str | EdgeType) -> str:
    """What a type of nodes or edges is called."""
    return key if isinstance(key, str) else key[1]
