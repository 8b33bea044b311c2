"""Fit: of all plans that a worker's memory holds, the one that moves the fewest bytes.

Takes: a TrainingStep, a number of workers, perhaps a limit of bytes. Gives: a Found. Runs once per model.
Source: Tofu section 5.2; a limit is priced as in a Lagrangian relaxation, and copies are let go where it is short.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from vgraph.collection import uncollected
from vgraph.errors import ModelError
from vgraph.ir.sharding import ShardingPlan
from vgraph.ir.step import TrainingStep
from vgraph.partition.accounting.account import Account, account
from vgraph.partition.accounting.footprint import (
    footprint,
    program_footprint,
    whole_footprint,
)
from vgraph.partition.accounting.let_go import keep_within
from vgraph.partition.accounting.machines import Machine
from vgraph.partition.accounting.simulate import link_seconds
from vgraph.partition.rewrite.rewrite import rewrite
from vgraph.partition.search.named import NAMED, divides_work, named_plans
from vgraph.partition.search.search import Found, Prepared, factorised, search

FAIR_SHARE = 1.22  # without a limit a worker keeps copies up to this multiple of its part of the whole
_PRICES = (0.0, 0.25, 1.0, 4.0, 64.0)  # moved bytes that one byte held by a second worker is worth
_DEAR = (0.25, 4.0)  # those that are tried where no limit is given
_TIGHTER = 0.97  # the books may be a little below the generated program


@dataclass(frozen=True, eq=False)
class _Candidate:
    found: Found
    moved: float
    need: float  # bytes a worker
    book: Account  # with all copies kept


def search_best(
    step: TrainingStep, num_workers: int, memory_limit: float | None = None, machine: Machine | None = None
) -> Found:
    """Of the recursion by prime factors, one step for all workers and the named plans what moves least and fits.

    With a machine whose links are a hierarchy, what spends less time on them; then also recursions that divide
    between hosts first, which is the step that moves least, and inside a host by steps or at once.

    Raises:
        ModelError: no plan needs as little memory as the limit allows.
    """
    began = time.perf_counter()
    one = _Problem(step, num_workers, _factorisations(num_workers, machine), machine)
    with uncollected(ages=True):
        if memory_limit is None:
            best = _moving_least(one, FAIR_SHARE * whole_footprint(step).total / num_workers)
        else:
            best = _fitting(one, memory_limit)
    return replace(best.found, seconds=time.perf_counter() - began, need=best.need)


@dataclass(frozen=True, eq=False)
class Row:
    """What a named plan moves in a step, and what a worker needs for it, by the books."""

    name: str
    moved: float
    need: float


def rows_of_named(step: TrainingStep, num_workers: int) -> list[Row]:
    """Rows of the named plans that a step has, with all copies kept."""
    if num_workers == 1:
        return []
    with uncollected(ages=True):
        books = {name: account(step, plan) for name, plan in named_plans(step, num_workers).items()}
        return [Row(name, book.total_bytes, footprint(book).total) for name, book in books.items()]


@dataclass(frozen=True, eq=False)
class _Problem:
    step: TrainingStep
    num_workers: int
    factorisations: list[tuple[int, ...]]
    machine: Machine | None

    def weigh(self, book: Account) -> float:
        """What is to be least."""
        return book.total_bytes if self.machine is None else link_seconds(book, self.machine)


def _moving_least(one: _Problem, budget: float) -> _Candidate:
    """Plans in the order of what they move while all copies are kept; later ones if copies had to go.

    Where the best holds more than the budget, those of a price on memory are tried as well.
    """
    step, prepared = one.step, Prepared(one.step)
    found = [search(step, axes, prepared=prepared) for axes in one.factorisations]
    books = sorted(((account(step, f.plan), f) for f in found), key=lambda pair: one.weigh(pair[0]))
    best = _kept(one, books[0][1], budget, books[0][0])
    for book, other in books[1:]:
        if best.need > budget or one.weigh(book) < best.moved:
            best = _better(best, _kept(one, other, budget, book), budget)
    for price in _DEAR if best.need > budget else ():
        for other in _candidates(one, budget, price, prepared):
            best = _better(best, other, budget)
    fits = best.need <= budget
    is_least = fits and not best.found.plan.fetched_again and not prepared.is_small
    names = _names(one, best.moved if fits else math.inf, is_least=is_least)
    for other in _named(one, names, budget, prepared):
        best = _better(best, other, budget)
    return best


def _better(best: _Candidate, other: _Candidate, budget: float) -> _Candidate:
    """What is within the budget and moves less; of two that are not, that of the least product of bytes and memory."""

    def rank(each: _Candidate) -> tuple[bool, float]:
        return (True, each.moved * each.need) if each.need > budget else (False, each.moved)

    return min(best, other, key=rank)


def _names(one: _Problem, moved: float, *, is_least: bool) -> list[str]:
    """The named plans that may move less than this; ``is_least``: no plan of one step does, as Megatron's is.

    Those by the batch gather and scatter, or sum, every gradient. Where ops are few, Megatron's is always tried: the
    costs of a search miss some copies that are shared.
    """
    if one.num_workers == 1 or one.machine is not None:
        return [] if one.num_workers == 1 else list(NAMED)
    gradients = sum(value.row_bytes for value in one.step.gradients.values())
    by_batch = moved > 2 * (one.num_workers - 1) * gradients
    return [name for name in NAMED if (not is_least if name == "Megatron" else by_batch)]


def _named(one: _Problem, names: Sequence[str], budget: float, prepared: Prepared) -> Iterator[_Candidate]:
    for name in names:
        plan = NAMED[name](one.step, one.num_workers, prepared)
        if plan is not None and divides_work(one.step, plan, 0):
            book = account(one.step, plan)
            yield _kept(one, Found(plan, book.step_bytes, 0.0), budget, book)


def _fitting(one: _Problem, limit: float) -> _Candidate:
    """Raises the price of memory until a plan fits, then looks whether a named one that fits moves less."""
    prepared = Prepared(one.step)
    best, least = _first_that_fits(one, limit, prepared)
    for candidate in _named(one, _names(one, best.moved if best else math.inf, is_least=False), limit, prepared):
        if best is None or candidate.moved < best.moved:
            found, need = _within(one, candidate, limit)
            best, least = found or best, min(least, need)
    if best is None:
        raise ModelError(
            f"{one.num_workers} workers need {least:.4g} bytes each, {least - limit:.4g} more than the limit",
            cure="use more workers, a smaller batch, or a higher memory_limit",
        )
    return best


def _first_that_fits(one: _Problem, limit: float, prepared: Prepared) -> tuple[_Candidate | None, float]:
    """The plan of the lowest price of memory that fits, and the least that any needs."""
    least = math.inf
    for price in _PRICES:
        for candidate in sorted(_candidates(one, limit, price, prepared), key=lambda each: each.moved):
            found, need = _within(one, candidate, limit)
            least = min(least, need)
            if found is not None:
                return found, least
    return None, least


def _within(one: _Problem, candidate: _Candidate, limit: float) -> tuple[_Candidate | None, float]:
    """The candidate as its generated program fits, with more copies let go where it must; the least that it needs."""
    least, budget = candidate.need if candidate.need > limit else math.inf, limit
    while candidate.need <= limit:
        need = generated_need(one.step, candidate.found.plan)
        if need <= limit:
            return candidate, need
        least = min(least, need)
        budget *= _TIGHTER * limit / need
        tighter = _kept(one, candidate.found, budget, candidate.book)
        if tighter.found.plan == candidate.found.plan:
            break
        candidate = tighter
    return None, least


def generated_need(step: TrainingStep, plan: ShardingPlan) -> float:
    """Bytes that the fullest worker needs, by its generated program."""
    return program_footprint(rewrite(step.program, plan, None, step.overwrites), step).total


def _candidates(one: _Problem, budget: float, price: float, prepared: Prepared) -> Iterator[_Candidate]:
    for axes in one.factorisations:
        found = search(one.step, axes, restrict=lambda o: replace(o, price=price), prepared=prepared)
        yield _kept(one, found, budget, account(one.step, found.plan))


def _factorisations(num_workers: int, machine: Machine | None = None) -> list[tuple[int, ...]]:
    """Without a hierarchy two; with one, also those whose first steps are between hosts."""
    axes = factorised(num_workers)
    found = [axes, (num_workers,) if axes else ()]
    for link in machine.links if machine is not None else ():
        hosts, rest = divmod(num_workers, link.size)
        if not rest and 1 < link.size < num_workers:
            found += [(*factorised(hosts), *factorised(link.size)), (hosts, link.size), (*factorised(hosts), link.size)]
    return list(dict.fromkeys(found))


def _kept(one: _Problem, found: Found, budget: float, book: Account) -> _Candidate:
    """The plan with its copies within a budget; ``book``: that of the plan that keeps all."""
    plan, need = keep_within(book, budget)
    moved = one.weigh(account(one.step, plan) if plan.fetched_again else book)
    kept = _Candidate(replace(found, plan=plan), moved, need, book)
    if need <= budget or not plan.fetched_again:
        return kept
    in_slices = replace(book.plan, room=budget)
    need = footprint(replace(book, plan=in_slices)).total
    return _better(kept, _Candidate(replace(found, plan=in_slices), one.weigh(book), need, book), budget)
