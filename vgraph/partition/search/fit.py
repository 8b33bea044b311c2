"""Fit: of all plans that a worker's memory holds, the one that moves the fewest bytes.

Takes: a TrainingStep, a number of workers, perhaps a limit of bytes. Gives: a Found. Runs once per model.
Source: Tofu section 5.2; a limit is priced as in a Lagrangian relaxation, and copies are let go where it is short.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from vgraph.errors import ModelError
from vgraph.ir.sharding import ShardingPlan
from vgraph.ir.step import TrainingStep
from vgraph.partition.accounting.account import Account, account
from vgraph.partition.accounting.footprint import keep_within, program_footprint, whole_footprint
from vgraph.partition.accounting.machines import Machine
from vgraph.partition.accounting.simulate import link_seconds
from vgraph.partition.rewrite.rewrite import rewrite
from vgraph.partition.search.search import Found, Prepared, factorised, search, without_collection

FAIR_SHARE = 1.22  # without a limit a worker keeps copies up to this multiple of its part of the whole
_PRICES = (0.0, 0.25, 1.0, 4.0, 64.0)  # moved bytes that one byte held by a second worker is worth
_DEAR = (0.25, 4.0)  # those that are tried where no limit is given
Weigh = Callable[[Account], float]  # what is to be least
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
    """Of the recursion by prime factors and one step for all workers, what moves less and fits.

    With a machine whose links are a hierarchy, what spends less time on them; then also recursions that divide
    between hosts first, which is the step that moves least, and inside a host by steps or at once.

    Raises:
        ModelError: no plan needs as little memory as the limit allows.
    """
    began = time.perf_counter()
    one = _Problem(step, _factorisations(num_workers, machine), _weigh(machine))
    with without_collection():
        if memory_limit is None:
            best = _moving_least(one, FAIR_SHARE * whole_footprint(step).total / num_workers)
        else:
            best = _fitting(one, num_workers, memory_limit)
    return replace(best.found, seconds=time.perf_counter() - began)


@dataclass(frozen=True, eq=False)
class _Problem:
    step: TrainingStep
    factorisations: list[tuple[int, ...]]
    weigh: Weigh


def _weigh(machine: Machine | None) -> Weigh:
    return (lambda book: book.total_bytes) if machine is None else (lambda book: link_seconds(book, machine))


def _moving_least(one: _Problem, budget: float) -> _Candidate:
    """Plans in the order of what they move while all copies are kept; later ones if copies had to go.

    Where the best holds more than the budget, those of a price on memory that hold no more may move less, too.
    """
    step, prepared = one.step, Prepared(one.step)
    found = [search(step, axes, prepared=prepared) for axes in one.factorisations]
    books = sorted(((account(step, f.plan), f) for f in found), key=lambda pair: one.weigh(pair[0]))
    best = _kept(one, books[0][1], budget, books[0][0])
    for book, other in books[1:]:
        if one.weigh(book) < best.moved:
            best = min(best, _kept(one, other, budget, book), key=lambda each: each.moved)
    for price in _DEAR if best.need > budget else ():
        for other in _candidates(one, budget, price, prepared):
            if other.need <= best.need and other.moved < best.moved:
                best = other
    return best


def _fitting(one: _Problem, num_workers: int, limit: float) -> _Candidate:
    """Raises the price of memory until a plan fits; that it does is seen in the generated program."""
    prepared, least = Prepared(one.step), math.inf
    for price in _PRICES:
        for candidate in sorted(_candidates(one, limit, price, prepared), key=lambda each: each.moved):
            budget = limit
            while candidate.need <= limit:
                need = generated_need(one.step, candidate.found.plan)
                if need <= limit:
                    return candidate
                least = min(least, need)
                budget *= _TIGHTER * limit / need
                tighter = _kept(one, candidate.found, budget, candidate.book)
                if tighter.found.plan == candidate.found.plan:
                    break
                candidate = tighter
            least = min(least, max(candidate.need, 0 if candidate.need > limit else least))
    raise ModelError(
        f"{num_workers} workers need {least:.4g} bytes each, {least - limit:.4g} more than the limit",
        cure="use more workers, a smaller batch, or a higher memory_limit",
    )


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
    return _Candidate(replace(found, plan=plan), moved, need, book)
