"""What functions and methods of sparse matrices ask of their arguments.

Takes: nothing. Gives: the bounds that stand above them. They are checked at every call, before anything is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import cast

import numpy as np
import torch
from torch import Tensor

from vgraph.arguments import COUNT, Bound, whole
from vgraph.errors import DTypeError, FunctionError


def _is_shape(given: object) -> bool:
    is_list = isinstance(given, (Sequence, Tensor, np.ndarray)) and not isinstance(given, (str, bytes))
    if not is_list or getattr(given, "ndim", 1) != 1:
        return False
    sizes = cast("Sequence[object]", given)
    return len(sizes) == 2 and all(map(COUNT.accepts, sizes))


def _pair(given: object) -> tuple[int, ...]:
    return tuple(map(index, cast("Sequence[int]", given)))


DIM = Bound("0 or 1", whole(0, 1).accepts, FunctionError)
SHAPE = Bound("how many rows and columns, a pair of whole numbers, 0 or more", _is_shape, number=_pair)
DTYPE = Bound("a torch.dtype", lambda given: isinstance(given, torch.dtype), DTypeError)
REDUCTION = Bound("a name", lambda given: isinstance(given, str), FunctionError)
