"""Batches of graphs shared out by work: the same sets on any number of ranks, even work, gradients of the whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vgraph
import vgraph.distributed as vd
from tests.distributed.launch import on_ranks
from vgraph.distributed.sampled import work as work_module
from vgraph.distributed.sampled.work import Sizes, Work, fit_work
from vgraph.errors import CheckpointError, GraphError


def chain(size: int) -> vgraph.Graph:
    return vgraph.graph((torch.arange(size - 1), torch.arange(1, size)), num_nodes=size)


def test_batches_collate_samples_and_weigh_them() -> None:
    samples = [(chain(n + 1), torch.tensor(n)) for n in range(7)]
    loader = vd.DistGraphLoader(samples, batch_size=3, seed=2)
    seen: list[int] = []
    for graphs, numbers in loader:
        assert graphs.batch_num_nodes().tolist() == (numbers + 1).tolist()
        assert graphs.gdata["_WEIGHT"].tolist() == [1.0] * len(numbers)
        seen += numbers.tolist()
    assert len(loader) == 3 and sorted(seen) == list(range(7)) != seen
    ahead = vd.DistGraphLoader(samples, batch_size=3, seed=2, num_workers=1)
    assert [n for _, numbers in ahead for n in numbers.tolist()] == seen


def test_a_state_goes_on_and_that_of_other_graphs_is_refused() -> None:
    graphs = [chain(n + 1) for n in range(9)]
    loader, states, seen = vd.DistGraphLoader(graphs, batch_size=2), [], []
    for _ in range(2):
        for batch in loader:
            seen.append(batch.batch_num_nodes().tolist())
            states.append(loader.state_dict())
    again = vd.DistGraphLoader(graphs, batch_size=2)
    again.load_state_dict(states[2])
    assert [batch.batch_num_nodes().tolist() for _ in range(2) for batch in again] == seen[3:]
    with pytest.raises(CheckpointError, match="another graph"):
        vd.DistGraphLoader(graphs[:8], batch_size=2).load_state_dict(states[2])


def test_the_dearest_go_first_to_who_has_least() -> None:
    random = np.random.default_rng(0)
    vertices = random.integers(1, 100, 200)
    sizes = Sizes(vertices, vertices - 1, random.integers(1, 20, 200))
    for work in (Work(), Work(1.0, 2.0, 30.0)):
        shares = work.shares(sizes, np.arange(200), 4)
        assert sorted(np.concatenate(shares).tolist()) == list(range(200))
        rows = work.a * vertices + work.b * (vertices - 1)
        loads = [rows[share].sum() + work.c * sizes.heights[share].max() for share in shares]
        assert max(loads) <= 1.02 * min(loads)
    few = Work().shares(sizes, np.arange(2), 4)
    assert sorted(len(share) for share in few) == [0, 0, 1, 1]


def test_coefficients_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    random, seconds = np.random.default_rng(0), [0.0]
    monkeypatch.setattr(work_module, "perf_counter", lambda: seconds[0])
    vertices = random.integers(10, 1000, 100)
    sizes = Sizes(vertices, random.integers(10, 1000, 100), random.integers(1, 50, 100))

    def run(chosen: Any) -> None:
        exact = 2e-7 * sizes.vertices[chosen].sum() + 1e-4 * sizes.heights[chosen].max()
        seconds[0] += exact * random.uniform(1, 1.1)

    work = fit_work(sizes, run, 16)
    assert work.a == pytest.approx(2e-7, rel=0.6) and work.c == pytest.approx(1e-4, rel=0.6)


def test_refusals() -> None:
    with pytest.raises(GraphError, match="there are no graphs"):
        vd.DistGraphLoader([])
    with pytest.raises(GraphError, match="a sample of type int has no graph"):
        vd.DistGraphLoader([1, 2])

    def fails(batch: Any) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        vd.DistGraphLoader([chain(3)], measure=fails)


def test_ranks_have_the_losses_of_one_process(tmp_path: Path) -> None:
    """A Tree-LSTM, double precision; the last batch has fewer trees than there are ranks."""
    for ranks in (1, 3):
        on_ranks("tests.distributed.trees_program", ranks, str(tmp_path), VGRAPH_KERNELS="0")
    (one,), three = ([torch.load(tmp_path / f"{n}-{rank}.pt") for rank in range(n)] for n in (1, 3))
    for losses, weights, work in three:
        assert losses == pytest.approx(one[0], rel=1e-10)
        assert all(torch.allclose(a, b, rtol=1e-9, atol=1e-12) for a, b in zip(weights, one[1], strict=True))
        assert work == three[0][2], "what rank 0 measured"


def test_a_seed_of_numpy_is_the_number_that_it_is() -> None:
    chains = [vgraph.graph((torch.arange(n), torch.arange(1, n + 1))) for n in range(1, 9)]
    orders = [
        [batch.batch_num_nodes().tolist() for batch in vd.DistGraphLoader(chains, 3, seed=seed)]
        for seed in (-5, np.int8(-5), torch.tensor(-5))
    ]
    assert orders[0] == orders[1] == orders[2]
