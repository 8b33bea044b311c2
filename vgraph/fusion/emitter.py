"""Emitter: what a kernel does with a row, as text: the stages of its layout, one after the other.

Takes: a Layout, a Target. Gives: text. Runs once per function.
Source: DGL section 4 (SpMM and SDDMM as one loop nest), with whatever is pointwise around them inside.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from vgraph.fusion.accumulators import accumulated, finished, start
from vgraph.fusion.expressions import C_TYPES, NUMBER_TYPES
from vgraph.fusion.feature_body import Body
from vgraph.fusion.layout import Layout, Loop, LoopStore, Stage
from vgraph.fusion.row_products import RowProduct
from vgraph.fusion.scratch import bytes_of
from vgraph.fusion.target import EdgePass, Target
from vgraph.fusion.text import block
from vgraph.ir.kernel import KernelSpec
from vgraph.ir.program import Op
from vgraph.ir.row_ops import row_product
from vgraph.ir.space import EDGE, SHARED

INDICES = ("in_ptr", "src_rows", "out_ptr", "out_edges", "out_dst", "vertex_ids", "edge_ids")
_WIDE_INDICES = ("in_ptr", "out_ptr", "vertex_ids", "edge_ids")


def index_pointers(word: Callable[[str], str]) -> str:
    """The index tensors; ``word``: an argument by its name."""
    kinds = {name: "int64_t" if name in _WIDE_INDICES else "int32_t" for name in INDICES}
    return block(f"const {kinds[n]}* __restrict__ {n} = (const {kinds[n]}*){word(n)}; (void){n};" for n in INDICES)


def value_pointers(spec: KernelSpec, word: Callable[[str], str], piece: str) -> str:
    """What a kernel loads and stores; ``piece``: the number of who has a sum over all rows of its own."""
    lines: list[str] = []
    for value in spec.loads:
        kind, name = C_TYPES[value.dtype], f"l{value.id}"
        lines.append(f"const {kind}* __restrict__ {name} = (const {kind}*){word(name)};")
    for value in spec.stores:
        kind, own, name = C_TYPES[value.dtype], "", f"o{value.id}"
        if value.space == SHARED:
            kind, own = NUMBER_TYPES[value.dtype], f" + {piece} * {math.prod(value.row_shape)}"
        lines.append(f"{kind}* __restrict__ {name} = ({kind}*){word(name)}{own};")
    return block(lines)


@dataclass(eq=False)
class Emitter:
    """The text of one function's rows."""

    layout: Layout
    target: Target

    def row(self) -> str:
        """All that is done with a row ``v``."""
        return block(self.stage(stage) for stage in self.layout.stages if stage.joined is None)

    def stage(self, stage: Stage) -> str:
        if not stage.over:
            return block(self._on_row(stage, self._filled(stage, loop)) for loop in stage.loops)
        joined = [other for other in self.layout.stages if other.joined == stage.number]
        return self.target.over_edges([self._edge_pass(one) for one in (stage, *joined)])

    # ------------------------------------------------------------ loops over features
    def _filled(self, stage: Stage, loop: Loop) -> Body:
        body = self.target.body(stage, loop)
        body.unrolled = self.target.unrolls(body, sum(1 + self.needs_slot(op) for op in loop.reductions))
        return self._with_stores(body)

    def _with_stores(self, body: Body) -> Body:
        for store in body.loop.loop_stores:
            self._put(body, store)
        return body

    def _loop_text(self, stage: Stage, body: Body) -> str:
        sync = (self.target.edge_team if stage.over else self.target.row_team).sync
        return block(body.text(), sync if body.loop.fills_scratch else "")

    def _on_row(self, stage: Stage, body: Body) -> str:
        team = self.target.edge_team
        return block((p.of_one_row(team.size, team.lane) for p in body.products), self._loop_text(stage, body))

    def _put(self, body: Body, store: LoopStore) -> None:
        """What puts a number where a store takes it."""
        value, op, result = store.value, store.op, store.op.results[0].id
        places = {
            "keep": f"k{value.id} + j *",
            "left": f"left{result} + {self.target.outer_row(op)} *",
            "right": f"right{result} + {self.target.outer_row(op)} *",
        }
        if store.kind == "reduce":
            self._accumulate(body, op)
        elif store.kind == "feature":
            body.add_features(op)
        elif store.kind == "product":
            self._multiply(body, op)
        elif store.kind == "store":
            row = self.target.stored_row(value, "e" if value.space == EDGE else "v")
            body.store(f"{row} + {body.features.flat()}", body.read(store))
        elif store.kind == "array":
            body.store(f"t{value.id} + {body.features.flat()}", body.read(store))
        elif store.kind == "piece":
            whole = f"o{result} + v * {math.prod(op.results[0].row_shape)}"
            body.store(f"{whole} + {body.features.index(store.access)}", body.read(store))
        else:
            size = math.prod(value.row_shape)
            body.store(f"{places[store.kind]} {size} + {body.features.flat()}", body.read(store))

    def _multiply(self, body: Body, op: Op) -> None:
        """The row times the matrix."""
        result, found = op.results[0], row_product(op)
        assert found is not None
        rows, weight, addend = found
        place = self.layout.place(rows)
        step = place.strides[0] if place.strides else 0
        given = body.pointer(place, (place.offset, (0,) * len(body.features.shape)), body.row_of(place, op), op)
        assert given is not None, "a row to be multiplied lies in memory"
        in_scratch = given[0] in "kt"  # kept rows and arrays; what is loaded has its type in memory
        kinds = NUMBER_TYPES if in_scratch else C_TYPES
        bias = f"l{addend.id}" if addend is not None else f"(const {NUMBER_TYPES[result.dtype]}*)nullptr"
        columns = math.prod(body.features.shape)
        sizes = f"{self.target.columns(columns)}, {rows.shape[1]}, {columns}"
        body.products.append(RowProduct(result, given, kinds[rows.dtype], step, sizes, f"l{weight.id}", bias))

    # ------------------------------------------------------------ loops over edges
    def _edge_pass(self, stage: Stage) -> EdgePass:
        made = EdgePass(stage)
        if any(loop.fills_scratch for loop in stage.loops):
            made.inside.append(self.target.edge_team.sync)  # the edge before has been read
        for loop in stage.loops:
            body = self._filled(stage, loop)
            across = self.target.across_edges(body)
            if across is not None:
                made.across[len(made.bodies)] = self._with_stores(across)
            made.bodies.append(body)
            made.inside += [*body.products, self._loop_text(stage, body)]
            for op in loop.reductions:
                letter = self.target.open_sum(made, body, op, lambda a, op=op, body=body: self._opened(body, op, a))
                made.after.append(self._closed(body, op, letter))
        stores = (s for loop in stage.loops for s in loop.loop_stores)
        made.outer_sums.update((s.op.results[0].id, self._add_outer(s.op)) for s in stores if s.kind == "left")
        return made

    def needs_slot(self, op: Op) -> bool:
        """Whether anybody reads the slot of what a reduction picks."""
        return len(op.results) > 1 and op.results[1].id in self.layout.used

    def _opened(self, body: Body, op: Op, letter: str) -> str:
        """Accumulators, and the slots of what they hold."""
        result, kind, width = op.results[0], NUMBER_TYPES[op.results[0].dtype], body.features.width
        needed = [(letter, kind, start(op.reduction, kind), bytes_of(result))]
        if self.needs_slot(op):
            needed.append(("b", "int32_t", "-1", 4))
        lines: list[str] = []
        for name, number, first, itemsize in needed:
            vector = f"vg_t<{number}, {width}>"
            lines.append(self.target.vectors(vector, f"{name}{result.id}", body, itemsize * width))
            lines.append(body.over_vectors(f"{name}{result.id}[{body.counter}] = vg_set<{vector}>({first});"))
        return block(lines)

    def _accumulate(self, body: Body, op: Op) -> None:
        """Adds a number of an edge to a reduction."""
        (operand,), result, width = op.operands(), op.results[0], body.features.width
        target = f"a{result.id}[{body.vector}]"
        if body.accumulate(op, target):
            return
        given = body.get(operand, reader=op)
        if op.reduction.picks:
            given = f"vg_set<vg_t<{NUMBER_TYPES[result.dtype]}, {width}>>({given})"
        place = f"b{result.id}[{body.vector}]" if self.needs_slot(op) else ""
        position = body.position.format(width=width)
        body.put(accumulated(op, target, given, width, place=place, position=position, first=body.first))

    def _closed(self, body: Body, op: Op, letter: str) -> str:
        """From registers to the scratch that later stages read."""
        ride = body.stage.online_sums.rides.get(op.results[0].id)
        last = self.target.closing(body, op, f"b{op.results[0].id}" if self.needs_slot(op) else "")
        self.put_result(last, op, letter, "" if ride is None else body.peak(ride))
        return last.text()

    def put_result(self, body: Body, op: Op, letter: str, peak: str) -> None:
        """To where the row's other stages find it; ``peak``: the vector on which it rides, or nothing."""
        result, width, flat = op.results[0], body.features.width, body.features.flat()
        if result.id in self.layout.used:
            given = finished(op, f"{letter}{result.id}[{body.vector}]", width)
            if peak:
                given = f"vg_settle({given}, {peak}, in_ptr[v] < in_ptr[v + 1])"
            body.store(f"t{result.id} + {flat}", given)
        if self.needs_slot(op):
            body.store(f"t{op.results[1].id} + {flat}", f"vg_cast<int64_t>(b{result.id}[{body.vector}])")

    # ------------------------------------------------------------ sums of outer products
    def open_outer_sums(self) -> str:
        return block(f"int rows{op.results[0].id} = 0;" for op in self.layout.outer_sums)

    def close_outer_sums(self) -> str:
        return block(f"{self.target.row_team.sync}\n{self._add_outer(op)}" for op in self.layout.outer_sums)

    def _add_outer(self, op: Op) -> str:
        (left, right), name, team = op.args, op.results[0].id, self.target.row_team
        columns = right.shape[1]
        sizes = f"{self.target.columns(columns)}, {left.shape[1]}, {columns}{team.size}"
        return f"vg_outer<{sizes}>(o{name}, left{name}, right{name}, rows{name}{team.lane});"
