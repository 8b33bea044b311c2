"""Edge vectors: single numbers of some edges side by side in a vector, where they are costly to compute.

Takes: what a stage does with each edge. Gives: its text in C++. Runs once per function.
The score of an edge in an attention of one head is one number, and so are its exponential and its weight: a loop over
features has one lane of work for them. So loops over one number run for as many edges at a time as a vector has lanes,
and what they hand to loops over features, which run edge by edge, lies in arrays of so many edges.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from vgraph.fusion.cpu.side_by_side import far_start
from vgraph.fusion.cpu.vectors import VectorBody
from vgraph.fusion.expressions import NUMBER_TYPES, is_costly
from vgraph.fusion.features import Access
from vgraph.fusion.layout import Layout, LoopStore
from vgraph.fusion.scratch import Array
from vgraph.fusion.target import EdgePass
from vgraph.fusion.text import block
from vgraph.ir.kernel import Place
from vgraph.ir.moves import Random
from vgraph.ir.program import Op, Value
from vgraph.ir.row_tiles import tiled_loads
from vgraph.ir.space import EDGE

_FLOATS = ("float", "double")
_MOST_EDGES = 8  # at once: with 16 a vertex of two in-edges pays more for the vector than it gains


@dataclass(eq=False)
class EdgeVectorBody(VectorBody):
    """A loop over one number, for ``most`` edges at once; of the last edges of a row ``num`` count.

    ``arrays``: ids of what lies in arrays of so many edges.
    """

    arrays: set[int] = field(init=False, default_factory=set[int])

    @property
    def vector(self) -> str:
        return "0"

    def width(self, access: Access) -> int:
        return self.most

    def _stored(self, place: Place, access: Access, row: str, reader: Op | None) -> str | None:
        base, pointer = place.base, self.pointer(place, access, row, reader)
        if pointer is None:
            return None
        if pointer.startswith(f"r{base.id}o "):
            start, step = far_start(self.layout.spec, base)
            return f"vg_gather<{self.most}>({start} + {self.features.index(access)}, far, {step})"
        if row == "e" and pointer.startswith(("l", "k")):
            return f"vg_load_some<{self.most}>({pointer}, num)"
        if base.space == EDGE:
            self.arrays.add(base.id)
            return f"vg_load<{self.most}>(some{base.id})"
        return f"vg_load<1>({pointer})"

    def row_at(self, base: Value, row: str, size: int) -> str:
        return f"l{base.id} + e" if row == "e" else super().row_at(base, row, size)

    def store(self, place: str, given: str) -> None:
        name = place.partition(" ")[0]
        if name.startswith("t"):
            self.arrays.add(int(name[1:]))
            self.put(f"vg_store<{self.most}>(some{name[1:]}, {given});")
        else:
            self.put(f"vg_store_some<{self.most}>({place}, {given}, num);")

    def accumulate(self, op: Op, target: str) -> bool:
        (operand,), kind = op.operands(), NUMBER_TYPES[op.results[0].dtype]
        given = f"vg_set<vg_t<{kind}, {self.most}>>({self.get(operand, reader=op)})"
        if op.reduction.picks:
            largest = "true" if op.reduction.largest else "false"
            self.put(f"vg_extreme<{largest}>({target}, vg_lane_extreme<{largest}>({given}), {self.first});")
        else:
            self.put(f"{target} = {target} + vg_sum_some({given}, num);")
        return True


def across_edges(body: VectorBody) -> EdgeVectorBody | None:
    """The same loop for some edges at once, still empty; None where it is not over one number that may lie so."""
    plain = not (body.draws or body.products or body.layout.spec.in_loop) and math.prod(body.loop.shape) == 1
    if not plain or not all(_may_store(body, store) for store in body.loop.loop_stores):
        return None
    if not all(_may_read(body, value, row) for value, row, _ in body.names):
        return None
    return EdgeVectorBody(body.layout, body.stage, body.loop, min(body.most, _MOST_EDGES), body.features)


def _may_store(body: VectorBody, store: LoopStore) -> bool:
    op, value = store.op, store.value
    if NUMBER_TYPES[value.dtype] not in _FLOATS:
        return False
    if store.kind == "reduce":
        (operand,), row = op.operands(), op.reduction
        has_slot = len(op.results) > 1 and op.results[1].id in body.layout.used
        return operand.dtype == value.dtype and not has_slot and (row.picks or row.is_linear) and not row.finish
    return store.kind in ("array", "keep") or (store.kind == "store" and body.stage.over == "in")


def _may_read(body: VectorBody, value: int, row: str) -> bool:
    """Whether what the loop reads or computes may lie in a vector of those of other edges."""
    spec, maker = body.layout.spec, body.layout.makers.get(value)
    load = next((one for one in spec.loads if one.id == value), None)
    base = load if maker is None else next(one for one in maker.results if one.id == value)
    if base is None or value in spec.given or base in tiled_loads(spec):
        return False
    if NUMBER_TYPES[base.dtype] not in _FLOATS and (load is not None or NUMBER_TYPES[base.dtype] != "bool"):
        return False
    if maker is not None and isinstance(maker.target, Random):
        return False
    return row != "e" or (math.prod(base.row_shape) == 1 and (load is None or body.stage.over == "in"))


@dataclass(eq=False)
class EdgeVectors:
    """One loop over edges, some at a time.

    ``edge``: the variable that counts them, ``far``: the index tensor that tells their other ends.
    ``steps``: numbers of the pass's loops in the order in which they run; by turns those that run for some edges at
    once, and those that run edge by edge.
    """

    made: EdgePass
    layout: Layout
    edge: str
    far: str
    bodies: Mapping[int, EdgeVectorBody] = field(init=False)
    steps: list[list[int]] = field(init=False)

    def __post_init__(self) -> None:
        across = self.made.across.items()
        self.bodies = {number: body for number, body in across if isinstance(body, EdgeVectorBody)}
        self.steps = self._steps()

    @property
    def is_worth_it(self) -> bool:
        """Whether what is computed of one number costs more than to put it beside those of other edges."""
        if self.made.outer_sums or any(not isinstance(part, str) for part in self.made.inside):
            return False
        makers = self.layout.makers
        names = (key for body in self.bodies.values() for key in body.names)
        return any(row == "e" and value in makers and is_costly(makers[value]) for value, row, _ in names)

    def _steps(self) -> list[list[int]]:
        """Loops across edges come before those edge by edge that make nothing for them."""
        steps: list[list[int]] = [[], []]
        for number in range(len(self.made.bodies)):
            if number not in self.bodies:
                steps[-1].append(number)
            elif any(self.made.bodies[other].loop.fills_scratch for other in steps[-1]):
                steps += [[number], []]
            else:
                steps[-2].append(number)
        return steps

    @property
    def _count(self) -> int:
        return next(iter(self.bodies.values())).most

    def arrays(self) -> list[Array]:
        """What the loop asks for beside arrays of one edge: what is handed from one step to another."""
        ids = set[int]().union(*(body.arrays for body in self.bodies.values()))
        handed_on = (v for v in self.layout.made(self.made.stage.arrays) if v.id in ids or self._num_steps(v) > 1)
        return [Array(f"some{value.id}", value, self._count) for value in handed_on]

    def _num_steps(self, value: Value) -> int:
        """How many of those that run edge by edge make or read it."""
        named = re.compile(rf"\bt{value.id}\b")
        return sum(any(named.search(self._texts[number]) for number in step) for step in self.steps[1::2])

    @property
    def _texts(self) -> list[str]:
        """Of each of the pass's loops, edge by edge."""
        return [part for part in self.made.inside if isinstance(part, str)][-len(self.made.bodies) :]

    def text(self, named: Callable[[Sequence[int]], str], ahead: str) -> str:
        """``named``: what the text of an edge says of it for some loops; ``ahead``: what it fetches for later edges."""
        texts = self._texts
        parts, alone = list[str](), [step for step in self.steps[1::2] if step]
        if not alone and ahead:
            parts.append(self._each(named(()), ahead))
        for place, (across, each) in enumerate(zip(self.steps[::2], self.steps[1::2], strict=True)):
            parts.append(self._at_once(across))
            if each:
                parts.append(self._each(named(each), ahead if each is alone[0] else "", *(texts[n] for n in each)))
                later = [self.bodies[number] for step in self.steps[2 * place + 2 :: 2] for number in step]
                read = set[int]().union(*(body.arrays for body in later))
                parts += [f"vg_fill_some<{a.count}>({a.name}, num);" for a in self.arrays() if a.value.id in read]
        return f"""
        for (int64_t first = from; first < to; first += {self._count}) {{
          const int num = to - first < {self._count} ? (int)(to - first) : {self._count};
          int32_t far[{self._count}]; (void)far;
          vg_some_rows<{self._count}>(far, {self.far} + first, num);
          {block(parts)}
        }}
        """

    def _at_once(self, numbers: Sequence[int]) -> str:
        return f"""
        {{
          const int64_t {self.edge} = first; (void){self.edge};
          const int64_t j = first - {self.made.ptr}[v]; (void)j;
          {block(block("{", self.bodies[number].lines, "}") for number in numbers)}
        }}
        """

    def _each(self, named: str, ahead: str, *texts: str) -> str:
        whole = block(texts)
        places = [array for array in self.arrays() if re.search(rf"\bt{array.value.id}\b", whole)]
        return f"""
        for (int b = 0; b < num; ++b) {{
          const int64_t {self.edge} = first + b;
          {named}
          {block(f"{a.kind}* __restrict const t{a.value.id} = {a.name} + b * {a.size // a.count};" for a in places)}
          {ahead}
          {whole}
        }}
        """
