"""Plans of all methods in one cost framework: bytes, memory, simulated seconds; never measured ones."""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator
from typing import Any

from models import BENCHMARK
from tqdm import tqdm

from vgraph.ir.sharding import ShardingPlan
from vgraph.ir.step import TrainingStep
from vgraph.partition.accounting.account import Account, account
from vgraph.partition.accounting.footprint import Footprint, footprint, program_footprint, whole_footprint
from vgraph.partition.accounting.let_go import keep_within
from vgraph.partition.accounting.machines import MACHINES
from vgraph.partition.accounting.simulate import compute_seconds, simulate
from vgraph.partition.rewrite.rewrite import RewriteOptions, rewrite
from vgraph.partition.search.fit import FAIR_SHARE, search_best
from vgraph.partition.search.named import NAMED
from vgraph.partition.search.search import Found, Prepared, search

from . import comparison
from .sensitivity import sensitivity
from .workloads import GIB, PAPER, PUBLISHED_SAMPLES, PUBLISHED_WORDS, samples, step_of

Rows = list[dict[str, Any]]
Maker = Callable[[TrainingStep], ShardingPlan]
Search = Callable[[TrainingStep, tuple[int, ...]], Found]


def best_of(make: Search) -> Maker:
    """What moves less of the recursion and one step for all workers, as ours chooses."""

    def least(step: TrainingStep) -> ShardingPlan:
        plans = [make(step, axes).plan for axes in ((2, 2, 2), (8,))]
        return min(plans, key=lambda plan: account(step, plan).total_bytes)

    return least


def named(name: str) -> Maker:
    """A plan that has a name, which all models here have."""

    def make(step: TrainingStep) -> ShardingPlan:
        plan = NAMED[name](step, 8, Prepared(step))
        assert plan is not None, f"the step cannot be divided as {name}"
        return plan

    return make


METHODS: dict[str, Maker] = {
    "tofu": lambda step: search_best(step, 8).plan,
    "equal chop": lambda step: comparison.equal_chop(step, (2, 2, 2)).plan,
    "icml18": best_of(comparison.icml18),
    "spartan": best_of(comparison.spartan),
    "all rows, greedy": best_of(comparison.all_row),
    **{name: named(name) for name in NAMED},
    "operator placement": lambda step: comparison.operator_placement(step, 8),
}
MORE: dict[str, Maker] = {
    "tofu, copies kept": lambda step: search_best(step, 8, memory_limit=2.0**60).plan,
    "tofu, recursion": lambda step: search(step, (2, 2, 2)).plan,
    "icml18 + reduction": best_of(lambda step, axes: comparison.icml18(step, axes, reduces=True)),
    "CriticalDP": lambda step: comparison.by_paths(step, (2, 2, 2)).plan,
    "all rows, random": best_of(lambda step, axes: comparison.all_row(step, axes, random.Random(0))),
}


def books_of(step: TrainingStep, method: str, whole: Footprint) -> Account:
    """The books of a method's plan; all let go of copies beyond the same share of memory, but one."""
    book = account(step, {**METHODS, **MORE}[method](step))
    if method in ("tofu, copies kept", "operator placement"):
        return book
    return account(step, keep_within(book, FAIR_SHARE * whole.total / 8)[0])


BYTES_OF = ("rnn-4-8k", "rnn-10-8k", "wresnet-152-10")


def chosen(options: argparse.Namespace, default: tuple[str, ...]) -> list[str]:
    return options.models or (["rnn"] if options.smoke else list(default))


def section_bytes(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """``moved``: by the books; of the generated program with --exact."""
    for name in chosen(options, BYTES_OF):
        step = step_of(name, options.smoke)
        whole = whole_footprint(step)
        for method in tqdm(options.methods or [*METHODS, *MORE], desc=name, disable=None):
            book = books_of(step, method, whole)
            found = simulate(book, PAPER)
            moved = rewrite(step.program, book.plan).communicated_bytes if options.exact else book.total_bytes
            yield {
                "model": name, "method": method, "GB a step": moved / 1e9,
                "of 1/8 of the whole": 8 * found.memory.total / whole.total,
                "samples/s": samples(name, options.smoke) / found.seconds, "seconds": found.seconds,
                "computing": found.compute_seconds, "waiting": found.communication_share, "fits": found.fits,
            }  # fmt: skip


def section_memory(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Memory of a worker by its generated program, with each switch of the program turned off in turn.

    That of plans that have a name is by the books.
    """
    for name in chosen(options, BYTES_OF):
        step = step_of(name, options.smoke)
        whole = whole_footprint(step)
        plan = search_best(step, 8).plan
        by_books = footprint(account(step, plan)).total
        for what, switches in SWITCHES.items():
            if options.brief and switches:
                continue
            parts = rewrite(step.program, plan, RewriteOptions(**switches), step.overwrites)
            need = program_footprint(parts, step)
            yield {
                "model": name, "program": what, "whole GiB": whole.total / GIB, "worker GiB": need.total / GIB,
                "by the books": by_books / GIB, "of 1/8": 8 * need.total / whole.total,
                "moved GB": parts.communicated_bytes / 1e9, "fetched again": len(plan.fetched_again),
                **{f"+ {kind} GiB": extra / GIB for kind, extra in need.excess(whole, 8).items()},
            }  # fmt: skip
        for method in NAMED:
            book = books_of(step, method, whole)
            need = footprint(book)
            yield {
                "model": name, "program": method, "whole GiB": whole.total / GIB, "by the books": need.total / GIB,
                "of 1/8": 8 * need.total / whole.total, "moved GB": book.total_bytes / 1e9,
            }  # fmt: skip


SWITCHES: dict[str, dict[str, Any]] = {
    "as it is": {}, "each piece a fetch": {"fused_fetch": False}, "one worker reduces": {"spread_reductions": False},
    "order by depth": {"original_order": False}, "fetched early": {"late_fetch": False},
}  # fmt: skip


def section_figures(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Simulated samples a second of all models by all methods (thesis figures 3.8, 3.9, table 3.3)."""
    for name in tqdm(chosen(options, tuple(BENCHMARK)), disable=None):
        batch = samples(name, options.smoke)
        step = step_of(name, options.smoke)
        alone = sum(compute_seconds(op, (), (), PAPER) for op in step.ops)
        row: dict[str, Any] = {"model": name, "batch": batch, "ideal": 8 * batch / alone}
        whole = whole_footprint(step)
        row["small batch"] = _small_batch(name, step, whole, batch, options.smoke)
        out = 2 * max(whole.total - PAPER.memory, 0)  # what does not fit goes out and comes back once
        row["swapping"] = 8 * batch / max(alone, out / (PAPER.host_bandwidth / 8))
        for method in METHODS:
            book = books_of(step, method, whole)
            found = simulate(book, PAPER)
            row[method] = batch / found.seconds if found.fits else "out of memory"
            if method == "tofu":
                row["tofu of ideal"] = row["ideal"] and batch / found.seconds / row["ideal"]
                row["tofu, least and most"] = _range(batch, book)
        published = PUBLISHED_SAMPLES.get(name, {})
        row |= {f"{method}, published": published.get(method, "") for method in ("tofu", "operator placement")}
        row["the paper says"] = PUBLISHED_WORDS.get(name, "")
        yield row


def _range(batch: int, book: Account) -> str:
    seconds = sensitivity(book, PAPER)
    return f"{batch / max(seconds.values()):.4g} to {batch / min(seconds.values()):.4g}"


def _small_batch(name: str, step: TrainingStep, whole: Footprint, batch: int, smoke: bool) -> Any:
    """The largest batch that one device holds, eight times as fast as one device is."""
    fixed = max(whole.state + whole.gradients, step.state_bytes)
    size = batch
    while size and size * whole.activations / batch > PAPER.memory - fixed:
        size //= 2
    if not size:
        return "out of memory"
    smaller = step if size == batch or smoke else step_of(name, smoke, size)
    return 8 * size / sum(compute_seconds(op, (), (), PAPER) for op in smaller.ops)


def section_sensitivity(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Simulated seconds where one number of the machine is half or twice as large."""
    for name in chosen(options, ("rnn-4-8k", "wresnet-152-10")):
        step = step_of(name, options.smoke)
        whole = whole_footprint(step)
        for method in ("tofu", "icml18", "all rows, greedy"):
            book = books_of(step, method, whole)
            for machine in MACHINES.values():
                found = sensitivity(book, machine)
                yield {"model": name, "method": method, "machine": machine.name, **found}
