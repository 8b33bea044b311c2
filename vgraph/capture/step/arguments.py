"""Arguments: what a model is called with: tensors in a nest of tuples, lists, dicts and dataclasses, and constants.

Takes: example inputs, later batches. Gives: their tensors in one order, or what differs. Runs at every step.
Source: Tofu section 6 (a plan is searched once for batches of one form).
"""

from __future__ import annotations

import copy
import dataclasses
import enum
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from vgraph.errors import ModelError

Leaf = Callable[[str, object], object]
_PLAIN = (type(None), bool, int, float, complex, str, bytes, enum.Enum, slice, range, torch.dtype, torch.device, type)


def map_nest(nest: Any, leaf: Leaf, path: str = "input") -> Any:
    """The same nest with ``leaf(path, item)`` in place of every item that holds no others."""
    if isinstance(nest, (tuple, list)):
        items = [map_nest(item, leaf, f"{path}[{i}]") for i, item in enumerate(nest)]
        if isinstance(nest, list):
            return items
        if hasattr(nest, "n_sequence_fields"):  # what x.max(1) gives
            return type(nest)(items)
        return type(nest)(*items) if hasattr(nest, "_fields") else tuple(items)
    if isinstance(nest, Mapping):
        named = copy.copy(nest) if isinstance(nest, MutableMapping) else {}
        for key in nest:
            named[key] = map_nest(nest[key], leaf, f"{path}[{key!r}]")
        return named
    if dataclasses.is_dataclass(nest) and not isinstance(nest, type):
        made = copy.copy(nest)
        for field in dataclasses.fields(nest):
            object.__setattr__(made, field.name, map_nest(getattr(nest, field.name), leaf, f"{path}.{field.name}"))
        return made
    return leaf(path, nest)


def map_arguments(arguments: Sequence[object], leaf: Leaf) -> tuple[Any, ...]:
    """``map_nest`` of each argument; the path begins with its place: ``input 0['ids']``."""
    return tuple([map_nest(item, leaf, f"input {i}") for i, item in enumerate(arguments)])


def as_arguments(example_inputs: object) -> tuple[object, ...]:
    """A tuple or list is what the model is called with; anything else is its one argument."""
    return tuple(example_inputs) if isinstance(example_inputs, (tuple, list)) else (example_inputs,)


class Arguments:
    """What a model was recorded with: where its tensors are, and every constant.

    Raises:
        ModelError: an item is neither a dense tensor nor a constant: what it holds would be fixed unseen.
    """

    def __init__(self, example: Sequence[object]) -> None:
        for path, item in _leaves(example).items():
            if isinstance(item, Tensor):
                _refuse_layout(path, item)
            elif isinstance(item, nn.Module) or not (isinstance(item, _PLAIN) or callable(item)):
                raise ModelError(
                    f"{path} is a {type(item).__name__}, in which tensors cannot be seen",
                    cure="pass tensors (torch.as_tensor), in tuples, lists, dicts or dataclasses",
                )
        self.example = map_arguments(example, lambda _, item: _without_numbers(item))
        self.leaves = _leaves(self.example)

    def tensors(self, given: Sequence[object]) -> list[Tensor]:
        """The tensors of a batch in the order of the example's, whatever the order of its dicts.

        Raises:
            ModelError: the batch holds other items than the example, a tensor that is not dense, or a constant has
                changed.
        """
        found = _leaves(given)
        wanted = [path for path, item in self.leaves.items() if isinstance(item, Tensor)]
        count = sum(isinstance(item, Tensor) for item in found.values())
        if count != len(wanted):
            raise ModelError(
                f"{count} tensors were passed; the plan was made for {len(wanted)}",
                cure="pass what example_inputs had",
            )
        for path in {**self.leaves, **found}:
            self._compare(path, found)
        for path in wanted:
            _refuse_layout(path, found[path])
        return [found[path] for path in wanted]

    def fits(self, given: Sequence[object]) -> bool:
        """Whether a batch has the same items in the same order, shapes, dtypes and constants."""
        found = _leaves(given)
        return self.is_in_order(given) and all(
            _look(found[path]) == _look(item) and _is_same(found[path], item) for path, item in self.leaves.items()
        )

    def is_in_order(self, given: Sequence[object]) -> bool:
        """Whether a batch has the items of the example, those of dicts in its order: a model may iterate over them."""
        return [*_leaves(given)] == [*self.leaves]

    def refuse_others(self, given: Sequence[object]) -> None:
        """Of what a batch may have otherwise, only the extents of its tensors are free.

        Raises:
            ModelError: it holds other items, another constant, or a tensor of another dtype or of more or fewer dims.
        """
        wanted = (item for item in self.leaves.values() if isinstance(item, Tensor))
        for place, (tensor, like) in enumerate(zip(self.tensors(given), wanted, strict=True)):
            if tensor.dtype != like.dtype or tensor.dim() != like.dim():
                raise ModelError(
                    f"input {place} is {tensor.dtype}{list(tensor.shape)}; "
                    f"the plan was made for {like.dtype}{list(like.shape)}",
                    cure="pass batches of one dtype and of as many dims; extents may differ",
                )

    def refuse_other_floats(self, given: Sequence[object]) -> None:
        """Of what a batch of another mode has in common with the example, fractions have one dtype.

        Raises:
            ModelError: a tensor stands where the example had one of fractions, and has another dtype.
        """
        for path, tensor in _leaves(given).items():
            like = self.leaves.get(path)
            if not isinstance(tensor, Tensor) or not isinstance(like, Tensor):
                continue
            if like.is_floating_point() and tensor.dtype != like.dtype:
                fact = f"{path} is {tensor.dtype}{list(tensor.shape)}; the plan was made for {like.dtype}"
                raise ModelError(fact, cure=f"pass {path}.to({like.dtype})")

    def _compare(self, path: str, found: Mapping[str, object]) -> None:
        what = f"{path} is {_what(found, path)}; the plan was made for {_what(self.leaves, path)}"
        if isinstance(found.get(path), Tensor) != isinstance(self.leaves.get(path), Tensor):
            raise ModelError(what, cure="pass what example_inputs had")
        if path not in found or path not in self.leaves or not _is_same(found[path], self.leaves[path]):
            cure = "pass what changes between batches as a tensor, or make a plan for each value"
            raise ModelError(f"{what}, a constant of it", cure=cure)


def _leaves(nest: Sequence[object]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    map_arguments(nest, found.__setitem__)
    return found


def _what(leaves: Mapping[str, object], path: str) -> str:
    if path not in leaves:
        return "nothing"
    return "a tensor" if isinstance(leaves[path], Tensor) else repr(leaves[path])


def _without_numbers(item: object) -> object:
    """What is kept of an example."""
    return torch.empty(item.shape, dtype=item.dtype, device="meta") if isinstance(item, Tensor) else item


def _look(item: object) -> tuple[object, ...] | None:
    """Of a tensor what a recording depends on."""
    return (item.dtype, item.shape) if isinstance(item, Tensor) else None


def _is_same(one: object, other: object) -> bool:
    """Whether two constants are equal; tensors are compared elsewhere."""
    if isinstance(one, Tensor):
        return True
    return one is other or (type(one) is type(other) and bool(one == other))


def _refuse_layout(path: str, tensor: Tensor) -> None:
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested:
        kind = "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.")
        raise ModelError(f"{path} is a tensor of layout {kind}", cure="pass a dense tensor: x.to_dense()")
