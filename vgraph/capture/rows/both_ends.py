"""BothEnds: what stands for an edge_index within a function that takes it whole.

Takes: calls of torch functions. Gives: the ids of one end, and sizes; all else is refused. Runs while a function is
traced. Source: Fey and Lenssen 2019 (PyG), section 2 (edges as pairs of ids).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from vgraph.capture.errors import CaptureError
from vgraph.capture.record.row_counts import plain_arguments
from vgraph.capture.rows.indexed_rows import IndexedRows, as_indexed
from vgraph.capture.rows.row_tensor import PROPERTIES, TorchFunction
from vgraph.user_line import recorded_line


class BothEnds(IndexedRows):
    """The ids of the first and the second end of every edge, (2, edges), of which a function takes one or the other.

    Its rows are no rows of nodes or edges: what computes with both ends at once would mix them.
    """

    ends: tuple[IndexedRows, IndexedRows]

    @classmethod
    def of(cls, first: IndexedRows, second: IndexedRows) -> BothEnds:
        """``first``, ``second``: ids, one an edge."""
        both = torch.empty((2, 0), dtype=torch.int64).as_subclass(cls)
        as_indexed(both, first.joins)
        both.ends = (first, second)
        return both

    @classmethod
    def __torch_function__(
        cls,
        func: TorchFunction,
        types: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        args, named = plain_arguments(args, kwargs)
        answer = _ANSWERS.get(func)
        found = answer(*args, **named) if answer is not None and isinstance(args[0], cls) else None
        if found is None:
            raise CaptureError("it computes with both ends of edges at once", recorded_line())
        return found


def _item(both: BothEnds, index: object) -> Tensor | None:
    """``edge_index[0]``, ``edge_index[1, :]``."""
    first, *others = index if isinstance(index, tuple) else (index,)
    if type(first) is not int or not -2 <= first < 2 or others not in ([], [slice(None)], [...]):
        return None
    return both.ends[first]


def _select(both: BothEnds, dim: int, index: int) -> Tensor | None:
    return _item(both, index) if dim in (0, -2) else None


def _unbind(both: BothEnds, dim: int = 0) -> Sequence[Tensor] | None:
    return both.ends if dim in (0, -2) else None


def _shape(both: BothEnds) -> torch.Size:
    return torch.Size((2, *both.ends[0].shape))


def _size(both: BothEnds, dim: int | None = None) -> object:
    return _shape(both) if dim is None else _shape(both)[dim]


def _of_an_end(property_of: TorchFunction) -> Callable[[BothEnds], object]:
    return lambda both: property_of(both.ends[0])


_ANSWERS: dict[TorchFunction, Callable[..., object]] = {
    **{prop: _of_an_end(prop) for prop in PROPERTIES},
    **{getattr(Tensor, name).__get__: answer for name, answer in (("shape", _shape), ("ndim", lambda _: 2))},
    Tensor.dim: lambda _: 2,
    Tensor.size: _size,
    Tensor.__len__: lambda _: 2,
    Tensor.__getitem__: _item,
    **dict.fromkeys((torch.select, Tensor.select), _select),
    **dict.fromkeys((torch.unbind, Tensor.unbind), _unbind),
}
