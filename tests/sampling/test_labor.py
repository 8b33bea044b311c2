"""LABOR: chances solve the paper's equation, draws are shared, weights make means unbiased; dependencies of batches."""

from __future__ import annotations

import copy
import pickle
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

import vgraph
from tests.sampling.test_neighbors import random_graph
from vgraph.errors import FunctionError
from vgraph.graphs.draw import labor
from vgraph.graphs.draw.random_numbers import mix
from vgraph.sampling import DataLoader, LaborSampler, NeighborSampler, sample_labors


def lists_of(lengths: list[int], parts: np.ndarray, far: np.ndarray) -> Any:
    owners = np.repeat(np.arange(len(lengths)), lengths)
    totals = np.bincount(owners, parts, len(lengths))
    return labor._Entries(owners, far, np.arange(len(far)), parts / totals[owners], len(lengths))


@pytest.mark.parametrize("rounds", [0, 1, 3, -1])
@pytest.mark.parametrize("is_even", [True, False])
def test_every_list_has_the_variance_of_so_many_draws(rounds: int, is_even: bool) -> None:
    random = np.random.default_rng(0)
    lengths = [3, 9, 0, 20, 4, 31]
    far = np.concatenate([random.choice(40, n, replace=False) for n in lengths])
    entries = lists_of(lengths, np.ones(67) if is_even else random.uniform(0.1, 3, 67), far)
    chances = labor._chances(entries, 4, rounds, is_even=is_even)
    assert bool((chances > 0).all()) and bool((chances <= 1).all())
    for number, length in enumerate(lengths):
        own = entries.owners == number
        if length <= 4:
            assert bool((chances[own] == 1).all())
        else:
            variance = (entries.parts[own] ** 2 * (1 / chances[own] - 1)).sum()
            assert variance == pytest.approx(1 / 4 - 1 / length)
    if is_even and rounds == 0:
        assert chances.sum() == pytest.approx(3 + 4 * 4)


def test_rounds_need_fewer_and_fewer_sources() -> None:
    random = np.random.default_rng(1)
    lengths = random.integers(6, 60, 50).tolist()
    far = np.concatenate([random.choice(np.arange(200), n, replace=False, p=_uneven(200)) for n in lengths])
    entries = lists_of(lengths, np.ones(len(far)), far)
    expected = []
    for rounds in (0, 1, 2, -1):
        most = np.zeros(200)
        np.maximum.at(most, far, labor._chances(entries, 5, rounds, is_even=True))
        expected.append(most.sum())
    assert all(after <= before * 1.0001 for before, after in pairwise(expected))
    assert expected[-1] < 0.9 * expected[0]


def _uneven(count: int) -> np.ndarray:
    weights = 1 / np.arange(1, count + 1)
    return weights / weights.sum()


def star() -> vgraph.Graph:
    """Two destinations with the same 12 sources each."""
    g = vgraph.graph((torch.arange(12).repeat(2), torch.arange(12, 14).repeat_interleave(12)))
    g.edata["w"] = torch.arange(1.0, 13).repeat(2)
    g.ndata["x"] = torch.linspace(-1, 2, 14)
    return g


@pytest.mark.parametrize(("prob", "rounds"), [(None, 0), (None, 2), ("w", 0), ("w", 1)])
def test_means_are_unbiased(prob: str | None, rounds: int) -> None:
    """Of Horvitz and Thompson: each drawn edge counts by its part over its chance."""
    g, tries = star(), 600
    entries = lists_of([12], (torch.ones(12) if prob is None else g.edata["w"][:12]).numpy(), np.arange(12))
    chances = labor._chances(entries, 4, rounds, is_even=prob is None)
    drawn = np.zeros(12)
    for seed in range(tries):
        part, _ = sample_labors(g, [12], 4, prob=prob, importance_sampling=rounds, random_seed=seed)
        drawn[part.edata["_ID"].numpy()] += 1
    assert np.abs(drawn / tries - chances).max() < 4.5 * 0.5 / tries**0.5


def test_weights_average_one_and_are_parts_over_chances() -> None:
    g = star()
    part, (weights,) = sample_labors(g, [12, 13], 4, prob="w", random_seed=7)
    entries = lists_of([12, 12], g.edata["w"].numpy(), np.tile(np.arange(12), 2))
    chances = labor._chances(entries, 4, 0, is_even=False)
    ids = part.edata["_ID"].numpy()
    ratio = weights.double().numpy() / (entries.parts[ids] / chances[ids])
    for node in (12, 13):
        mine = part.edges()[1].numpy() == node
        assert mine.any() and weights.numpy()[mine].mean() == pytest.approx(1, rel=1e-5)
        assert ratio[mine] == pytest.approx(ratio[mine][0], rel=1e-5)


def test_vertices_share_sources() -> None:
    g = star()
    part, weights = sample_labors(g, [12, 13], 4)
    first, second = (set(part.in_edges([node])[0].tolist()) for node in (12, 13))
    assert first == second and len(weights[0]) == 0 and 0 < len(first) < 12
    assert torch.equal(part.ndata["x"], g.ndata["x"]) and torch.equal(part.edata["w"], g.edata["w"][part.edata["_ID"]])
    everything, _ = sample_labors(g, [12], -1, exclude_edges=[0, 5], copy_ndata=False)
    assert everything.edata["_ID"].tolist() == [1, 2, 3, 4, *range(6, 12)] and "x" not in everything.ndata
    out, _ = sample_labors(g, [3], 2, edge_dir="out", output_device="cpu")
    assert out.edges()[1].tolist() == [12, 13]


def test_fewer_vertices_than_neighbor_sampling() -> None:
    vgraph.seed(0)
    random = torch.Generator().manual_seed(0)
    g = vgraph.graph((torch.randint(0, 500, (20000,), generator=random), torch.arange(20000) % 500))
    seeds = torch.arange(100)
    inputs, outputs, blocks = LaborSampler([5, 5]).sample(g, seeds)
    plain = NeighborSampler([5, 5]).sample(g, seeds)
    assert len(inputs) < 0.9 * len(plain[0]) and torch.equal(outputs, seeds)
    assert abs(blocks[1].num_edges() - 500) < 120 and "edge_weights" not in blocks[1].edata
    assert torch.equal(blocks[0].srcdata["_ID"], inputs)
    together = LaborSampler([5, 5], layer_dependency=True).sample(g, seeds)
    assert len(together[0]) < len(inputs)
    weighed = LaborSampler([5, 5], importance_sampling=-1).sample(g, seeds)
    assert len(weighed[0]) < len(inputs) and len(weighed[2][0].edata["edge_weights"]) == weighed[2][0].num_edges()


def test_types_and_empty_lists() -> None:
    g = vgraph.heterograph({("u", "a", "v"): ([0, 1, 2], [0, 0, 1]), ("v", "b", "v"): ([0, 1], [1, 2])})
    g.edges["a"].data["w"] = torch.tensor([1.0, 0.0, 0.0])
    g.edges["b"].data["w"] = torch.ones(2)
    _, _, (block,) = LaborSampler([{"a": 2, "b": 0}], prob="w").sample(g, {"v": [0, 1, 2]})
    assert block.edges["a"].data["_ID"].tolist() == [0] and block.num_edges("b") == 0
    assert block.edges["a"].data["edge_weights"].tolist() == [1.0]
    part, weights = sample_labors(g, {"v": [2]}, 1, importance_sampling=1)
    assert part.num_edges("a") == 0 and part.num_edges("b") == 1 and [len(w) for w in weights] == [0, 1]


def overlap(sampler: LaborSampler, g: vgraph.Graph, batches: int) -> list[float]:
    found = [set(sampler.sample(g, torch.arange(40))[0].tolist()) for _ in range(batches)]
    return [len(a & b) / len(a | b) for a, b in pairwise(found)]


def test_batches_that_depend_on_one_another() -> None:
    vgraph.seed(1)
    random = torch.Generator().manual_seed(0)
    g = vgraph.graph((torch.randint(40, 2000, (8000,), generator=random), torch.arange(8000) % 40))
    new, slow, same = (np.mean(overlap(LaborSampler([20], batch_dependency=k), g, 6)) for k in (1, 16, 0))
    assert new < 0.4 and 0.7 < slow < 1 and same == 1
    one, other = LaborSampler([20]), LaborSampler([20], batch_dependency=1)
    for sampler in (one, other):
        sampler.set_seed(5)
    pairs = [(one.sample(g, [0, 1])[0], other.sample(g, [0, 1])[0]) for _ in range(2)]
    assert all(torch.equal(a, b) for a, b in pairs) and not torch.equal(pairs[0][0], pairs[1][0])


@pytest.mark.parametrize("dependency", [1, 4])
def test_draws_do_not_depend_on_workers(dependency: int) -> None:
    g, sampler = random_graph(), LaborSampler([2, 2], batch_dependency=dependency)
    runs = []
    for workers in (0, 2):
        torch.manual_seed(3)
        loader = DataLoader(g, torch.arange(30), copy.deepcopy(sampler), batch_size=6, num_workers=workers)
        runs.append([inputs.tolist() for inputs, _, _ in loader])
    assert runs[0] == runs[1] and len({tuple(one) for one in runs[0]}) > 1


def test_variates_turn_into_the_next() -> None:
    ids = np.arange(20000)
    numbers = [labor.Variates(mix(1), mix(2), share).of(ids, 0) for share in (0.0, 0.5, 0.999999)]
    following = labor.Variates(mix(2)).of(ids, 0)
    assert np.abs(numbers[2] - following).max() < 1e-3
    for some in numbers:  # even between 0 and 1, whatever the share
        assert np.abs(np.histogram(some, 10, (0, 1))[0] / 2000 - 1).max() < 0.1
    assert 0.6 < np.corrcoef(numbers[0], numbers[1])[0, 1] < 0.8


def test_what_is_refused() -> None:
    with pytest.raises(FunctionError, match="blocks compute what edges end at"):
        LaborSampler([2], edge_dir="out")
    again = pickle.loads(pickle.dumps(LaborSampler([2], layer_dependency=True)))
    assert again.layer_dependency and again.sample(star(), [12])[2][0].num_dst_nodes() == 1
