"""Known operators: which look at data, and the functional twins of those that write.

Takes: an aten operator's name and arguments. Gives: what a recording makes of it. Runs once per function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import torch

from vgraph.ir.program import Aten, op_name


class Argument(Protocol):
    """One argument of an operator as its schema has it."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> object: ...
    @property
    def is_out(self) -> bool: ...


class Schema(Protocol):
    """What an overload takes and gives."""

    @property
    def arguments(self) -> Sequence[Argument]: ...
    @property
    def returns(self) -> Sequence[object]: ...
    @property
    def is_mutable(self) -> bool: ...


class Overload(Aten, Protocol):
    """An operator as a dispatch mode sees it; torch's own class for it is private."""

    @property
    def _schema(self) -> Schema: ...
    @property
    def namespace(self) -> str: ...
    @property
    def tags(self) -> Sequence[torch.Tag]: ...

    def decompose(self, *args: object, **kwargs: object) -> Any: ...
    def _can_decompose(self) -> bool: ...


Kwargs = Mapping[str, Any]

# Views whose bases nobody reads any more: what is written to one is its own. Else they are what stands behind them.
UNSAFE_VIEWS = {
    "unsafe_split": torch.ops.aten.split.Tensor,
    "unsafe_split_with_sizes": torch.ops.aten.split_with_sizes.default,
}


# Views that say how their numbers differ from what lies in memory. What is recorded has numbers of its own instead.
LAZY_VIEWS = {
    "_neg_view": torch.ops.aten.neg.default,
    "_conj": torch.ops.aten._conj_physical.default,
}


def schema_of(func: Overload) -> Schema:
    """What an overload takes and gives; torch has no public name for it."""
    return func._schema  # pyright: ignore[reportPrivateUsage]


def pure_overloads(name: str, taken: Sequence[Argument]) -> list[Overload]:
    """The overloads of an operator that write nowhere and take arguments of these types."""
    packet = getattr(torch.ops.aten, name, None)
    found = [getattr(packet, overload) for overload in packet.overloads()] if packet is not None else []
    types = [str(argument.type) for argument in taken]
    pure = [func for func in found if not schema_of(func).is_mutable]
    return [func for func in pure if [str(argument.type) for argument in schema_of(func).arguments] == types]


@cache
def functional_twin(func: Overload) -> Overload | None:
    """The operator that gives what this one writes in place, by what it takes; None if there is none.

    Names of overloads do not tell: ``pow_.Scalar`` takes a tensor, as ``pow.Tensor_Scalar`` does.
    """
    alike = pure_overloads(op_name(func).rstrip("_"), schema_of(func).arguments)
    return next(
        (t for t in alike if str(t).rpartition(".")[2] == str(func).rpartition(".")[2]), next(iter(alike), None)
    )


@dataclass(frozen=True, eq=False)
class Facts:
    """What a recording asks of an overload; torch answers each in ten times as long.

    ``asks_a_tensor``: what it is, such as its device, not what it holds. ``looks_at_data``: its result has a shape or
    is a number that only the data tell; ``gives_a_number``: it is a number.
    """

    func: Overload
    name: str
    is_of_torch: bool
    asks_a_tensor: bool
    looks_at_data: bool
    gives_a_number: bool
    returns: bool
    draws: bool
    is_mutable: bool


_facts: dict[int, Facts] = {}  # by id, for hashing an operator is slow; they hold it, so that ids stay its own


def facts_of(func: Overload) -> Facts:
    """What a recording asks of an overload."""
    found = _facts.get(id(func))
    if found is None:
        name, tags, schema = op_name(func), func.tags, schema_of(func)
        gives_a_number = torch.Tag.data_dependent_output in tags
        looks = gives_a_number or torch.Tag.dynamic_output_shape in tags
        found = _facts[id(func)] = Facts(
            func=func,
            name=name,
            is_of_torch=func.namespace == "aten",
            asks_a_tensor=func.namespace in ("profiler", "prim"),
            looks_at_data=looks and name != "index",
            gives_a_number=gives_a_number,
            returns=bool(schema.returns),
            draws=torch.Tag.nondeterministic_seeded in tags,
            is_mutable=schema.is_mutable,
        )
    return found


def takes_mask(args: tuple[Any, ...]) -> bool:
    """Whether ``index`` has a shape that depends on data: where it is indexed by booleans."""
    return any(t is not None and t.dtype in (torch.bool, torch.uint8) for t in args[1])


_ASSIGNMENTS = frozenset(
    "__setitem__ __iadd__ __isub__ __imul__ __itruediv__ __ifloordiv__ __imod__ __ipow__ __iand__ __ior__ __ixor__ "
    "__ilshift__ __irshift__".split()
)


def writes_in_place(func: Callable[..., object]) -> bool:
    """Whether a torch function writes to its first argument."""
    name: str = getattr(func, "__name__", "")
    return name in _ASSIGNMENTS or (name.endswith("_") and not name.endswith("__"))
