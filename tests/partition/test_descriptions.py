"""Every description and every strategy is true: slices agree, nothing outside is read, the edges are."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.ir.plane_examples import poison_for
from tests.partition.op_examples import OpExample, all_examples
from vgraph.ir.program import Value
from vgraph.ir.sharding import Partial, Region, Replicate, ShardingPlan, Split, Strategy
from vgraph.ir.tdl.table import is_absent, reads_values
from vgraph.partition.rewrite.local_ops import emit_share
from vgraph.partition.rewrite.regions import notation_of, op_regions
from vgraph.partition.rewrite.share import Builder, Share
from vgraph.partition.search.strategies import Factors, shrink, strategies
from vgraph.runtime.distributed.dense_ops import evaluate
from vgraph.runtime.distributed.in_process import whole_like
from vgraph.runtime.distributed.shards import put, take

with torch.random.fork_rng():
    torch.manual_seed(0)
    EXAMPLES = list(all_examples())
JOIN = {"sum": torch.add, "max": torch.maximum, "min": torch.minimum, "prod": torch.mul}


def factors_of(example: OpExample) -> Factors:
    """Every dim of an even size may be seen as pairs, so that inner factors are tried as well."""
    values = [*example.op.operands(), *example.op.results]
    pairs = {v.id: tuple(frozenset({2} if isinstance(d, int) and d % 2 == 0 else ()) for d in v.shape) for v in values}
    return {i: tuple(frozenset(int(x) for x in dim) for dim in dims) for i, dims in pairs.items()}


def chains(example: OpExample) -> list[tuple[Strategy, ...]]:
    """Each strategy alone, and each pair of them one after the other."""
    found: list[tuple[Strategy, ...]] = []
    factors = factors_of(example)
    for first in strategies(example.op, 2, factors):
        if first.index == "+":
            continue
        found.append((first,))
        rest = strategies(shrink(example.op, first, 2), 2, factors)
        found += [(first, s) for s in rest if s.index not in ("", "+") and first.index]
    return found


def whole(example: OpExample, given: dict[int, Tensor]) -> list[Tensor | None]:
    env = dict(given)
    evaluate(example.op, env)
    return [env.get(v.id) for v in example.op.results]


def run_part(
    example: OpExample, chain: tuple[Strategy, ...], digits: tuple[int, ...], given: dict[int, Tensor]
) -> tuple[list[Tensor | None], tuple[Region, ...], tuple[Region, ...]]:
    """A worker's results from the regions that it reads alone."""
    op, axes = example.op, (2,) * len(chain)
    notation = notation_of(op)
    regions = op_regions(op, notation, chain, axes, digits)
    builder = Builder(itertools.count(10_000))
    operands: list[Value] = []
    env: dict[int, Tensor] = {}
    for value, region in zip(op.operands(), regions.inputs, strict=True):
        tensor = take(given[value.id], whole_like(given[value.id]), region).clone()
        operands.append(builder.value(tuple(tensor.shape), tensor.dtype))
        env[operands[-1].id] = tensor
    share = Share(op, notation, regions, tuple(operands), chain, digits, builder)
    results = emit_share(share)
    for local in builder.ops:
        evaluate(local, env)
    return [env.get(v.id) for v in results], regions.inputs, regions.outputs


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_slices_agree(example: OpExample) -> None:
    """The parts of all workers, put together or reduced, are the whole; a part has the shape it says."""
    wanted = whole(example, example.given)
    for chain in chains(example):
        plan = ShardingPlan((2,) * len(chain), (), {})
        digits = [plan.digits(worker) for worker in range(plan.num_workers)]
        parts = [run_part(example, chain, d, example.given) for d in digits]
        for number, tensor in enumerate(wanted):
            if tensor is None or is_absent(example.op.results[number]) or "empty" in str(example.op.target):
                continue
            joined = _joined(tensor, number, chain, digits, parts)
            torch.testing.assert_close(joined, tensor, msg=lambda m, c=chain: f"{[str(s) for s in c]}: {m}")


def _joined(tensor: Tensor, number: int, chain: Any, digits: Any, parts: Any) -> Tensor:
    """Terms with equal digits elsewhere are reduced, regions are put in their places."""
    result = torch.zeros_like(tensor)
    terms: dict[Region, Tensor] = {}
    partial = [isinstance(s.outputs[number], Partial) for s in chain]
    copies = [isinstance(s.outputs[number], Replicate) for s in chain]
    for mine, (found, _, outputs) in zip(digits, parts, strict=True):
        local, region = found[number], outputs[number]
        assert local is not None
        assert tuple(local.shape) == tuple(len(entries) for entries in region)
        if any(c and d for c, d in zip(copies, mine, strict=True)):
            assert torch.equal(local, terms[region]) if not any(partial) else True
            continue
        if any(partial) and region in terms:
            reducer = next(s.outputs[number].reducer for s, p in zip(chain, partial, strict=True) if p)
            local = JOIN[reducer](terms[region], local)
        terms[region] = local
    for region, local in terms.items():
        put(result, whole_like(tensor), region, local.to(tensor.dtype), None)
    return result


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_nothing_outside_is_read(example: OpExample) -> None:
    """NaN everywhere outside what a description says is read leaves a worker's part as it was."""
    wanted = whole(example, example.given)
    for chain in chains(example):
        if any(isinstance(p, Partial) for s in chain for p in s.outputs):
            continue
        for digits in itertools.product(range(2), repeat=len(chain)):
            regions = op_regions(example.op, notation_of(example.op), chain, (2,) * len(chain), digits)
            poisoned = dict(example.given)
            for value, region in zip(example.op.operands(), regions.inputs, strict=True):
                tensor = example.given[value.id]
                if tensor.is_floating_point():
                    poisoned[value.id] = torch.full_like(tensor, poison_for(example.op))
                    put(poisoned[value.id], whole_like(tensor), region, take(tensor, whole_like(tensor), region), None)
            found = whole(example, poisoned)
            for tensor, poison, region in zip(wanted, found, regions.outputs, strict=True):
                if tensor is None or poison is None or 0 in tensor.shape or "empty" in str(example.op.target):
                    continue
                part = whole_like(tensor)
                assert torch.equal(take(poison, part, region), take(tensor, part, region)), [str(s) for s in chain]


POINTING = [
    e for e in EXAMPLES if e.op.target.overloadpacket.__name__ in ("embedding", "gather", "scatter", "scatter_add")
]


@pytest.mark.parametrize("odd", [-1, 8])
@pytest.mark.parametrize("example", POINTING, ids=str)
def test_an_id_that_is_none_of_the_whole_table_is_refused(example: OpExample, odd: int) -> None:
    """By every worker that reads it, whichever block of the table it has; ids of other blocks are masked."""
    given = dict(example.given)
    ids = next(value.id for value in example.op.operands() if value.dtype == torch.int64)
    given[ids] = torch.full_like(given[ids], odd)
    for chain in chains(example):
        for digits in itertools.product(range(2), repeat=len(chain)):
            with pytest.raises((IndexError, RuntimeError), match=r"out of (range|bounds)"):
                run_part(example, chain, digits, given)


# What is read depends on the data (ids, a condition, a maximum), or is a bound that holds it.
LOOSE = frozenset(
    """embedding embedding_dense_backward gather scatter scatter_add index index_put index_select index_add
    where threshold_backward sort topk""".split()
)


@pytest.mark.parametrize("example", [e for e in EXAMPLES if reads_values(e.op)], ids=str)
def test_edges_are_read(example: OpExample) -> None:
    """NaN in the first or the last plane of what is read changes some result: no region is too large."""
    if example.op.target.overloadpacket.__name__ in LOOSE:
        pytest.skip("what is read depends on the data")
    for chain in chains(example):
        if len(chain) > 1 or not chain[0].index:
            continue
        split = chain[0]
        _, inputs, _ = run_part(example, chain, (1,), example.given)
        before = run_part(example, chain, (1,), example.given)[0]
        triples = zip(example.op.operands(), inputs, split.inputs, strict=True)
        for position, (value, region, placement) in enumerate(triples):
            tensor = example.given[value.id]
            if not reads_values(example.op, position):
                continue
            if not isinstance(placement, Split) or not tensor.is_floating_point():
                continue
            for place in (0, -1):
                poisoned = dict(example.given)
                poisoned[value.id] = _poison(tensor, region, placement.dim, place, poison_for(example.op))
                after = run_part(example, chain, (1,), poisoned)[0]
                pairs = [(a, b) for a, b in zip(after, before, strict=True) if a is not None and b is not None]
                assert any(not torch.equal(a, b) for a, b in pairs), f"{split} {value} {place}"


def _poison(tensor: Tensor, region: Region, dim: int, place: int, by: float) -> Tensor:
    entries = [i for low, high in region[dim].runs for i in range(low, high)]
    poisoned = tensor.clone()
    poisoned.select(dim, entries[place]).fill_(by)
    return poisoned
