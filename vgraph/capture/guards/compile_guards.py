"""Check: guards as one generated function, and numbers that move as scalar inputs.

Takes: a Walk. Gives: ``check(roots)``, the tensors of now or None. Runs once per function, then at every call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import ReferenceType

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from vgraph.capture.errors import CaptureError
from vgraph.capture.guards.watched import MISSES, NumberKey, Numbers, Step, Walk, path_of

_SPACE: dict[str, object] = {"_misses": MISSES, "tensor": torch.tensor, "float64": torch.float64}
_ALIKE = (Tensor, torch.nn.Parameter)  # one stands for the other under functional_call
_PRINTED = {  # the name, and a value that is written into the text
    "len": "len({0}) == {1}",
    "lacks": "{1!r} not in {0}",
    "no attribute": "not hasattr({0}, {1!r})",
    "repr": "repr({0}) == {1!r}",
}
_COMPARED = {  # the name, and that of a constant
    "is": "{0} is {1}",
    "itself": "{0} is {1}()",  # what is named by a weak reference
    "same": "{0} == {1}",
    "type": "type({0}) is {1}",
    "items": "tuple({0}) == {1}",
    "types": "tuple(map(type, {0})) == {1}",  # 1, 1.0 and True are equal
    "without": "{0}.keys().isdisjoint({1})",
}


Check = Callable[[Sequence[object]], tuple[Tensor, ...] | None]  # the tensors of now, or None


@dataclass(eq=False)
class _Source:
    anchors: list[object]
    asks_types: bool = False
    constants: list[object] = field(default_factory=list[object])
    lines: list[str] = field(default_factory=list[str])
    variables: dict[Step, str] = field(default_factory=dict[Step, str])
    count: int = 0

    def variable(self, step: Step) -> str:
        """The variable that holds this step's value, assigned at its first use."""
        if step not in self.variables:
            if step.parent is None and step.text.startswith("k["):  # an anchor, read as fast as a local
                self.variables[step] = self.constant(self.anchors[int(step.text[2:-1])])
            else:
                text = step.text if step.parent is None else step.text.format(self.variable(step.parent))
                self.variables[step] = f"n{self.count}"
                self.count += 1
                self.lines.append(f"{self.variables[step]} = {text}")
        return self.variables[step]

    def constant(self, value: object) -> str:
        """A default argument of the check: read as fast as a local."""
        self.constants.append(value)
        return f"k{len(self.constants) - 1}"

    def require(self, condition: str) -> None:
        self.lines.append(f"if not ({condition}): return None")

    def compare(self, step: Step, kind: str, value: Any) -> None:
        """One thing that must be as it was."""
        name = self.variable(step)
        if kind == "twin":
            self.require(f"{name} is {self.variable(value)}")
        elif kind == "apart":
            self.require(f"len({{{', '.join(f'id({self.variable(thing)})' for thing in value)}}}) == {len(value)}")
        elif kind == "empty items":
            self.require(f"not ({' or '.join(f'{name}[{key!r}]' for key in value)})")
        elif kind in _PRINTED:
            self.require(_PRINTED[kind].format(name, value))
        else:
            if isinstance(value, ReferenceType) and kind != "itself":  # weak ones compare what they mean
                kind = "same"
            self.require(_COMPARED[kind].format(name, self.constant(value)))

    def same_number(self, step: Step, value: complex) -> None:
        name, parts = self.variable(step), (value.real, value.imag) if type(value) is complex else (value,)
        if math.isnan(value.real):
            self.require(f"{name} != {name}")
        elif type(value) is int:
            self.require(f"{name} == {value}")
        elif 0 in parts:  # with its sign, which an equal one need not have
            self.require(f"repr({name}) == {repr(value)!r}")
        else:
            self.require(f"{name} == {self.constant(value)}")

    def same_kind(self, step: Step, tensor: Tensor) -> str:
        """A tensor of one kind; its variable."""
        name, kinds = self.variable(step), (type(tensor),)
        if type(tensor) in _ALIKE and not self.asks_types:
            kinds = _ALIKE
        shape, dtype = self.constant(tensor.shape), self.constant(tensor.dtype)
        self.require(f"type({name}) in {self.constant(kinds)} and {name}.shape == {shape} and {name}.dtype is {dtype}")
        self.require(f"{name}.requires_grad is {tensor.requires_grad}")
        for fact in ("is_neg()", "is_conj()") if tensor.is_complex() else ("is_neg()",):  # what its memory means
            self.require(f"{name}.{fact} is {getattr(tensor, fact[:-2])()}")
        has_none = tensor._is_zerotensor()  # of autograd, which lie nowhere
        self.require(f"{name}._is_zerotensor() is {has_none}")
        if tensor.device.type == "cpu":
            self.require(f"{name}.is_cpu")
        else:
            self.require(f"{name}.device == {self.constant(tensor.device)}")
        return name


@dataclass(eq=False)
class StandIns:
    """Tensors in the place of numbers: id to path; paths that lead to the same place as another to that one."""

    paths: dict[int, str] = field(default_factory=dict[int, str])
    twins: dict[str, str] = field(default_factory=dict[str, str])
    keys: set[NumberKey] = field(default_factory=set[NumberKey])

    def stood_for(self, numbers: Numbers, path: str) -> bool:
        """Whether a tensor stood there; a path that begins with a class leads elsewhere when that is made anew."""
        return bool(self.keys) and path in numbers.values and numbers.key(path) in self.keys


def make_check(walk: Walk, lifted: Sequence[Tensor], constants: set[int], scalars: StandIns) -> Check:
    """``check(roots)``: the lifted tensors of now, or None where something else changed.

    ``constants``: positions in ``lifted`` made inside the function; ``scalars``: what stood for numbers.
    """
    source = _Source(walk.numbers.constants, walk.numbers.asks_types)
    for step, kind, value in walk.checks:
        source.compare(step, kind, value)
    numbers = walk.numbers.values
    for path, (value, step) in numbers.items():
        source.require(f"type({source.variable(step)}) is {source.constant(type(value))}")
        if not scalars.stood_for(walk.numbers, path):
            source.same_number(step, value)
        elif path in scalars.twins:
            source.require(f"{source.variable(step)} == {source.variable(numbers[scalars.twins[path]][1])}")
    known = {id(tensor) for tensor in lifted}
    for tensor, step in walk.tensors.values():  # of which no number is read, but perhaps the shape
        if is_lazy(tensor):
            source.compare(step, "type", type(tensor))
        elif id(tensor) not in known:
            source.same_kind(step, tensor)
    given = [_fetch(source, walk, tensor, index in constants, scalars) for index, tensor in enumerate(lifted)]
    return _compile(source, given)


def _compile(source: _Source, given: list[str]) -> Check:
    body = "\n        ".join([*source.lines, f"return ({', '.join(given)}{',' if given else ''})"])
    fixed = "".join(f", k{i}=k{i}" for i in range(len(source.constants)))
    text = f"def check(r{fixed}):\n    try:\n        {body}\n    except _misses:\n        return None\n"
    space: dict[str, Any] = {**_SPACE, "k": source.anchors, **{f"k{i}": k for i, k in enumerate(source.constants)}}
    exec(compile(text, "<vgraph guards>", "exec"), space)
    return space["check"]


def _fetch(source: _Source, walk: Walk, tensor: Tensor, constant: bool, scalars: StandIns) -> str:
    if constant:
        return source.constant(tensor)
    path = scalars.paths.get(id(tensor))
    if path is not None:
        if not scalars.stood_for(walk.numbers, path):
            raise CaptureError("it reads a number in another way than before")
        value, step = walk.numbers.values[path]
        dtype = ", dtype=float64" if isinstance(value, float) else ""
        return f"tensor({source.variable(step)}{dtype})"
    if id(tensor) not in walk.tensors:
        raise CaptureError("it reads a tensor that cannot be found again from its closure, module or globals")
    return source.same_kind(walk.tensors[id(tensor)][1], tensor)


# ---------------------------------------------------------------- numbers that move
@contextmanager
def stand_ins(roots: Sequence[object], numbers: Numbers | None, paths: frozenset[str]) -> Generator[StandIns]:
    """Puts a 0-dim tensor in place of each number for the time of a recording."""
    restore: list[Callable[[], None]] = []
    made = StandIns()
    keep: list[Tensor] = []
    try:
        for path in sorted(paths & numbers.values.keys()) if numbers else ():
            assert numbers is not None
            holder = _holder(roots, numbers, numbers.values[path][1])
            if holder is not None and id(holder[0]) in made.paths:  # two functions close over one variable
                made.twins[path] = made.paths[id(holder[0])]
                made.keys.add(numbers.key(path))
            if holder is None or not isinstance(holder[0], (int, float)):
                continue
            value, put, back = holder  # the number of now: an int may have become a float
            tensor = torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else torch.int64)
            restore.append(back)  # first: Ctrl-C may come between the two
            put(tensor)
            keep.append(tensor)
            made.paths[id(tensor)] = path
            made.keys.add(numbers.key(path))
        yield made
    finally:
        _restore(restore)


def _restore(backs: Sequence[Callable[[], None]]) -> None:
    """Puts every number back, Ctrl-C or not: what one in the midst left is done again."""
    try:
        for back in backs:
            back()
    except BaseException:
        for back in backs:
            back()
        raise


def _holder(
    roots: Sequence[object], numbers: Numbers, step: Step
) -> tuple[object, Callable[[object], None], Callable[[], None]] | None:
    """The value at a step now, how to write another and how to restore it; None if it cannot be written."""
    if step.slot is None or step.parent is None:
        return None
    kind, key = step.slot
    container: Any = eval(path_of(step.parent), {"r": roots, "k": numbers.constants})
    if kind == "cell":
        cell, old = container[key], container[key].cell_contents
        return old, lambda new: setattr(cell, "cell_contents", new), lambda: setattr(cell, "cell_contents", old)
    old = container[key]
    return old, lambda new: container.__setitem__(key, new), lambda: container.__setitem__(key, old)
