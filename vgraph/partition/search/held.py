"""Held cuts: the plan of another step of a model whose parameters are divided already.

Takes: a TrainingStep, where its parameters and buffers lie. Gives: a ShardingPlan. Runs once per form of batches.
Source: Tofu section 5.2, with some of its choices made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from vgraph.collection import uncollected
from vgraph.ir.sharding import ShardingPlan
from vgraph.ir.step import TrainingStep
from vgraph.partition.accounting.account import account
from vgraph.partition.accounting.footprint import whole_footprint
from vgraph.partition.accounting.let_go import keep_within
from vgraph.partition.search.classes import Held
from vgraph.partition.search.fit import FAIR_SHARE
from vgraph.partition.search.options import Options
from vgraph.partition.search.search import Prepared, search

_PRICES = (0.0, 1.0, 64.0)  # moved bytes that one byte held by a second worker is worth


def search_held(step: TrainingStep, axes: Sequence[int], held: Held, budget: float) -> ShardingPlan:
    """The plan of fewest bytes by which no worker needs more than ``budget``, or little more than its fair share.

    Where none fits, the one that needs least. A batch that no dim divides is computed by every worker.
    """
    with uncollected(ages=True):
        prepared = Prepared(step, held)
        enough = max(budget, FAIR_SHARE * whole_footprint(step).total / math.prod(axes))
        found: list[tuple[float, ShardingPlan]] = []
        for price in _PRICES:
            book = account(step, search(step, axes, None, _at(price), prepared).plan)
            plan, need = keep_within(book, enough)
            found.append((need, plan))
            if need <= enough:
                return plan
    return min(found, key=lambda pair: pair[0])[1]


def _at(price: float) -> Callable[[Options], Options]:
    return lambda options: replace(options, price=price)
