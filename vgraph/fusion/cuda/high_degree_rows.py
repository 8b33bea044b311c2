"""Hubs: rows of very many edges, in chunks that several teams take at once.

Takes: a kernel's design. Gives: one function a stage. Runs once per function.
Each stage over edges leaves a partial result a chunk; the next function puts a row's partials together in the order
of its edges, whoever came first. What stages hand to one another lies in the GPU's memory, a place a row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from vgraph.fusion.cuda.features import LaneFeatures
from vgraph.fusion.cuda.kernel import Design, Room, Writer, lay_scratch, reductions_of
from vgraph.fusion.expressions import NUMBER_TYPES
from vgraph.fusion.layout import Loop, Stage
from vgraph.fusion.stores import combined
from vgraph.ir.kernel import HubLoop, HubStep
from vgraph.ir.program import Op


def write_stages(design: Design, name: str, slots: int) -> tuple[list[_Staged], HubLoop | None]:
    """The functions for rows in chunks, in order, and how they are launched; None: an edge needs too much memory."""
    partials = _partials(design)
    writers: list[_Staged] = []
    waiting: Stage | None = None  # its partial results are not together yet
    for number, stage in enumerate(design.layout.stages):
        if stage.over:
            if waiting is not None:
                writers.append(_Together(design, f"{name}_hub{number}", slots, edges=waiting, partials=partials))
            writers.append(_Chunks(design, f"{name}_chunk{number}", slots, edges=stage, partials=partials))
            waiting = stage
        else:
            writers.append(
                _Together(design, f"{name}_row{number}", slots, edges=waiting, rows=stage, partials=partials)
            )
            waiting = None
    if waiting is not None and any(reductions_of(loop) for loop in waiting.loops):
        writers.append(_Together(design, f"{name}_hub", slots, edges=waiting, partials=partials))
    if not writers or any(writer.is_far for writer in writers):  # the GPU's memory has room for rows, not for edges
        return [], None
    steps = tuple(HubStep(w.entry, isinstance(w, _Chunks), w.pointer) for w in writers)
    _, row_bytes = lay_scratch(writers[0].row_values(), 1)
    chunk_bytes = sum(room for _, _, room in partials.values())
    return writers, HubLoop(steps, row_bytes, chunk_bytes)


def _renamed(lines: list[str]) -> list[str]:
    return [line.replace("(scratch + ", "(row_scratch + ") for line in lines]


Partials = dict[str, tuple[str, int, int]]  # name of an accumulator to its number type, offset and bytes in a chunk's


def _partials(design: Design) -> Partials:
    found: Partials = {}
    end = 0
    for stage in design.layout.stages:
        for op in (op for loop in stage.loops for op in reductions_of(loop)):
            kind, size = NUMBER_TYPES[op.results[0].dtype], math.prod(op.results[0].row_shape)
            both = [(f"a{op.results[0].id}", kind), (f"b{op.results[0].id}", "int32_t")][: len(op.results)]
            if op.results[0].id in stage.online_sums.rides:
                both.append((f"r{op.results[0].id}", kind))
            for name, number in both:
                room = -(-size * (4 if number in ("float", "int32_t") else 8) // 16) * 16
                found[name] = (number, end, room)
                end += room
    return found


@dataclass(eq=False)
class _Staged(Writer):
    """``edges``: the stage over edges that is run, or put together; ``rows``: the stage on rows behind it."""

    edges: Stage | None = None
    rows: Stage | None = None
    partials: Partials | None = None

    @property
    def pointer(self) -> str:
        return "out_ptr" if self.edges is not None and self.edges.over == "out" else "in_ptr"

    def near_values(self) -> list[Room]:
        return self.edge_values()

    def row_scratch(self, number: str) -> list[str]:
        """Where a row's values lie in the GPU's memory."""
        lines, size = lay_scratch(self.row_values(), 1)
        where = f"(char*)w_scratch + (int64_t){number} * {size}"
        return [f"    char* row_scratch = {where}; (void)row_scratch;", *(f"    {line}" for line in _renamed(lines))]

    def partial(self, name: str, chunk: str) -> str:
        assert self.partials is not None
        kind, offset, _ = self.partials[name]
        total = sum(room for _, _, room in self.partials.values())
        return f"({kind}*)((char*)w_partials + (int64_t){chunk} * {total} + {offset})"


@dataclass(eq=False)
class _Chunks(_Staged):
    """A stage over edges, a team a chunk."""

    def write(self) -> None:
        assert self.edges is not None
        self.open()
        self.lines += [
            *self.near_scratch("team"),
            "  for (int64_t item = team; item < w_count; item += teams) {",
            "    const int32_t hub = ((const int32_t*)w_hubs)[item];",
            "    const int64_t v = rows[hub], start = ((const int64_t*)w_starts)[item];",
            *self.row_scratch("hub"),
            *self.edge_stage(self.edges),
            "  }",
            "}",
        ]

    def first_edge(self, ptr: str) -> str:
        return "start"

    def last_edge(self, ptr: str) -> str:
        return f"start + w_first < {ptr}[v + 1] ? start + w_first : {ptr}[v + 1]"

    def put_reduction(self, op: Op, features: LaneFeatures, peak: str) -> list[str]:
        """To the chunk's partial results; ``peak``: what they are relative to."""
        result, width, place = op.results[0].id, features.width, features.flat()
        given = {f"a{result}": f"a{result}[n]"} if result in self.design.used or self.needs_slot(op) else {}
        given |= {f"b{result}": f"b{result}[n]"} if self.needs_slot(op) else {}
        given |= (
            {f"r{result}": f"vg_set<vg_t<{NUMBER_TYPES[op.results[0].dtype]}, {width}>>({peak}[n])"} if peak else {}
        )
        return [f"vg_store<{width}>({self.partial(name, 'item')} + {place}, {x});" for name, x in given.items()]


@dataclass(eq=False)
class _Together(_Staged):
    """Partial results of a row put together, then a stage on the row."""

    def near_values(self) -> list[Room]:
        return []

    def write(self) -> None:
        self.open()
        self.lines += [
            "  for (int64_t item = team; item < w_count; item += teams) {",
            "    const int64_t v = rows[item]; (void)v;",
            *self.row_scratch("item"),
            "    const int32_t* chunks = (const int32_t*)w_hubs; (void)chunks;",
        ]
        if self.edges is not None:
            for loop in self.edges.loops:
                for op in reductions_of(loop):
                    self.lines += self._together(op, loop)
            self.lines.append(f"    {self.sync()}")
        if self.rows is not None:
            self.lines += self.row_stage(self.rows)
        self.lines += ["  }", "}"]

    def _together(self, op: Op, loop: Loop) -> list[str]:
        assert self.edges is not None
        features = LaneFeatures(self.layout, self.edges, loop, self.most, lanes=self.team, lane="all")
        result, kind, width = op.results[0].id, NUMBER_TYPES[op.results[0].dtype], features.width
        place, vector = f" + {features.flat()}", f"vg_t<{NUMBER_TYPES[op.results[0].dtype]}, {features.width}>"
        beside = "b" if self.needs_slot(op) else "r" if result in self.edges.online_sums.rides else ""
        peak = f"r{result}" if beside == "r" else ""
        added = combined(op, f"a{result}[n]", "x", width, place=f"b{result}[n]" if beside == "b" else "", position="p")
        lines = [f"auto x = vg_load<{width}>({self.partial(f'a{result}', 'c')}{place});"]
        if beside:
            lines.append(f"auto p = vg_load<{width}>({self.partial(f'{beside}{result}', 'c')}{place});")
        lines += [
            f"if (c == chunks[item]) {{ a{result}[n] = x; {f'{beside}{result}[n] = p; ' if beside else ''}}}",
            f"else {{ {self._fade(result) if peak else added} }}",
        ]
        return [
            f"    for (int u = all; u < {features.num_dealt()}; u += {self.team}) {{",
            "      constexpr int n = 0;",
            *(f"      {line}" for line in features.positions()),
            f"      {vector} a{result}[1];",
            *([f"      vg_t<{'int32_t' if beside == 'b' else kind}, {width}> {beside}{result}[1];"] if beside else []),
            "      for (int c = chunks[item]; c < chunks[item + 1]; ++c) {",
            *(f"        {line}" for line in lines),
            "      }",
            *(f"      {line}" for line in self.put_reduction(op, features, peak)),
            "    }",
        ]

    @staticmethod
    def _fade(result: int) -> str:
        """Two sums, each relative to a peak of its own."""
        faded = f"const auto mine = vg_raise(r{result}[n], p), theirs = vg_fade(p, r{result}[n]);"
        return f"{faded} a{result}[n] = a{result}[n] * mine + x * theirs;"
