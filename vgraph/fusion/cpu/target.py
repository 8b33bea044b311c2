"""CPU: a thread has a row; its edges are taken in chains, and rows that later edges need are fetched ahead.

Takes: stages of a kernel's layout. Gives: the text of their loops in C++. Runs once per function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from vgraph.fusion.accumulators import combined
from vgraph.fusion.cpu.by_source import edge_row
from vgraph.fusion.cpu.edge_blocks import EdgeBlocks
from vgraph.fusion.cpu.edge_vectors import EdgeVectors, across_edges
from vgraph.fusion.cpu.row_tiles import tile_row
from vgraph.fusion.cpu.side_by_side import far_row
from vgraph.fusion.cpu.vectors import VectorBody, most_within
from vgraph.fusion.expressions import C_TYPES, NUMBER_TYPES
from vgraph.fusion.feature_body import Body
from vgraph.fusion.features import Features
from vgraph.fusion.layout import Loop, Stage
from vgraph.fusion.scratch import Scratch, bytes_of
from vgraph.fusion.target import EdgePass, Target
from vgraph.fusion.text import block
from vgraph.ir.program import Op, Value
from vgraph.ir.row_tiles import tiled_loads

_MOST_REGISTERS = 24  # vectors of sums that one loop over edges keeps
_MOST_SHORT = 8  # vectors of a loop that is written out
_AHEAD = (12, 32)  # least and most edges between a prefetch and its use
_LINES_AHEAD = 256  # cache lines that are on their way meanwhile
_MOST_LINES = 16  # cache lines of one row that are fetched ahead


@dataclass(eq=False)
class CpuTarget(Target):
    """``fetched``: loads that another loop over edges fetches ahead; ``blocks``: loops that take blocks of edges.

    ``tile``: features that are taken at a time, with rows that edges read from copies; 0: all. ``fills_tiles``: what is
    stored is put there, for the next part of the kernel.
    """

    scratch: Scratch
    tile: int = 0
    fills_tiles: bool = False
    fetched: set[tuple[int, str]] = field(default_factory=set[tuple[int, str]])
    blocks: list[EdgeBlocks | EdgeVectors] = field(default_factory=list["EdgeBlocks | EdgeVectors"])

    def body(self, stage: Stage, loop: Loop) -> VectorBody:
        features, tile = Features.undivided(loop.shape), self.tile if math.prod(loop.shape) > 1 else 0
        return VectorBody(self.layout, stage, loop, self.most, features, tile=tile).fitted()

    def unrolls(self, body: Body, num_sums: int) -> bool:
        """Sums over features, too: one after the other, they wait for nothing."""
        is_short = "feature" in body.loop.kinds and body.num_vectors <= _MOST_SHORT
        return is_short or 0 < num_sums * body.num_vectors <= _MOST_REGISTERS

    def across_edges(self, body: Body) -> Body | None:
        assert isinstance(body, VectorBody)
        return across_edges(body)

    def columns(self, count: int) -> int:
        return most_within(count, self.most)

    def vectors(self, kind: str, name: str, body: Body, itemsize: int) -> str:
        return self.scratch.array(kind, name, body.num_vectors, itemsize)

    # ------------------------------------------------------------ chains of edges
    def open_sum(self, made: EdgePass, body: Body, op: Op, opened: Callable[[str], str]) -> str:
        """Sums of sums, where a long row's error grows with the length of a chain, and with their number."""
        if not op.reduction.in_chains:
            return super().open_sum(made, body, op, opened)
        made.before.append(opened("c"))
        made.first.append(opened("a"))
        made.last.append(self._close_chain(body, op))
        return "c"

    def _close_chain(self, body: Body, op: Op) -> str:
        """What was added up before fades where the peak was raised."""
        name, last = op.results[0].id, replace(body)
        ride = body.stage.online_sums.rides.get(name)
        if ride is None:
            return body.over_vectors(combined(op, f"c{name}[q]", f"a{name}[q]", body.features.width))
        assert isinstance(last, VectorBody)
        last.put(
            f"c{name}[{last.vector}] = c{name}[{last.vector}] * {last.of_peak(ride, 'fade')} + a{name}[{last.vector}];"
        )
        return last.text()

    def over_edges(self, passes: Sequence[EdgePass]) -> str:
        """Chains of edges; what is joined takes each chain once more, when its peak is known."""
        own, *joined = passes
        parts = [self._over_chain(one) for one in passes]
        if joined:
            self._raise_peaks(own, joined)
        step = "vg_turn" if joined else "vg_chain"
        inside = (block(*one.first, part, *one.last) for one, part in zip(passes, parts, strict=True))
        return f"""
        {block(line for one in passes for line in one.before)}
        for (int64_t from = {own.ptr}[v], stop = {own.ptr}[v + 1]; ; from += {step}) {{
          const int64_t to = from + {step} < stop ? from + {step} : stop;
          {block(inside)}
          if (to == stop) break;
        }}
        {block(line for one in passes for line in one.after)}
        """

    def _over_chain(self, made: EdgePass) -> str:
        edge, other = ("e", "src_rows[{}]") if made.stage.over == "in" else ("k", "out_dst[{}]")
        fetch = [load for body in made.bodies for load in body.irregular]
        ahead = block(self._prefetches(fetch, edge, other))
        some = EdgeVectors(made, self.layout, edge, other.partition("[")[0])
        if some.is_worth_it:
            self.blocks.append(some)
            return some.text(lambda numbers: self._named(made, edge, other, numbers), ahead)
        texts = [part for part in made.inside if isinstance(part, str)]
        if len(texts) < len(made.inside) or made.outer_sums:
            blocks = EdgeBlocks(made, self.layout, edge)
            self.blocks.append(blocks)
            return blocks.text(self._named(made, edge, other), ahead)
        return f"""
        for (int64_t {edge} = from; {edge} < to; ++{edge}) {{
          {self._named(made, edge, other)}
          {ahead}
          {block(texts)}
        }}
        """

    def _named(self, made: EdgePass, edge: str, other: str, numbers: Sequence[int] | None = None) -> str:
        """What the text of an edge calls its number, the row at its other end and its place among the row's edges.

        ``numbers``: of the loops that the text runs, if they are not all of them.
        """
        names_edge = edge == "k" and self.layout.spec.names_edges
        bodies = made.bodies if numbers is None else [made.bodies[number] for number in numbers]
        far_rows = dict.fromkeys(line for body in bodies if isinstance(body, VectorBody) for line in body.far_rows())
        return f"""
          {"const int64_t e = out_edges[k]; (void)e;" if names_edge else ""}
          {f"const int64_t o = {other.format(edge)}; (void)o;" if "o" in made.rows else ""}
          const int64_t j = {edge} - {made.ptr}[v]; (void)j;
          {block(far_rows)}
        """

    def stored_row(self, value: Value, row: str) -> str:
        return tile_row(value, row, self.tile) if self.fills_tiles else super().stored_row(value, row)

    def outer_row(self, op: Op) -> str:
        """Behind those of the blocks before, the edge's number in its own."""
        return f"(rows{op.results[0].id} + b)"

    def _prefetches(self, fetch: list[tuple[Value, str]], edge: str, other: str) -> list[str]:
        """Rows that the next edges will read from somewhere else."""
        lines: list[str] = []
        new = {(v.id, row): v for v, row in fetch if (v.id, row) not in self.fetched and (row, edge) != ("e", "e")}
        self.fetched |= set(new)
        starts = {key: self._lines_of(v, key[1])[:_MOST_LINES] for key, v in new.items()}
        least, most = _AHEAD
        far = max(least, min(most, _LINES_AHEAD // max(1, sum(map(len, starts.values())))))
        for (key, row), value in new.items():
            place = (
                self._row_ahead(value, other.format(f"{edge} + {far}")) if row == "o" else self._edge_ahead(value, far)
            )
            lines.append(f"const {C_TYPES[value.dtype]}* p{key}{row} = {place};")
            lines += [f"vg_read_ahead(p{key}{row} + {start});" for start in starts[key, row]]
        return lines

    def _lines_of(self, value: Value, row: str) -> range:
        """The numbers with which cache lines of a row begin, of those that are read."""
        size = self.tile if self._is_tiled(value) and row == "o" else math.prod(value.row_shape)
        return range(0, size, 64 // value.dtype.itemsize)

    def _is_tiled(self, value: Value) -> bool:
        return self.tile > 0 and value in tiled_loads(self.layout.spec)

    def _row_ahead(self, value: Value, row: str) -> str:
        spec = self.layout.spec
        return f"{tile_row(value, row, self.tile)} + tile" if self._is_tiled(value) else far_row(spec, value, row)

    def _edge_ahead(self, value: Value, far: int) -> str:
        edge = edge_row(self.layout.spec, value, f"k + {far}", f"out_edges[k + {far}]")
        return f"l{value.id} + (int64_t){edge} * {math.prod(value.row_shape)}"

    # ------------------------------------------------------------ running peaks
    def _raise_peaks(self, made: EdgePass, joined: Sequence[EdgePass]) -> None:
        """Between the passes over a chain: the peaks so far, and how much what is relative to others fades."""
        peaks = {peak for other in joined for peak in other.stage.online_sums.above.values()}
        for body in made.bodies:
            for peak in (op.results[0] for op in body.loop.reductions if op.results[0].id in peaks):
                kind, name, width = NUMBER_TYPES[peak.dtype], peak.id, body.features.width
                place, now = f"t{name} + {body.features.flat()}", f"a{name}[{body.vector}]"
                lowest, fades, store = replace(body), replace(body), replace(body)
                lowest.store(place, f"-({kind})vg_inf")
                fades.store(f"fade{place[1:]}", f"vg_fade(vg_load<{width}>({place}), {now})")
                store.store(place, now)
                declared = self.scratch.array(kind, f"fade{name}", math.prod(peak.row_shape), bytes_of(peak))
                made.before += [declared, lowest.text()]
                made.last += [fades.text(), store.text()]
