"""The loader gives every graph once, whatever the order, and leaves no thread behind."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
from typing import Any, NamedTuple

import pytest
import torch

import vgraph
from tests.runtime.engine_models import chain
from vgraph.compiler import level_schedule
from vgraph.errors import ArgumentError, CycleError, FunctionError, GraphError
from vgraph.scheduler.policy import lower_bound


def graphs(count: int = 40) -> list[vgraph.Graph]:
    made = [chain(1 + (7 * i) % 13) for i in range(count)]
    for number, g in enumerate(made):
        g.ndata["of"] = torch.full((g.num_nodes(),), number)
    return made


@pytest.mark.parametrize("prefetch", [0, 1, 3])
@pytest.mark.parametrize("by_height", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
def test_every_graph_comes_once(shuffle: bool, by_height: bool, prefetch: int) -> None:
    given = graphs()
    loader = vgraph.GraphLoader(given, 6, shuffle=shuffle, by_height=by_height, prefetch=prefetch)
    found = list(loader)
    assert len(found) == len(loader) == 7
    seen = [number for g in found for number in g.ndata["of"].unique_consecutive().tolist()]
    assert sorted(seen) == list(range(40))
    assert (seen == list(range(40))) is (not shuffle and not by_height)


@pytest.mark.parametrize("by_height", [False, True])
def test_what_stands_beside_a_graph_comes_along(by_height: bool) -> None:
    samples = [{"tree": g, "label": number, "more": (torch.ones(2) * number,)} for number, g in enumerate(graphs(7))]
    seen = list[int]()
    for found in vgraph.GraphLoader(samples, 3, shuffle=True, by_height=by_height):
        tree, label = found["tree"], found["label"]
        assert ("schedule", "frontier") in tree.topology.kept
        assert tree.ndata["of"].unique_consecutive().tolist() == label.tolist()
        assert torch.equal(found["more"][0], label.unsqueeze(1).expand(-1, 2).float())
        seen += label.tolist()
    assert sorted(seen) == list(range(7))


@pytest.mark.parametrize("by_height", [False, True])
def test_samples_without_a_graph(by_height: bool) -> None:
    with pytest.raises(FunctionError, match="a sample of GraphLoader is a"):
        next(iter(vgraph.GraphLoader([1, 2], 2, by_height=by_height)))
    with pytest.raises(FunctionError, match="there are no samples"):
        vgraph.collate([])


def test_like_heights_take_fewer_frontiers() -> None:
    def count(**options: bool) -> int:
        return sum(lower_bound(g.topology) for g in vgraph.GraphLoader(graphs(), 5, **options))

    assert count(by_height=True) < 0.7 * count()


def test_the_schedule_is_ready() -> None:
    g = next(iter(vgraph.GraphLoader(graphs(), 4)))
    assert ("schedule", "frontier") in g.topology.kept
    assert level_schedule(g.topology) is level_schedule(g.topology)


def test_a_seed_gives_the_order() -> None:
    def order() -> list[int]:
        torch.manual_seed(3)
        return [int(g.ndata["of"][0]) for g in vgraph.GraphLoader(graphs(), 4, shuffle=True)]

    assert order() == order()


def test_errors_of_the_thread_are_raised() -> None:
    cyclic = vgraph.graph(([0, 1], [1, 0]))
    cyclic.ndata["of"] = torch.zeros(2, dtype=torch.int64)
    with pytest.raises(vgraph.VGraphError, match="cycle"):
        list(vgraph.GraphLoader([*graphs(3), cyclic], 2, direction="forward"))


class Sum(vgraph.VertexFunction):
    def forward(self, v):
        h = v.pull("x") + v.gather()["h"].sum()
        v.scatter(h=h)
        v.push(h=h)


def test_graphs_with_cycles_are_batched_for_messages() -> None:
    ring = vgraph.graph(([0, 1], [1, 0]))
    ring.ndata["x"] = torch.tensor([[1.0], [3.0]])
    ((batch, label),) = vgraph.GraphLoader([(ring, 0)] * 2, 2)
    batch.update_all(vgraph.function.copy_u("x", "m"), vgraph.function.sum("m", "y"))
    assert batch.ndata["y"].flatten().tolist() == [3.0, 1.0, 3.0, 1.0] and label.tolist() == [0, 0]
    with pytest.raises(CycleError, match="cycle") as caught:
        Sum()(batch)
    assert "test_loader.py" in caught.value.line
    with pytest.raises(CycleError, match="cycle"):
        list(vgraph.GraphLoader([ring], 1, by_height=True))


def prefetches() -> bool:
    return any(t.name.startswith("vgraph-prefetch") for t in threading.enumerate())


def test_an_abandoned_epoch_ends_its_thread() -> None:
    found = iter(vgraph.GraphLoader(graphs(), 2, prefetch=1))
    next(found)
    assert prefetches()
    found.close()
    for _ in range(100):
        if not prefetches():
            return
        time.sleep(0.05)
    pytest.fail("the thread goes on")


@pytest.mark.parametrize(
    ("given", "fact"),
    [
        ({"batch_size": 0}, "batch_size=0"),
        ({"batch_size": 2.5}, "batch_size=2.5"),
        ({"prefetch": -1}, "prefetch=-1"),
        ({"direction": "up"}, "no direction 'up'"),
    ],
)
def test_bad_settings(given: dict[str, Any], fact: str) -> None:
    with pytest.raises((ArgumentError, GraphError), match=fact) as caught:
        vgraph.GraphLoader(graphs(), **({"batch_size": 2} | given))
    assert __file__ in str(caught.value)


@pytest.mark.parametrize("direction", ["forward", "reverse", "both"])
def test_frontiers_are_ready_in_the_directions_asked_for(direction: str) -> None:
    for g in vgraph.GraphLoader(graphs(), 3, direction=direction):
        ready = {name for name, t in (("forward", g.topology), ("reverse", g.topology.reversed)) if is_ready(t)}
        assert ready == ({"forward", "reverse"} if direction == "both" else {direction})


def is_ready(topology: Any) -> bool:
    return any(isinstance(key, tuple) and key[0] == "schedule" for key in topology.kept)


FORKED = """
import os, signal, sys, threading
import vgraph

start, ready = threading.Event(), threading.Event()

class Slow(vgraph.GraphLoader):
    def _prepare(self, plan):
        if threading.current_thread() is not threading.main_thread() and plan[0] > 1:
            ready.set()
            start.wait()
        return super()._prepare(plan)

batches = iter(Slow([vgraph.graph(([0], [1]), num_nodes=2 + i) for i in range(6)], 2, prefetch=2))
found = [next(batches).num_nodes()]
ready.wait()
child = os.fork()
if not child:
    signal.alarm(20)
    found += [g.num_nodes() for g in batches]
    os._exit(0 if found == [5, 9, 13] else 1)
status = os.waitpid(child, 0)[1]
start.set()
print(status, found + [g.num_nodes() for g in batches])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no process is forked here")
def test_a_forked_child_reads_on() -> None:
    """It has no thread that would make what comes next."""
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 [5, 9, 13]\n", "")


EXITS = """
import torch, vgraph

class Slow(vgraph.GraphLoader):
    def _prepare(self, plan):
        made = super()._prepare(plan)
        torch.mm(torch.ones(1500, 1500), torch.ones(1500, 1500))
        return made

batches = iter(Slow([vgraph.graph(([0], [1]))] * 40, 2))
print(next(batches).num_nodes())
"""


def test_a_program_may_end_in_the_midst_of_an_epoch() -> None:
    """The interpreter would stop a thread of its own within torch's operator, which aborts the process."""
    done = subprocess.run([sys.executable, "-c", EXITS], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "4\n", "")


def numbers_in(loader: vgraph.GraphLoader[vgraph.Graph]) -> list[list[int]]:
    return [g.ndata["of"].unique_consecutive().tolist() for g in loader]


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("by_height", [False, True])
def test_drop_last(by_height: bool, prefetch: int) -> None:
    loader = vgraph.GraphLoader(graphs(11), 4, drop_last=True, shuffle=True, by_height=by_height, prefetch=prefetch)
    found = numbers_in(loader)
    assert [len(part) for part in found] == [4, 4] and len(loader) == 2
    assert len(vgraph.GraphLoader(graphs(12), 4, drop_last=True)) == len(vgraph.GraphLoader(graphs(12), 4)) == 3


def test_a_batch_is_one_graph_unless_told_otherwise() -> None:
    assert numbers_in(vgraph.GraphLoader(graphs(3))) == [[0], [1], [2]]


def test_samplers_of_torch_decide() -> None:
    given, some = graphs(9), torch.utils.data.SubsetRandomSampler([5, 1, 3], generator=torch.Generator().manual_seed(1))
    loader = vgraph.GraphLoader(given, 2, sampler=some)
    for _ in range(2):
        found = numbers_in(loader)
        assert sorted(itertools.chain(*found)) == [1, 3, 5] and len(found) == len(loader) == 2
    by_batch = torch.utils.data.BatchSampler(torch.utils.data.SequentialSampler(given), 4, drop_last=True)
    loader = vgraph.GraphLoader(given, batch_sampler=by_batch)
    assert numbers_in(loader) == [[0, 1, 2, 3], [4, 5, 6, 7]] and len(loader) == 2


def test_a_sampler_without_an_end_is_asked_as_it_is_needed() -> None:
    loader = vgraph.GraphLoader(graphs(3), 2, sampler=itertools.cycle([2, torch.tensor(0)]), by_height=False)
    assert next(iter(loader)).ndata["of"].unique_consecutive().tolist() == [2, 0]
    with pytest.raises(FunctionError, match="the sampler has no length"):
        len(loader)


def test_a_generator_draws_the_order_alone() -> None:
    def order(seed: int) -> list[list[int]]:
        return numbers_in(vgraph.GraphLoader(graphs(9), 4, shuffle=True, generator=torch.Generator().manual_seed(seed)))

    before = torch.get_rng_state()
    assert order(1) == order(1) != order(2)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_function_of_the_users_collates(prefetch: int) -> None:
    def collate(samples: list[vgraph.Graph]) -> tuple[list[int], vgraph.Graph]:
        return [g.num_nodes() for g in samples], vgraph.batch(samples)

    found = list(vgraph.GraphLoader(graphs(3), 2, collate_fn=collate, prefetch=prefetch))
    assert [sizes for sizes, _ in found] == [[1, 8], [2]]
    assert all(("schedule", "frontier") in g.topology.kept for _, g in found)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sampler": [0], "shuffle": True}, "sampler and shuffle"),
        ({"batch_sampler": [[0]], "batch_size": 2}, "batch_sampler and batch_size"),
        ({"batch_sampler": [[0]], "drop_last": True}, "batch_sampler and drop_last"),
        ({"batch_sampler": [[0]], "sampler": [0]}, "batch_sampler and sampler"),
        ({"batch_sampler": [[0]], "by_height": True}, "batch_sampler and by_height"),
    ],
)
def test_what_excludes_each_other(options: dict[str, Any], words: str) -> None:
    with pytest.raises(FunctionError, match=f"GraphLoader is given {words}"):
        vgraph.GraphLoader(graphs(2), **options)


@pytest.mark.parametrize("number", [2, -3, 0.5, "0", None, True])
def test_samplers_that_name_no_graph(number: Any) -> None:
    for options in ({"sampler": [number]}, {"batch_sampler": [[number]]}):
        with pytest.raises(GraphError, match="a sampler names graph"):
            list(vgraph.GraphLoader(graphs(2), **options))


class Pair(NamedTuple):
    graph: vgraph.Graph
    label: int


def test_named_tuples_stay_what_they_are() -> None:
    found = list(vgraph.GraphLoader([Pair(g, 1) for g in graphs(3)], 2))
    assert [type(one) for one in found] == [Pair, Pair] and found[0].graph.batch_size == 2


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        ([(1, 2), (1,)], "sample 0 is a tuple of 2 members; sample 1 is another: a tuple"),
        ([{"a": 1}, {"b": 1}], "sample 0 is a dict with \\['a'\\]; sample 1 is another"),
        ([(1, 2), 3], "sample 1 is another: a int"),
        ([torch.ones(2), torch.ones(3)], "2 samples, of which the first has a Tensor here, do not stack"),
        ([None, None], "do not stack"),
    ],
)
def test_samples_that_differ_in_form(samples: list[Any], words: str) -> None:
    with pytest.raises(FunctionError, match=words):
        vgraph.collate(samples)
