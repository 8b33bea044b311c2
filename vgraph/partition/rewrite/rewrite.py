"""Rewrite: a Program and its ShardingPlan -> one Program a worker, with explicit fetches.

Takes: a dense Program, a plan. Gives: a PartitionedProgram. Runs once per function.
Source: Tofu section 6 (generated graph: original order, fused fetches, spread-out reductions).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from vgraph.ir.exchange import Assemble, Exchange, Fetch, ReplicaMean
from vgraph.ir.partitioned import Layout, PartitionedProgram
from vgraph.ir.program import Input, Op, Program, Value, op_name
from vgraph.ir.sharding import At, Partial, Placement, Region, Replicate, ShardingPlan, Strategy
from vgraph.ir.tdl.notation import Notation
from vgraph.ir.tdl.table import reads_values
from vgraph.ir.verify import verify
from vgraph.partition.rewrite.layout import Steps, Workers, build_exchange, moved_entries, partial_steps, placed, spread
from vgraph.partition.rewrite.local_ops import emit_share
from vgraph.partition.rewrite.regions import OpRegions, intersect, notation_of, op_regions
from vgraph.partition.rewrite.share import Builder, Share, local_shape
from vgraph.partition.rewrite.slices import in_slices
from vgraph.partition.rewrite.views import View, views_of

aten = torch.ops.aten
Regions = tuple[Region | None, ...]  # one a worker
_WINDOWS = frozenset(("convolution", "convolution_backward"))
HOME = torch.device("cpu")  # stands for the device of the worker


@dataclass(frozen=True)
class RewriteOptions:
    """Switches of the generated program, for ablations by ``Plan.with_options``; the defaults are what is best.

    Attributes:
        fused_fetch: one exchange assembles an operand from all its pieces (else one a remote worker).
        spread_reductions: every worker of a group reduces a part (else one reduces all).
        original_order: ops stay in the order of the Program (else breadth first).
        late_fetch: a fetch is issued by the op that reads (else as soon as the value is made).
        reuse: a fetched copy is kept for readers at most this many ops later; None: for all.

    Source: Wang, Huang and Li 2019 (Tofu), section 6.

    Example:
        >>> from vgraph.partition.rewrite.rewrite import RewriteOptions
        >>> RewriteOptions(fused_fetch=False).late_fetch
        True
    """

    fused_fetch: bool = True
    spread_reductions: bool = True
    original_order: bool = True
    late_fetch: bool = True
    reuse: int | None = None


@dataclass(eq=False)
class _Held:
    """One copy of a value: where it lies, each worker's local Value, and those of its views that were read of it."""

    layout: Layout
    locals: tuple[Value | None, ...]
    made_at: int
    views: dict[int, tuple[Value | None, ...]] = field(default_factory=dict[int, tuple[Value | None, ...]])


def rewrite(
    program: Program,
    plan: ShardingPlan,
    options: RewriteOptions | None = None,
    overwrites: tuple[tuple[int, int], ...] = (),
) -> PartitionedProgram:
    """One Program a worker, equal in what it computes to the whole Program.

    ``overwrites``: (input, output) where an executor may put the output into the input's memory.
    """
    options = options or RewriteOptions()
    if not options.original_order:
        order = _breadth_first(program)
        program = replace(program, ops=tuple(program.ops[i] for i in order))
        strategies = tuple(plan.strategies[i] for i in order)
        plan = replace(plan, strategies=strategies, fetched_again=frozenset())
    parts = replace(_Rewriter(program, plan, options).run(), overwrites=overwrites)
    return parts if plan.room is None else in_slices(parts, plan.room)


def _breadth_first(program: Program) -> list[int]:
    """The order in which ops become ready, all that are ready together one after the other."""
    level: dict[int, int] = {}
    depth: list[int] = []
    for op in program.ops:
        depth.append(1 + max((level.get(v.id, 0) for v in op.operands()), default=0))
        level.update((v.id, depth[-1]) for v in op.results)
    return sorted(range(len(depth)), key=lambda i: depth[i])


@dataclass(eq=False)
class _Rewriter:
    program: Program
    plan: ShardingPlan
    options: RewriteOptions
    exchanges: list[Exchange] = field(default_factory=list[Exchange])
    origin: dict[int, int] = field(default_factory=dict[int, int])
    held: dict[int, list[_Held]] = field(default_factory=dict[int, list[_Held]])  # the first: as made, or its sum
    homes: dict[int, Layout] = field(default_factory=dict[int, Layout])  # where a value lies, once it does
    at: int = -1  # the op that is being rewritten

    def __post_init__(self) -> None:
        self.workers = Workers(self.plan)
        self.digits = self.workers.digits
        self.views = views_of(self.program)
        counter = itertools.count()
        self.builders = [Builder(counter) for _ in self.digits]
        self.known: dict[tuple[object, ...], list[OpRegions | None]] = {}
        self.readers: dict[int, list[tuple[int, int]]] = {}
        if not self.options.late_fetch:
            for number, op in enumerate(self.program.ops):
                for position, value in enumerate(op.operands()):
                    self.readers.setdefault(value.id, []).append((number, position))

    def run(self) -> PartitionedProgram:
        inputs = [self._input(given) for given in self.program.inputs]
        for given in self.program.inputs:
            self._fetch_early(given.value)
        for number, op in enumerate(self.program.ops):
            self.at = number
            if isinstance(op.target, ReplicaMean):
                self._mean_where_it_lies(op)
            else:
                self._rewrite_op(op, self.plan.strategies[number])
            for value in op.results:
                self._fetch_early(value)
        outputs = [None if value is None else self._output(value) for value in self.program.outputs]
        programs = tuple(
            Program(
                f"{self.program.name}@{worker}",
                tuple(
                    Input(held.locals[worker] or self._nothing(worker), given.name)
                    for given, held in zip(self.program.inputs, inputs, strict=True)
                ),
                tuple(self.builders[worker].ops),
                tuple(None if held is None else held.locals[worker] for held in outputs),
            )
            for worker in range(self.workers.count)
        )
        for program in programs:
            verify(program)
        layouts = tuple(None if held is None else held.layout for held in outputs)
        return PartitionedProgram(
            programs, tuple(self.exchanges), tuple(held.layout for held in inputs), layouts, self.origin
        )

    def _nothing(self, worker: int) -> Value:
        """Stands for an input of which a worker has nothing."""
        return self.builders[worker].value((0,), self.program.inputs[0].value.dtype)

    def _input(self, given: Input) -> _Held:
        layout = placed(given.value.row_shape, self.plan.placements[given.value.id], self.workers)
        held = _Held(layout, self._new_values(given.value, layout.regions), -1)
        self.held[given.value.id], self.homes[given.value.id] = [held], layout
        return held

    def _new_values(self, value: Value, regions: Sequence[Region | None]) -> tuple[Value | None, ...]:
        return tuple(
            None if region is None else self.builders[worker].value(local_shape(region), value.dtype, value.line)
            for worker, region in enumerate(regions)
        )

    # ------------------------------------------------------------ ops
    def _rewrite_op(self, op: Op, strategies: tuple[Strategy, ...]) -> None:
        notation = None if _is_placed(strategies) else notation_of(op)
        shares = self._shares(op, notation, strategies)
        local: list[tuple[Value | None, ...]] = []
        for position, value in enumerate(op.operands()):
            if not reads_values(op, position):
                local.append(self._stand_ins(value, [share and share.inputs[position] for share in shares]))
                continue
            asked = tuple([strategy.inputs[position] for strategy in strategies])
            need = tuple(None if share is None else share.inputs[position] for share in shares)
            local.append(self._bring(value, need, partial_steps(asked), asked))
        made: list[tuple[Value, ...] | None] = []
        for worker, regions in enumerate(shares):
            if regions is None:
                made.append(None)
                continue
            mine = tuple(value for values in local if (value := values[worker]) is not None)
            share = Share(op, notation, regions, mine, strategies, self.digits[worker], self.builders[worker])
            made.append(share.plain() if _is_placed(strategies) and reads_values(op) else emit_share(share))
        for number, result in enumerate(op.results):
            placements = tuple(strategy.outputs[number] for strategy in strategies)
            regions = tuple(None if share is None else share.outputs[number] for share in shares)
            values = tuple(None if results is None else results[number] for results in made)
            self._hold(result, _Held(Layout(placements, regions), values, self.at))

    def _mean_where_it_lies(self, op: Op) -> None:
        """Workers of the same number exchange their parts; a term's mean is a term of the mean."""
        (value,), (result,) = op.operands(), op.results
        held = self.held[value.id][0]
        made = tuple(
            None if mine is None else builder.emit(op.target, (mine,), builder.value(mine.row_shape, mine.dtype))
            for builder, mine in zip(self.builders, held.locals, strict=True)
        )
        self.held[result.id], self.homes[result.id] = [_Held(held.layout, made, self.at)], held.layout

    def _fetch_early(self, value: Value) -> None:
        """Without ``late_fetch``: everything that later ops read of a value, as soon as it is made."""
        for number, position in self.readers.get(value.id, ()):
            op, strategies = self.program.ops[number], self.plan.strategies[number]
            if reads_values(op, position):
                shares = self._shares(op, None if _is_placed(strategies) else notation_of(op), strategies)
                need = tuple(None if share is None else share.inputs[position] for share in shares)
                asked = tuple([strategy.inputs[position] for strategy in strategies])
                self._bring(value, need, partial_steps(asked), asked)

    def _stand_ins(self, value: Value, regions: Sequence[Region | None]) -> tuple[Value | None, ...]:
        """Values of which only the shape matters are not fetched: one number, expanded."""
        found: list[Value | None] = []
        for worker, region in enumerate(regions):
            builder = self.builders[worker]
            if region is None:
                found.append(None)
                continue
            number = builder.emit(
                aten.zeros.default, ([],), builder.value((), value.dtype), dtype=value.dtype, device=HOME
            )
            shape = list(local_shape(region))
            found.append(builder.emit(aten.expand.default, (number, shape), builder.value(shape, value.dtype)))
        return tuple(found)

    def _shares(self, op: Op, notation: Notation | None, strategies: tuple[Strategy, ...]) -> list[OpRegions | None]:
        """The regions of every worker; those of equal ops are computed once."""
        chosen = tuple((s.index, s.outer, s.outputs) for s in strategies)
        shapes = tuple(v.shape for v in (*op.operands(), *op.results))
        key = (str(op.target), str(notation), shapes, chosen)
        if key not in self.known:
            self.known[key] = [
                None if _is_idle(strategies, digits) else op_regions(op, notation, strategies, self.plan.axes, digits)
                for digits in self.digits
            ]
        return self.known[key]

    def _hold(self, value: Value, held: _Held) -> None:
        self.held[value.id] = [held]
        wanted = self.plan.placements.get(value.id)
        if wanted is not None and wanted != held.layout.placements:
            layout = placed(value.row_shape, wanted, self.workers)
            local = self._bring(value, layout.regions, partial_steps(wanted))
            self.held[value.id] = [_Held(layout, local, self.at)]
        self.homes[value.id] = self.held[value.id][0].layout

    def _output(self, value: Value) -> _Held:
        held = self.held[value.id][0]
        if not partial_steps(held.layout.placements):
            return held
        placements = tuple(Replicate() if isinstance(p, Partial) else p for p in held.layout.placements)
        self._hold_as(value, placements)
        return self.held[value.id][0]

    def _hold_as(self, value: Value, placements: tuple[Placement, ...]) -> None:
        layout = placed(value.row_shape, placements, self.workers)
        local = self._bring(value, layout.regions, frozenset())
        self.held[value.id] = [_Held(layout, local, self.at)]

    # ------------------------------------------------------------ communication
    def _bring(
        self, value: Value, need: Regions, kept: Steps, asked: tuple[Placement, ...] = ()
    ) -> tuple[Value | None, ...]:
        """Local values with the regions that each worker needs, fetched where neither they nor a base's are at hand.

        ``asked``: where a strategy reads the value; of what lies so an op may need a part only.
        """
        found = self._at_hand(value, need, kept)
        base, there = (value, need) if kept or found is self.held[value.id][0] else self._base(value, need)
        found = self._at_hand(base, there, kept)
        if found in self.held[base.id][1:] and (self.at, base.id) in self.plan.fetched_again:
            self.held[base.id].remove(found)
            found = None
        if found is None:
            asked_there = self._base(value, placed(value.row_shape, asked, self.workers).regions) if asked else None
            wider = asked_there[1] if asked_there is not None and asked_there[0] is base else None
            source = self._wider_copy(base, there, kept, wider) or self._reduced(base, there, kept)
            found = self._fetch(base, source, there, kept)
            self.held[base.id].append(found)
        return self._seen(base, found, value, need)

    def _base(self, value: Value, need: Regions) -> tuple[Value, Regions]:
        """What a view is a view of, where the one lies as the other, and the same entries of it."""
        while (view := self.views.get(value.id)) is not None and self._lie_alike(value, view):
            there = _regions(view, need)
            if there is None:
                break
            value, need = view.base, there
        return value, need

    def _lie_alike(self, value: Value, view: View) -> bool:
        mine, other = self.homes.get(value.id), self.homes[view.base.id]
        if mine is None or partial_steps(mine.placements) != partial_steps(other.placements):
            return False
        return _regions(view, mine.regions) == other.regions

    def _at_hand(self, value: Value, need: Regions, kept: Steps) -> _Held | None:
        """What holds exactly these regions."""
        for copy in self.held[value.id]:
            if partial_steps(copy.layout.placements) != kept or not self._is_near(copy):
                continue
            if all(n is None or n == h for n, h in zip(need, copy.layout.regions, strict=True)):
                return copy
        return None

    def _seen(self, base: Value, copy: _Held, value: Value, need: Regions) -> tuple[Value | None, ...]:
        """A copy as the value that is a view of it, by the ops that lead from the one to the other."""
        if value is base:
            return copy.locals
        if value.id not in copy.views:
            view = self.views.get(value.id)
            there = None if view is None else _regions(view, need)
            assert view is not None and there is not None, "a view of these regions was found"
            given = self._seen(base, copy, view.base, there)
            shares = [
                None if part is None or before is None else OpRegions({}, (before,), (part,))
                for part, before in zip(need, there, strict=True)
            ]
            copy.views[value.id] = tuple(
                None if share is None or mine is None else self._view(view.op, share, mine, worker)
                for worker, (share, mine) in enumerate(zip(shares, given, strict=True))
            )
        return copy.views[value.id]

    def _view(self, op: Op, regions: OpRegions, mine: Value, worker: int) -> Value:
        return emit_share(Share(op, notation_of(op), regions, (mine,), (), self.digits[worker], self.builders[worker]))[
            0
        ]

    def _wider_copy(self, value: Value, need: Regions, kept: Steps, asked: Regions | None) -> _Held | None:
        """A copy that holds all that every worker needs, and more: a stride's windows end before a block does.

        Else it is one of all that was asked for, of which a slice or one of the operands of a cat needs a part.
        """
        if kept or (self.at, value.id) in self.plan.fetched_again:
            return None
        is_window = self.at >= 0 and op_name(self.program.ops[self.at].target) in _WINDOWS
        for copy in self.held[value.id][1:]:
            regions = zip(need, copy.layout.regions, strict=True)
            if partial_steps(copy.layout.placements) or not self._is_near(copy):
                continue
            if not is_window and copy.layout.regions != asked:
                continue
            if all(n is None or _is_within(n, h) for n, h in regions):
                return copy
        return None

    def _is_near(self, copy: _Held) -> bool:
        window = self.options.reuse
        return window is None or copy.made_at < 0 or self.at - copy.made_at <= window

    def _reduced(self, value: Value, need: tuple[Region | None, ...], kept: Steps) -> _Held:
        """The copy to fetch from: terms are reduced once, spread out, if that moves fewer bytes.

        The terms stay for whoever reads terms.
        """
        held = self.held[value.id][0]
        if not partial_steps(held.layout.placements) - kept:
            return held
        stays = kept & partial_steps(held.layout.placements)
        spread_out = spread(held.layout, stays, self.workers, is_spread=self.options.spread_reductions)
        first = moved_entries(held.layout, spread_out.regions, stays, self.workers)
        then = moved_entries(spread_out, need, kept, self.workers)
        if self.options.spread_reductions and moved_entries(held.layout, need, kept, self.workers) <= first + then:
            return held
        reduced = self._fetch(value, held, spread_out.regions, stays)
        copy = _Held(spread_out, reduced.locals, self.at)
        self.held[value.id][:1] = [copy, held]
        return copy

    def _fetch(self, value: Value, source: _Held, need: tuple[Region | None, ...], kept: Steps) -> _Held:
        exchange = build_exchange(len(self.exchanges), value.dtype, source.layout, need, kept, self.workers)
        is_single = all(len(pieces) <= 1 for pieces in exchange.pieces)
        local = (
            self._exchange(value, source, exchange)
            if self.options.fused_fetch or is_single or exchange.fill
            else self._piecewise(value, source, exchange)
        )
        placements = tuple(Partial() if s in kept else Replicate() for s in range(len(self.plan.axes)))
        return _Held(Layout(placements, need), local, self.at)

    def _exchange(self, value: Value, source: _Held, exchange: Exchange) -> tuple[Value | None, ...]:
        exchange = replace(exchange, number=len(self.exchanges))
        self.exchanges.append(exchange)
        self.origin[exchange.number] = self.at
        local = self._new_values(value, exchange.need)
        for worker in range(self.workers.count):
            mine, result = source.locals[worker], local[worker]
            args = () if mine is None else (mine,)
            results = () if result is None else (result,)
            self.builders[worker].ops.append(Op(Fetch(exchange, worker), args, {}, results, value.line))
        return local

    def _piecewise(self, value: Value, source: _Held, exchange: Exchange) -> tuple[Value | None, ...]:
        """Without ``fused_fetch``: each piece is fetched for itself, then they are put together."""
        count = self.workers.count
        fetched: list[list[Value]] = [[] for _ in range(count)]
        for number in range(max(len(pieces) for pieces in exchange.pieces)):
            pieces = tuple(p[number : number + 1] for p in exchange.pieces)
            need = tuple(p[0].region if p else None for p in pieces)
            local = self._exchange(value, source, replace(exchange, need=need, pieces=pieces, reducer=None))
            for worker in range(count):
                fetched[worker] += [part for part in local[worker : worker + 1] if part is not None]
        made = self._new_values(value, exchange.need)
        for worker, (result, region) in enumerate(zip(made, exchange.need, strict=True)):
            if result is not None and region is not None:
                target = Assemble(region, exchange.pieces[worker], exchange.reducer)
                self.builders[worker].ops.append(Op(target, tuple(fetched[worker]), {}, (result,), value.line))
        return made


def _is_within(part: Region, other: Region | None) -> bool:
    """Whether all entries of a region are among those of another; one of no entries is within any."""
    return other is not None and (not all(map(len, part)) or intersect(part, other) == part)


def _regions(view: View, need: Regions) -> Regions | None:
    """Where the regions of a view lie in its base; None: they are no regions there."""
    found = tuple(None if part is None else view.region(part) for part in need)
    is_known = all(part is None or there is not None for part, there in zip(need, found, strict=True))
    return found if is_known else None


def _is_placed(strategies: tuple[Strategy, ...]) -> bool:
    """Operator placement alone: one worker runs the op as it is, on whole operands."""
    return all(isinstance(placement, At) for strategy in strategies for placement in strategy.outputs)


def _is_idle(strategies: tuple[Strategy, ...], digits: tuple[int, ...]) -> bool:
    """Operator placement: another worker of a step runs the op."""
    return any(
        isinstance(placement, At) and placement.worker != digit
        for strategy, digit in zip(strategies, digits, strict=True)
        for placement in strategy.outputs
    )
