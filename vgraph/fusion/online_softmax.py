"""Riders: sums over in-edges that need not wait until a maximum over the same edges is known.

Takes: a KernelSpec. Gives: which sums ride on which maximum. Runs once per function.
Source: online softmax (Milakov and Gimelshein 2018): what was added relative to a peak fades when the peak is raised.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from vgraph.fusion.views import place_of
from vgraph.ir.kernel import KernelSpec
from vgraph.ir.moves import SegmentReduce
from vgraph.ir.program import Op, Value, contiguous, needed_ops
from vgraph.ir.space import EDGE
from vgraph.passes.factors import Axes, axes_of, keeps_factors, operand_axes, renamed_axes


@dataclass(frozen=True)
class Ride:
    """``below``: x - max(x)[dst]; ``peak``: that maximum; ``axes``: which of the summed row's dims it varies along.

    ``path``: ids of what is relative to the peak, from the difference to the rows that are summed.
    """

    below: Op
    peak: Value
    axes: tuple[int, ...]
    path: tuple[int, ...]

    def strides(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """How the peak is walked over a loop of that shape."""
        own = contiguous(tuple(shape[axis] for axis in self.axes))
        return tuple(own[self.axes.index(d)] if d in self.axes else 0 for d in range(len(shape)))


@dataclass(frozen=True)
class Riders:
    """``rides``: by id of a sum; ``above``: the maximum's id by id of the difference."""

    rides: Mapping[int, Ride] = field(default_factory=dict[int, Ride])

    @cached_property
    def above(self) -> Mapping[int, int]:
        return {ride.below.results[0].id: ride.peak.id for ride in self.rides.values()}

    def of(self, sums: set[int]) -> Riders:
        """Those of these sums alone."""
        return Riders({key: ride for key, ride in self.rides.items() if key in sums})


def find_online_sums(spec: KernelSpec) -> Riders:
    """Sums over in-edges of exp(x - max(x)[dst]) times what does not depend on that maximum."""
    return _Finder(spec).find() if not spec.is_source else Riders()


@dataclass(eq=False)
class _Finder:
    spec: KernelSpec
    makers: dict[int, Op] = field(default_factory=dict[int, Op])

    def find(self) -> Riders:
        self.makers = {v.id: op for op in self.spec.ops for v in op.results}
        rides: dict[int, Ride] = {}
        seen: dict[object, tuple[int, ...]] = {}
        for op in self.spec.ops:
            if op.target != SegmentReduce("dst", "sum"):
                continue
            (rows,) = op.operands()
            ride = self._only_peak(rows)
            if ride is None or not self._is_alone(op, ride):
                continue
            plain = tuple(n for n in rows.row_shape if n != 1)
            if seen.setdefault((ride.peak.id, plain), ride.axes) == ride.axes:  # a loop has one of each running peak
                rides[op.results[0].id] = ride
        return Riders(rides)

    def _is_alone(self, op: Op, ride: Ride) -> bool:
        """Whether nothing else on the way to the sum reads what is relative to the peak."""
        way = needed_ops(self.spec.ops, {op.results[0].id}, reads=self._edge_bases)
        reads = Counter(place_of(self.spec, value).base.id for one in way for value in one.operands())
        return all(reads[one] == 1 for one in ride.path)

    def _edge_bases(self, op: Op) -> list[Value]:
        bases = [place_of(self.spec, value).base for value in op.operands()]
        return [base for base in bases if base.space == EDGE]

    def _only_peak(self, value: Value) -> Ride | None:
        """The exp(x - peak[dst]) that is a factor of the value, once, and the dims along which it varies."""
        rides, seen = list[Ride](), set[int]()
        stack: list[tuple[Value, Axes, tuple[int, ...]]] = [(value, axes_of(value.row_shape), ())]
        while stack and len(rides) < 2:
            one, axes, path = stack.pop()
            base = self._edge_base(one)
            maker = None if base is None else self.makers.get(base.id)
            if base is None or maker is None or base.id in seen:
                continue  # what is a factor again is read more than once: see ``_is_alone``
            seen.add(base.id)
            axes = renamed_axes(base, axes)
            found = self._difference(maker.args[0]) if maker.name == "exp" else None
            if found is not None:
                below = (found[0].results[0].id, base.id, *path)
                rides.append(Ride(*found, tuple(axis for axis in axes if axis is not None), below))
            stack += [(operand, operand_axes(operand, axes), (base.id, *path)) for operand in _factors(maker)]
        return rides[0] if len(rides) == 1 else None

    def _edge_base(self, value: Value) -> Value | None:
        """What a value is a view of, with the same dims but for those of size one."""
        place = place_of(self.spec, value)
        same = [n for n in place.base.row_shape if n != 1] == [n for n in value.row_shape if n != 1]
        return place.base if place.base.space == EDGE and same and place.is_plain else None

    def _difference(self, value: object) -> tuple[Op, Value] | None:
        """The difference x - peak[dst] and the peak, where that is the maximum of x over the same edges."""
        maker = self.makers.get(value.id) if isinstance(value, Value) else None
        if maker is None or maker.name != "sub" or len(maker.args) != 2 or maker.kwargs:
            return None
        x, spread = maker.args
        if not isinstance(x, Value) or not isinstance(spread, Value) or x.row_shape != spread.row_shape:
            return None
        place = place_of(self.spec, spread)
        peak = self.makers.get(place.base.id)
        if place.end != "dst" or not place.is_plain or peak is None or peak.target != SegmentReduce("dst", "max"):
            return None
        same = place.base is peak.results[0] and peak.args[0] is x and place.base.row_shape == x.row_shape
        return (maker, place.base) if same else None


def _factors(op: Op) -> list[Value]:
    """What an op's result is a multiple of."""
    given = op.args if op.name == "mul" else op.args[:1] if keeps_factors(op) else ()
    return [value for value in given if isinstance(value, Value) and value.space == EDGE]
