"""DistTensor: a feature of all nodes or edges, of which every process has its own rows.

Takes: ids of any rows. Gives: the rows; brackets exchange them, so that all processes use them at the same time.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

import torch
from torch import Tensor

from vgraph.compat.distributed.partition_book import PartitionPolicy
from vgraph.distributed.fetch import fetch_from, put_to
from vgraph.errors import DTypeError, FeatureError, GraphError
from vgraph.runtime.distributed.ranks import current_ranks

_newest: list[Callable[[], list[PartitionPolicy]]] = []  # what tensors without a policy are rows of


class DistTensor:
    """A feature with a row for every node, or edge, of all processes.

    ``tensor[ids]`` gives rows by new ids and ``tensor[ids] = rows`` writes them, on whichever process has them: all
    processes do so at the same time, also those that ask for no row. ``shape`` and ``len`` count the rows of all.
    Everything else that is done with it, such as arithmetic, is done with own rows, ``local_partition``.
    """

    part_policy: PartitionPolicy
    name: str | None
    local_partition: Tensor
    _frame: MutableMapping[str, Tensor] | None

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: torch.dtype = torch.float32,
        name: str | None = None,
        init_func: Callable[[tuple[int, ...], torch.dtype], Tensor] | None = None,
        part_policy: PartitionPolicy | None = None,
        persistent: bool = False,
        is_gdata: bool = True,
        attach: bool = True,
    ) -> None:
        self.part_policy = _policy_for(shape[0]) if part_policy is None else part_policy
        if self.part_policy.get_size() != shape[0]:
            fact = f"the tensor has {shape[0]} rows, and there are {self.part_policy.get_size()} of its policy"
            raise FeatureError(fact, cure="give the policy of the nodes or edges that the rows are of")
        own = (self.part_policy.get_part_size(), *shape[1:])
        made = torch.zeros(own, dtype=dtype) if init_func is None else init_func(own, dtype)
        self.name, self.local_partition, self._frame = name, made, None

    @classmethod
    def of(cls, frame: MutableMapping[str, Tensor], name: str, policy: PartitionPolicy) -> DistTensor:
        """A feature of a graph, which has what is written here."""
        made = cls.__new__(cls)
        made.part_policy, made.name, made._frame = policy, name, frame
        made.local_partition = frame[name]
        return made

    # ------------------------------------------------------------ of all processes
    @property
    def shape(self) -> torch.Size:
        """The number of rows of all processes, and the shape of a row."""
        return torch.Size((self.part_policy.get_size(), *self.local_partition.shape[1:]))

    def __len__(self) -> int:
        return self.part_policy.get_size()

    def __getitem__(self, ids: Any) -> Tensor:
        asked = self._ids(ids)
        found = fetch_from(current_ranks(), self.part_policy.bounds, self.local_partition, asked.reshape(-1), "rows")
        return found.reshape((*asked.shape, *found.shape[1:]))

    def __setitem__(self, ids: Any, rows: Any) -> None:
        asked, own = self._ids(ids).reshape(-1), self.local_partition
        given = torch.as_tensor(rows, dtype=own.dtype).expand(len(asked), *own.shape[1:])
        self.local_partition = put_to(current_ranks(), self.part_policy.bounds, own, asked, given)
        if self._frame is not None and self.name is not None:
            self._frame[self.name] = self.local_partition

    def _ids(self, given: Any) -> Tensor:
        """New ids; a mask or a slice is one of all rows."""
        if isinstance(given, slice):
            return torch.arange(*given.indices(len(self)))
        asked = torch.as_tensor(given.local_partition if isinstance(given, DistTensor) else given)
        asked = asked if asked.numel() else asked.long()
        if asked.dtype == torch.bool:
            if asked.shape != (len(self),):
                fact = f"a mask has shape {tuple(asked.shape)} where there are {len(self)} rows on all processes"
                raise GraphError(fact, cure="give a mask of all rows, or their ids")
            return asked.nonzero().squeeze(1)
        if asked.is_floating_point() or asked.is_complex():
            raise DTypeError(f"ids are {asked.dtype}", cure="give whole numbers")
        asked = asked.long()
        asked = torch.where(asked < 0, asked + len(self), asked)
        if asked.numel() and not 0 <= int(asked.min()) <= int(asked.max()) < len(self):
            raise GraphError(f"an id is not among the {len(self)} rows", cure="give ids from 0 up, below len(tensor)")
        return asked

    # ------------------------------------------------------------ of own rows
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in DistTensor.__annotations__:
            raise AttributeError(name)
        return getattr(self.local_partition, name)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*map(own_rows, args), **{name: own_rows(one) for name, one in (kwargs or {}).items()})

    def __repr__(self) -> str:
        return f"DistTensor({self.name!r}, shape={tuple(self.shape)}, dtype={self.dtype})"


def own_rows(given: Any) -> Any:
    """Own rows of a DistTensor, also within lists; whatever else as it is."""
    if isinstance(given, DistTensor):
        return given.local_partition
    return type(given)(map(own_rows, given)) if type(given) in (list, tuple) else given


def _binary(function: Callable[[Any, Any], Any], *, swapped: bool = False) -> Any:
    def method(self: DistTensor, other: Any) -> Any:
        mine, theirs = self.local_partition, own_rows(other)
        return function(theirs, mine) if swapped else function(mine, theirs)

    return method


def _unary(function: Callable[[Any], Any]) -> Any:
    return lambda self: function(self.local_partition)


for _name in "add sub mul truediv floordiv mod pow matmul and or xor".split():
    _function = getattr(operator, f"__{_name}__")
    setattr(DistTensor, f"__{_name}__", _binary(_function))
    setattr(DistTensor, f"__r{_name}__", _binary(_function, swapped=True))
for _name in "lt le gt ge eq ne".split():
    setattr(DistTensor, f"__{_name}__", _binary(getattr(operator, f"__{_name}__")))
for _name in "neg abs invert".split():
    setattr(DistTensor, f"__{_name}__", _unary(getattr(operator, f"__{_name}__")))
DistTensor.__hash__ = object.__hash__  # an own __eq__ would take it away


class Columns(MutableMapping[str, Any]):
    """Features of one type, read as DistTensors and written by own rows."""

    def __init__(self, frame: MutableMapping[str, Tensor], policy: PartitionPolicy) -> None:
        self._frame, self._policy = frame, policy

    def __getitem__(self, name: str) -> DistTensor:
        return DistTensor.of(self._frame, name, self._policy)

    def __setitem__(self, name: str, value: Any) -> None:
        self._frame[name] = own_rows(value)

    def __delitem__(self, name: str) -> None:
        del self._frame[name]

    def pop(self, name: str, *default: Any) -> Any:
        """Takes a feature away; gives its own rows."""
        return self._frame.pop(name, *default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._frame)

    def __len__(self) -> int:
        return len(self._frame)

    def __repr__(self) -> str:
        return repr({name: self[name] for name in self})


class OwnRows(Columns):
    """Features of one type, read and written by own rows: what layers see."""

    def __init__(self, frame: MutableMapping[str, Tensor]) -> None:
        self._frame = frame

    def __getitem__(self, name: str) -> Any:
        return self._frame[name]


def remember(policies: Callable[[], list[PartitionPolicy]]) -> None:
    """Tensors that are made without a policy have rows of the newest graph."""
    _newest[:] = [policies]


def _policy_for(count: int) -> PartitionPolicy:
    found = [one for policies in _newest for one in policies() if one.get_size() == count]
    if not found:
        fact = f"no type of nodes or edges of a DistGraph has {count} rows"
        raise FeatureError(fact, cure="make the DistGraph first, or pass part_policy=g.get_node_partition_policy(type)")
    return found[0]
