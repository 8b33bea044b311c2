"""Hubs: rows of very many edges, in chunks that several teams take at once.

Takes: a kernel's design. Gives: one function a stage. Runs once per function.
Each stage over edges leaves a partial result a chunk; the next function puts a row's partials together in the order
of its edges, whoever came first. What stages hand to one another lies in the GPU's memory, a place a row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from vgraph.fusion.accumulators import combined
from vgraph.fusion.cuda.kernel import BLOCK, Function, lay_scratch, rounded_up
from vgraph.fusion.cuda.target import CudaTarget
from vgraph.fusion.emitter import Emitter
from vgraph.fusion.expressions import NUMBER_TYPES
from vgraph.fusion.feature_body import Body
from vgraph.fusion.layout import Layout, Loop, Stage
from vgraph.fusion.scratch import Array, edge_arrays, row_arrays
from vgraph.fusion.text import block
from vgraph.ir.kernel import HubLoop, HubStep
from vgraph.ir.program import Op


def write_stages(target: CudaTarget, name: str) -> tuple[list[_Staged], HubLoop | None]:
    """The functions for rows in chunks, in order, and how they are launched; None: an edge needs too much memory."""
    partials = _Partials(target.layout)
    found: list[_Staged] = []
    waiting: Stage | None = None  # its partial results are not together yet
    for number, stage in enumerate(target.layout.stages):
        if not stage.over:
            found.append(_Together(target, f"{name}_row{number}", partials, edges=waiting, rows=stage))
        elif waiting is not None:
            found.append(_Together(target, f"{name}_hub{number}", partials, edges=waiting))
        if stage.over:
            found.append(_Chunks(target, f"{name}_chunk{number}", partials, edges=stage))
        waiting = stage if stage.over else None
    if waiting is not None and any(loop.reductions for loop in waiting.loops):
        found.append(_Together(target, f"{name}_hub", partials, edges=waiting))
    if not found or any(one.is_far for one in found):  # the GPU's memory has room for rows, not for edges
        return [], None
    steps = tuple(HubStep(one.entry, isinstance(one, _Chunks), one.pointer) for one in found)
    _, row_bytes = lay_scratch(row_arrays(target.layout), 1)
    return found, HubLoop(steps, row_bytes, partials.num_bytes)


class _Partials:
    """Where a chunk's partial results lie: of every accumulator its slots (b) or the peak it is relative to (r)."""

    def __init__(self, layout: Layout) -> None:
        self.num_bytes = 0
        self.found: dict[str, tuple[str, int]] = {}  # number type, offset
        for stage in layout.stages:
            for op in (op for loop in stage.loops for op in loop.reductions):
                kind, result = NUMBER_TYPES[op.results[0].dtype], op.results[0]
                both = [(f"a{result.id}", kind), (f"b{result.id}", "int32_t")][: len(op.results)]
                both += [(f"r{result.id}", kind)] if result.id in stage.online_sums.rides else []
                for name, number in both:
                    self.found[name] = (number, self.num_bytes)
                    size = math.prod(result.row_shape) * (4 if number in ("float", "int32_t") else 8)
                    self.num_bytes += rounded_up(size)

    def at(self, name: str, chunk: str, place: str) -> str:
        kind, offset = self.found[name]
        return f"({kind}*)((char*)w_partials + (int64_t){chunk} * {self.num_bytes} + {offset}) + {place}"


@dataclass(eq=False)
class _ChunkEmitter(Emitter):
    """Reductions go to a chunk's partial results."""

    partials: _Partials

    def put_result(self, body: Body, op: Op, letter: str, peak: str) -> None:
        """``peak``: what they are relative to."""
        result, width, needs_slot = op.results[0].id, body.features.width, self.needs_slot(op)
        given = {"a": f"a{result}[n]"} if result in self.layout.used or needs_slot else {}
        if needs_slot:
            given["b"] = f"b{result}[n]"
        if peak:
            given["r"] = f"vg_set<vg_t<{NUMBER_TYPES[op.results[0].dtype]}, {width}>>({peak})"
        for name, text in given.items():
            body.store(self.partials.at(f"{name}{result}", "item", body.features.flat()), text)


class _Staged(Function):
    """``edges``: the stage over edges that is run, or put together; ``rows``: the stage on rows behind it."""

    def __init__(
        self,
        target: CudaTarget,
        name: str,
        partials: _Partials,
        *,
        edges: Stage | None,
        rows: Stage | None = None,
    ) -> None:
        super().__init__(target, name)
        self.partials, self.edges, self.rows = partials, edges, rows
        self.pointer = "out_ptr" if edges is not None and edges.over == "out" else "in_ptr"

    def row_scratch(self, number: str) -> str:
        """Where a row's values lie in the GPU's memory."""
        lines, size = lay_scratch(row_arrays(self.layout), 1, "row_scratch")
        where = f"(char*)w_scratch + (int64_t){number} * {size}"
        return block(f"char* row_scratch = {where}; (void)row_scratch;", lines)


class _Chunks(_Staged):
    """A stage over edges, a team a chunk."""

    def near_arrays(self) -> list[Array]:
        return edge_arrays(self.layout, BLOCK)

    def body(self) -> str:
        assert self.edges is not None
        ends = "start", "start + w_first < {ptr}[v + 1] ? start + w_first : {ptr}[v + 1]"
        emitter = _ChunkEmitter(self.layout, replace(self.target, ends=ends), self.partials)
        return f"""
        {self.near_scratch()}
        for (int64_t item = team; item < w_count; item += teams) {{
          const int32_t hub = ((const int32_t*)w_hubs)[item];
          const int64_t v = rows[hub], start = ((const int64_t*)w_starts)[item];
          {self.row_scratch("hub")}
          {emitter.stage(self.edges)}
        }}
        """


class _Together(_Staged):
    """Partial results of a row put together, then a stage on the row."""

    def near_arrays(self) -> list[Array]:
        return []

    def body(self) -> str:
        loops = [] if self.edges is None else self.edges.loops
        return f"""
        for (int64_t item = team; item < w_count; item += teams) {{
          const int64_t v = rows[item]; (void)v;
          {self.row_scratch("item")}
          const int32_t* chunks = (const int32_t*)w_hubs; (void)chunks;
          {block(self._together(op, loop) for loop in loops for op in loop.reductions)}
          {"" if self.edges is None else self.target.row_team.sync}
          {"" if self.rows is None else self.emitter.stage(self.rows)}
        }}
        """

    def _together(self, op: Op, loop: Loop) -> str:
        assert self.edges is not None
        body = self.target.body(self.edges, loop, by_team=True)
        result, kind, width = op.results[0].id, NUMBER_TYPES[op.results[0].dtype], body.features.width
        rides, picks = result in self.edges.online_sums.rides, self.emitter.needs_slot(op)
        beside, number = ("b", "int32_t") if picks else ("r", kind)  # what a sum has with it, if anything
        place, flat = f"{beside}{result}", body.features.flat()
        added = combined(op, f"a{result}[n]", "x", width, place=f"{place}[n]" if picks else "", position="p")
        faded = f"const auto mine = vg_raise({place}[n], p), theirs = vg_fade(p, {place}[n]);"
        faded += f" a{result}[n] = a{result}[n] * mine + x * theirs;"  # each relative to a peak of its own
        self.emitter.put_result(body, op, "a", f"{place}[n]" if rides else "")
        has_more = rides or picks
        first = f"a{result}[n] = x;" + (f" {place}[n] = p;" if has_more else "")
        return f"""
        for (int u = all; u < {body.num_dealt}; u += {self.target.team}) {{
          constexpr int n = 0;
          {body.positions()}
          vg_t<{kind}, {width}> a{result}[1];
          {f"vg_t<{number}, {width}> {place}[1];" if has_more else ""}
          for (int c = chunks[item]; c < chunks[item + 1]; ++c) {{
            auto x = vg_load<{width}>({self.partials.at(f"a{result}", "c", flat)});
            {f"auto p = vg_load<{width}>({self.partials.at(place, 'c', flat)});" if has_more else ""}
            if (c == chunks[item]) {{ {first} }}
            else {{ {faded if rides else added} }}
          }}
          {block(body.lines)}
        }}
        """
