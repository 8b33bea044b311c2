"""Fit: of all plans that a worker's memory holds, the one that moves the fewest bytes.

Takes: a TrainingStep, a number of workers, perhaps a limit of bytes. Gives: a Found; tempo: once a model.
Source: Tofu section 5.2; a limit is priced as in a Lagrangian relaxation, and copies are let go where it is short.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from vgraph.errors import ModelError
from vgraph.ir.sharding import ShardingPlan
from vgraph.ir.step import TrainingStep
from vgraph.partition.account import account
from vgraph.partition.footprint import footprint, keep_within, program_footprint, whole_footprint
from vgraph.partition.rewrite import rewrite
from vgraph.partition.search import Found, Prepared, factorised, search

FAIR_SHARE = 1.22  # without a limit a worker keeps copies up to this multiple of its part of the whole
_PRICES = (0.0, 0.25, 1.0, 4.0, 64.0)  # moved bytes that one byte held by a second worker is worth
_TIGHTER = 0.97  # the books may be a little below the generated program


@dataclass(frozen=True, eq=False)
class _Candidate:
    found: Found
    moved: float
    need: float  # bytes a worker


def search_best(step: TrainingStep, num_workers: int, memory_limit: float | None = None) -> Found:
    """Of the recursion by prime factors and one step for all workers, what moves less and fits.

    Raises:
        ModelError: no plan needs as little memory as the limit allows.
    """
    began = time.perf_counter()
    if memory_limit is None:
        budget = FAIR_SHARE * whole_footprint(step).total / num_workers
        best = min(_candidates(step, num_workers, budget, 0.0, Prepared(step)), key=lambda each: each.moved)
    else:
        best = _fitting(step, num_workers, memory_limit)
    return replace(best.found, seconds=time.perf_counter() - began)


def _fitting(step: TrainingStep, num_workers: int, limit: float) -> _Candidate:
    """Raises the price of memory until a plan fits; that it does is seen in the generated program."""
    prepared, least = Prepared(step), math.inf
    for price in _PRICES:
        for candidate in sorted(_candidates(step, num_workers, limit, price, prepared), key=lambda each: each.moved):
            budget = limit
            while candidate.need <= limit:
                need = generated_need(step, candidate.found.plan)
                if need <= limit:
                    return candidate
                least = min(least, need)
                budget *= _TIGHTER * limit / need
                tighter = _kept(step, candidate.found, budget)
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


def _candidates(
    step: TrainingStep, num_workers: int, budget: float, price: float, prepared: Prepared
) -> Iterator[_Candidate]:
    axes = factorised(num_workers)
    for each in dict.fromkeys((axes, (num_workers,) if axes else ())):
        yield _kept(step, search(step, each, restrict=lambda o: replace(o, price=price), prepared=prepared), budget)


def _kept(step: TrainingStep, found: Found, budget: float) -> _Candidate:
    """The plan with its copies within a budget."""
    plan = replace(found.plan, fetched_again=frozenset())
    book = account(step, plan)
    kept = keep_within(book, budget)
    if kept.fetched_again:
        book = account(step, kept)
    return _Candidate(replace(found, plan=kept), book.total_bytes, footprint(book).total)
