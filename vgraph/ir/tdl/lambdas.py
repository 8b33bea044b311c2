"""TDL as lambdas: a description that is run once on symbols, and the index notation it stands for.

Takes: ``lambda b, co, x: Sum(lambda ci, dx: data[b, ci, x + dx] * filters[ci, co, dx])``. Gives: Notation. Runs once
per operator. Source: Tofu section 4.1 (tensor description language).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from vgraph.errors import DescriptionError
from vgraph.ir.program import Op
from vgraph.ir.tdl.affine import Affine, parse_access
from vgraph.ir.tdl.notation import Indices, Notation

Function = Callable[..., object]


@dataclass(frozen=True)
class Index:
    """An affine expression of index variables."""

    terms: tuple[tuple[str, int], ...]
    constant: int = 0

    def _plus(self, other: object, sign: int) -> Index:
        if isinstance(other, int):
            return Index(self.terms, self.constant + sign * other)
        if not isinstance(other, Index):
            raise DescriptionError(
                f"{self} is combined with {other!r}: an index is no function of data",
                cure="describe what is read by affine indices, or hide it in an opaque function of whole slices",
            )
        terms = dict(self.terms)
        for name, factor in other.terms:
            terms[name] = terms.get(name, 0) + sign * factor
        return Index(tuple((n, f) for n, f in terms.items() if f), self.constant + sign * other.constant)

    def __add__(self, other: object) -> Index:
        return self._plus(other, 1)

    def __radd__(self, other: object) -> Index:
        return self._plus(other, 1)

    def __sub__(self, other: object) -> Index:
        return self._plus(other, -1)

    def __rsub__(self, other: object) -> Index:
        return (self * -1)._plus(other, 1)

    def __mul__(self, factor: object) -> Index:
        if not isinstance(factor, int):
            raise DescriptionError(
                f"{self} times {factor} is not affine",
                cure="multiply indices by whole numbers, or hide the access in an opaque function of whole slices",
            )
        return Index(tuple((n, f * factor) for n, f in self.terms if f * factor), self.constant * factor)

    __rmul__ = __mul__

    def __str__(self) -> str:
        only = self.terms[0] if len(self.terms) == 1 else None
        if only is not None and only[1] == 1 and not self.constant:
            return only[0]
        return str(Affine(self.terms, self.constant)) if self.terms else f"0{self.constant:+d}"


@dataclass(frozen=True)
class Expression:
    """A value made of accesses; ``reduced``: how the indices of reductions in it are combined."""

    accesses: tuple[tuple[int, Indices], ...] = ()
    reduced: tuple[tuple[str, str], ...] = ()
    sizes: tuple[tuple[str, int], ...] = ()
    whole: frozenset[str] = frozenset()

    def inner(self) -> Expression:
        """The same below another operation, where a reduction can no longer be divided."""
        hidden = frozenset(name for name, _ in self.reduced)
        return Expression(self.accesses, tuple((n, "whole") for n, _ in self.reduced), self.sizes, self.whole | hidden)

    @staticmethod
    def of(*parts: object) -> Expression:
        """What depends on all parts, element by element."""
        found = [p.inner() for p in parts if isinstance(p, Expression)]
        return Expression(
            tuple(a for p in found for a in p.accesses),
            tuple(r for p in found for r in p.reduced),
            tuple(s for p in found for s in p.sizes),
            frozenset().union(*(p.whole for p in found)),
        )

    @classmethod
    def __torch_function__(
        cls, func: object, types: object, args: tuple[object, ...] = (), kwargs: Mapping[str, object] | None = None
    ) -> Expression:
        return cls.of(*args, *(kwargs or {}).values())

    def __getitem__(self, indices: object) -> Expression:
        """Of an opaque function's result: it is made whole along the dims that are named."""
        named = indices if isinstance(indices, tuple) else (indices,)
        names = {name for index in named if isinstance(index, Index) for name, _ in index.terms}
        return Expression(self.accesses, self.reduced, self.sizes, self.whole | names)


def _pointwise(self: object, *others: object) -> Expression:
    return Expression.of(self, *others)


for _name in "add radd sub rsub mul rmul truediv rtruediv pow rpow neg abs lt le gt ge floordiv mod".split():
    setattr(Expression, f"__{_name}__", _pointwise)


@dataclass(frozen=True)
class _Tensor:
    number: int

    def __getitem__(self, indices: object) -> Expression:
        given = indices if isinstance(indices, tuple) else (indices,)
        return Expression(((self.number, tuple(_dim(index) for index in given)),))


def _dim(index: object) -> str:
    if isinstance(index, Index):
        return str(index)
    if isinstance(index, int) and not isinstance(index, bool):
        return f"0{index:+d}"
    if isinstance(index, slice):  # a part of known bounds is read as the whole dim
        return ":"
    raise DescriptionError(
        f"{index!r} is no affine index", cure="use index variables, whole numbers, their sums and multiples, or ':'"
    )


_MANUAL = """The {kind} of an expression over index variables, in a description of an operator.

Args:
    function: of the variables that are reduced, which it names; gives what is read at affine indices.
    **sizes: the sizes of variables that stand alone nowhere, such as a window's.

Returns:
    An expression, which reads, is combined with others, or is reduced again.

Raises:
    DescriptionError: the function reads no operand.

Source: Wang, Huang and Li 2019 (Tofu), section 4.1.

Example:
    >>> import vgraph
    >>> from vgraph.tdl import {name}
    >>> @vgraph.tdl
    ... def {kind}_of_row(x):
    ...     return lambda i: {name}(lambda k: x[i, k])
    >>> print({kind}_of_row)
    i k -> i
"""


def reducer(kind: str, word: str) -> Callable[..., Expression]:
    """``Sum`` and its kind: a function of index variables, reduced over all of them."""

    def reduce(function: Function, **sizes: int) -> Expression:
        names = list(inspect.signature(function).parameters)
        body = function(*(Index(((name, 1),)) for name in names))
        if not isinstance(body, Expression):
            raise DescriptionError(f"a reduction over {names} reads no tensor", cure="reduce an access to an operand")
        merged = all(how == kind for _, how in body.reduced)
        body = body if merged else body.inner()
        reduced = (*((name, kind) for name in names), *body.reduced)
        return Expression(body.accesses, reduced, (*body.sizes, *sizes.items()), body.whole)

    reduce.__name__ = reduce.__qualname__ = kind.capitalize()
    reduce.__doc__ = _MANUAL.format(kind=word, name=reduce.__name__)
    return reduce


def opaque(name: str = "opaque") -> Callable[..., Expression]:
    """A function of which only its operands are known, for descriptions of operators.

    Args:
        name: what it is called.

    Returns:
        A function of operands' slices, whose result is indexed: ``Inverse(matrix[b, :, :])[i, j]``. What its result
        is made of is needed whole.

    Source: Wang, Huang and Li 2019 (Tofu), section 4.1.

    Example:
        >>> import vgraph
        >>> from vgraph.tdl import opaque
        >>> Inverse = opaque("inverse")
        >>> @vgraph.tdl
        ... def inverse_of_each(matrix):
        ...     return lambda b, i, j: Inverse(matrix[b, :, :])[i, j]
        >>> print(inverse_of_each)
        b ? ? -> b i j
    """

    def function(*parts: object) -> Expression:
        return Expression.of(*parts)

    function.__name__ = name
    return function


@dataclass(frozen=True, eq=False)
class Description:
    """An operator in TDL; ``str`` gives its short form, in index notation.

    Called with tensors it runs nothing: it describes the operator ``name``, which runs by itself.
    """

    name: str
    num_operands: int
    indices: tuple[str, ...]
    body: Expression = field(repr=False)

    def notation(self) -> Notation:
        """The short form."""
        whole = set(self.body.whole)
        inputs: list[Indices] = []
        for number in range(self.num_operands):
            accesses = list(dict.fromkeys(dims for at, dims in self.body.accesses if at == number))
            inputs.append(_joined(accesses, whole))
        return Notation(
            tuple(inputs), (self.indices,), dict(self.body.reduced), frozenset(whole), sizes=dict(self.body.sizes)
        )

    def rule(self, op: Op) -> Notation | None:
        """The rule of the table; None where the operator is called with other ranks."""
        return self.notation()

    def regions(self, index: str) -> tuple[str, ...]:
        """What each operand is read of for a part [lower, upper) of one index, dim by dim.

        Exact, as a function of the part's bounds; "all" where the index does not matter.
        """
        found: list[str] = []
        for dims in self.notation().inputs:
            parts = [_symbolic(dim, index) for dim in dims]
            found.append(", ".join(parts))
        return tuple(found)

    def __str__(self) -> str:
        return str(self.notation())


def _symbolic(dim: str, index: str) -> str:
    access = parse_access(dim.split("|", maxsplit=1)[0])
    return access.symbolic() if access is not None and index in access.names else "all"


def _joined(accesses: list[Indices], whole: set[str]) -> Indices:
    """One entry a dim for all accesses to an operand; what cannot be joined exactly is needed whole."""
    if not accesses:
        return ()
    dims: list[str] = []
    different = [len({access[d] for access in accesses}) > 1 for d in range(len(accesses[0]))]
    for place in range(len(accesses[0])):
        parts = list(dict.fromkeys(access[place] for access in accesses))
        known = [parse_access(part) for part in parts]
        terms = {access.terms for access in known if access is not None}
        if ":" in parts or (len(parts) > 1 and (len(terms) > 1 or sum(different) > 1)):
            whole |= {name for access in known if access is not None for name in access.names}
            dims.append("?")
        else:
            dims.append("|".join(p if len(parts) == 1 or not p.isidentifier() else f"{p}+0" for p in parts))
    return tuple(dims)


def describe_function(function: Function) -> Description:
    """Runs a description once on symbols.

    Raises:
        DescriptionError: an index that is not affine, or a body that reads nothing.
    """
    operands = list(inspect.signature(function).parameters)
    inner = function(*(_Tensor(number) for number in range(len(operands))))
    if not callable(inner):
        raise DescriptionError(
            f"{function.__name__} returns {type(inner).__name__}",
            cure="return a lambda of the result's indices: lambda i, j: a[i, j] + b[j]",
        )
    names = tuple(inspect.signature(inner).parameters)
    body = inner(*(Index(((name, 1),)) for name in names))
    if not isinstance(body, Expression) or not body.accesses:
        raise DescriptionError(f"{function.__name__} reads none of {operands}", cure="index the operands in the lambda")
    return Description(function.__name__, len(operands), names, body)
