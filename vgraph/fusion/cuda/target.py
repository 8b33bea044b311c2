"""GPU: a team of lanes has a row, and each slot of a team an edge.

Takes: stages of a kernel's layout. Gives: the text of their loops in CUDA C++. Runs once per function.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from vgraph.fusion.accumulators import combined
from vgraph.fusion.cuda.lanes import LaneBody, widest
from vgraph.fusion.feature_body import Body
from vgraph.fusion.features import Features
from vgraph.fusion.layout import Loop, Stage
from vgraph.fusion.target import EdgePass, Target, Team
from vgraph.fusion.text import block
from vgraph.ir.program import Op

WARP = 32
_REGISTERS = 64  # numbers of sums that a lane keeps


@dataclass(eq=False)
class CudaTarget(Target):
    """``lanes``: how many share an edge; ``slots``: edges of a row at a time.

    ``span``: vectors of a row that a launch has in one go; 0: all. ``ends``: the first edge that is visited, and the
    one after the last.
    """

    lanes: int = WARP
    slots: int = 1
    span: int = 0
    ends: tuple[str, str] = ("{ptr}[v]", "{ptr}[v + 1]")

    def __post_init__(self) -> None:
        self.team = self.lanes * self.slots
        self.row_team = Team(f"vg_sync<{self.team}>();", f", {self.team}", ", all")
        self.edge_team = Team(f"vg_sync<{self.lanes}>();", f", {self.lanes}", ", lane")

    def body(self, stage: Stage, loop: Loop, *, by_team: bool = False) -> LaneBody:
        """``by_team``: all lanes of a team share it, as they do what is not done for every edge."""
        lanes, lane = (self.team, "all") if by_team or not stage.over else (self.lanes, "lane")
        features = Features.undivided(loop.shape)
        made = LaneBody(self.layout, stage, loop, self.most, features, lanes=lanes, lane=lane, span=self.span)
        return made.fitted()

    def unrolls(self, body: Body, num_sums: int) -> bool:
        return bool(body.stage.over) and num_sums * body.num_vectors * body.features.width <= _REGISTERS

    def columns(self, count: int) -> int:
        return widest(count, self.most)

    def vectors(self, kind: str, name: str, body: Body, itemsize: int) -> str:
        return f"{kind} {name}[{body.num_vectors}];"

    # ------------------------------------------------------------ loops over edges
    def closing(self, body: Body, op: Op, place: str) -> Body:
        """Put by the first slot, once all slots' parts are one; sums on a peak are joined with it."""
        assert isinstance(body, LaneBody)
        last = replace(body, only="slot == 0")
        if self.slots > 1 and op.results[0].id not in body.stage.online_sums.rides:
            last.around.append(self._across_slots(op, body.features.width, place))
        return last

    def _across_slots(self, op: Op, width: int, place: str) -> str:
        name, sizes, row = f"a{op.results[0].id}[n]", f"{self.team}, {self.lanes}", op.reduction
        largest = "true" if row.largest else "false"
        if row.picks and place:
            return f"vg_team_extremum<{largest}, {sizes}>({name}, {place}[n]);"
        if row.picks:
            return f"vg_team_extreme<{largest}, {sizes}>({name}, fresh);"
        if row.team:
            return f"{name} = {row.team}<{sizes}>({name});"
        other = f"const auto other = vg_swap(vg_mask<{self.team}>(), {name}, across);"
        lanes = f"for (int across = {self.lanes}; across < {self.team}; across *= 2)"
        return f"VG_UNROLL {lanes} {{ {other} {combined(op, name, 'other', width)} }}"

    def over_edges(self, passes: Sequence[EdgePass]) -> str:
        (made,) = passes
        picks = any(op.reduction.picks for body in made.bodies for op in body.loop.reductions)
        return f"""
        {{
          {block(_open_peaks(body) for body in made.bodies)}
          {block(made.before)}
          {"bool fresh = true;" if picks else ""}
          {self._by_slots(made, block(self._of_an_edge(made), "fresh = false;" if picks else ""))}
          {block(self._join_peaks(body) for body in made.bodies if self.slots > 1)}
          {block(made.after)}
        }}
        {self.row_team.sync}
        """

    def _of_an_edge(self, made: EdgePass) -> str:
        size, lane = self.edge_team.size, self.edge_team.lane
        inside = (part if isinstance(part, str) else part.of_one_row(size, lane) for part in made.inside)
        return block(inside, (self._full_block(name, text) for name, text in made.outer_sums.items()))

    def _full_block(self, name: int, text: str) -> str:
        """After an edge's rows are in their blocks: the sum of a full one."""
        sync = self.row_team.sync
        return f"if (++rows{name} == vg_block) {{\n{sync}\n{text}\n{sync}\nrows{name} = 0;\n}}"

    def _by_slots(self, made: EdgePass, inside: str) -> str:
        """Ids are read by all lanes of a team at once, then handed round."""
        team, ptr = self.team, made.ptr
        edge, other = ("e", "src_rows") if made.stage.over == "in" else ("k", "out_dst")
        reads = [("o", other)] if "o" in made.rows else []
        reads += [("e", "out_edges")] if edge == "k" and re.search(r"\be\b", inside) else []
        from_, stop = (end.format(ptr=ptr) for end in self.ends)
        given = f"__shfl_sync(vg_mask<{team}>(), my_{{0}}, mine, {team})" if team > 1 else "my_{0}"
        unroll = "" if any(body.loop.fills_scratch for body in made.bodies) else "#pragma unroll 4"
        return f"""
        for (int64_t from = {from_}, stop = {stop}; from < stop; from += {team}) {{
          const int num = stop - from < {team} ? (int)(stop - from) : {team};
          {block(f"const int32_t my_{name} = all < num ? {table}[from + all] : 0;" for name, table in reads)}
          {unroll}
          for (int at = 0; at < num; at += {self.slots}) {{
            const int mine = at + slot;
            {block(f"const int64_t {name} = {given.format(name)};" for name, _ in reads)}
            {"if (mine < num)" if self.slots > 1 else ""} {{
              {"const int64_t e = from + mine; (void)e;" if edge == "e" else ""}
              const int64_t j = from + mine - {ptr}[v]; (void)j;
              {inside}
            }}
          }}
        }}
        """

    # ------------------------------------------------------------ running peaks
    def _join_peaks(self, body: Body) -> str:
        """The sums of all slots that ride on a peak, each relative to the highest one."""
        assert isinstance(body, LaneBody)
        rides = body.stage.online_sums.rides
        sums = [op.results[0].id for op in body.loop.reductions if op.results[0].id in rides]
        mask, count = f"vg_mask<{self.team}>()", body.num_vectors
        joined: list[str] = []
        for name in body.peaks:
            own = [key for key in sums if body.peak(rides[key]) == f"{name}[n]"]
            swapped = (f"a{key}[n] = a{key}[n] * mine + vg_swap({mask}, a{key}[n], across) * theirs;" for key in own)
            joined.append(f"""
            VG_UNROLL for (int n = 0; n < {count}; ++n)
            VG_UNROLL for (int across = {self.lanes}; across < {self.team}; across *= 2) {{
              const auto was = {name}[n], other = vg_swap({mask}, was, across);
              const auto mine = vg_raise({name}[n], other), theirs = vg_fade(other, {name}[n]);
              {block(swapped)}
            }}
            """)
        return block(joined)


def _open_peaks(body: Body) -> str:
    assert isinstance(body, LaneBody)
    return block(
        f"{kind} {name}[{body.num_vectors}];\n"
        + body.over_vectors(f"{name}[n] = vg_set<{kind}>(-(vg_elem<{kind}>)vg_inf);")
        for name, kind in body.peaks.items()
    )
