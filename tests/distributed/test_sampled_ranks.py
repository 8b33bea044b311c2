"""Sampled training in several processes: the same minibatches, losses and states as in one, and what faults give."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

import vgraph.distributed as vd
from tests.distributed.launch import on_machines, on_ranks
from tests.distributed.nodes import start_nodes
from tests.distributed.sampled_edges import Edges, edges_of, rows_of
from tests.distributed.sampled_graphs import SAMPLERS, graph_for, heterogeneous, homogeneous
from vgraph.graphs.draw.random_numbers import keyed

PROGRAM = "tests.distributed.sampled_program"
NO_KERNELS = {"VGRAPH_KERNELS": "0"}  # the compiler would take most of the time


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both graphs in six parts each, by chance: most edges are between parts."""
    made = tmp_path_factory.mktemp("sampled")
    for g, name in ((homogeneous(), "homogeneous"), (heterogeneous(), "heterogeneous")):
        vd.partition_graph(g, made / name, num_parts=6, method="hash", seed=1)
    return made


def read(folder: Path, name: str, ranks: int) -> list[Any]:
    return [torch.load(folder / f"{name}-{ranks}-{rank}.pt", weights_only=False) for rank in range(ranks)]


@pytest.fixture(scope="module")
def four_ranks(folder: Path) -> Path:
    """Minibatches of two machines with two ranks each: ids and rows travel."""
    on_machines(PROGRAM, [2, 2], str(folder), "blocks")
    return folder


@pytest.mark.parametrize("name", list(SAMPLERS))
def test_four_ranks_draw_what_one_process_draws(name: str, four_ranks: Path) -> None:
    whole, ranks = graph_for(name), read(four_ranks, name, 4)
    for epoch in range(2):
        batches = [found[epoch] for found, _, _ in ranks]
        assert len({len(one) for one in batches}) == 1, "all ranks make the same steps"
        for number, shares in enumerate(zip(*batches, strict=True)):
            seeds = [one for outputs, _, rows in shares if _weight(rows) for one in outputs]
            assert len(set(seeds)) == len(seeds) <= 13
            ids = {kind: torch.tensor([i for k, i in seeds if k == kind], dtype=torch.int64) for kind in whole.ntypes}
            with keyed(ranks[0][1][epoch][number]):
                wanted = SAMPLERS[name]().sample(whole, ids if len(whole.ntypes) > 1 else ids["_N"])
            itself = (lambda _, ids: ids,) * 2
            if name != "subgraphs":  # which has all edges within a rank's vertices, of those of all ranks
                assert _united([edges for _, edges, rows in shares if _weight(rows)]) == edges_of(wanted, *itself)
            expected = rows_of(wanted, *itself)
            for _, _, rows in shares:
                for key, column in rows.items():
                    if key[3] != "_WEIGHT":
                        there = expected.get(key, {})
                        assert all(torch.equal(row, there[i]) for i, row in column.items() if i in there)


def _weight(rows: Any) -> float:
    return float(sum(sum(column.values()) for key, column in rows.items() if key[3] == "_WEIGHT" and key[1] == "dst"))


def _united(parts: list[Edges]) -> Edges:
    return {key: set().union(*(part[key] for part in parts)) for key in parts[0]}


def test_what_travels_is_counted(four_ranks: Path) -> None:
    for name in SAMPLERS:
        told = [statistics for _, _, statistics in read(four_ranks, name, 4)]
        assert all(one["sent_bytes"] > 0 for one in told)
        assert (sum(one["hits"] for one in told) > 0) == (name == "uniform"), "only that one has room for rows"


@pytest.mark.parametrize("ranks", [[1, 1], [1, 1, 1], [2, 2]], ids=str)
def test_what_is_sent_is_what_the_cost_model_says(ranks: list[int], folder: Path) -> None:
    said = on_machines("tests.distributed.sampled_bytes_program", ranks, str(folder), **NO_KERNELS)
    told = re.findall(r"cache (\d+): sent (\d+), model (\d+), hits (\d+)", said)
    assert len(told) == 2, said
    for cache, sent, model, hits in told:
        assert int(sent) == int(model) > 0
        assert (int(hits) > 0) == (cache != "0")


@pytest.fixture(scope="module")
def losses(folder: Path) -> dict[str, list[Any]]:
    """Eight steps on one, two and four ranks, the latter on two machines."""
    on_ranks(PROGRAM, 1, str(folder), "train", "one", "-", "8", **NO_KERNELS)
    on_ranks(PROGRAM, 2, str(folder), "train", "two", "-", "8", **NO_KERNELS)
    on_machines(PROGRAM, [2, 2], str(folder), "train", "four", "-", "8", **NO_KERNELS)
    return {name: read(folder, name, ranks) for name, ranks in (("one", 1), ("two", 2), ("four", 4))}


def test_losses_do_not_depend_on_ranks(losses: dict[str, list[Any]]) -> None:
    wanted, weights = losses["one"][0]
    for name in ("two", "four"):
        for found, parameters in losses[name]:
            assert found == pytest.approx(wanted, rel=1e-10)
            for left, right in zip(parameters, weights, strict=True):
                assert torch.allclose(left, right, rtol=1e-10, atol=1e-12)


def test_resumes_on_the_same_ranks_bit_for_bit_and_on_fewer(folder: Path, losses: dict[str, list[Any]]) -> None:
    on_machines(PROGRAM, [2, 2], str(folder), "train", "again", "four-4", "8", **NO_KERNELS)
    on_ranks(PROGRAM, 2, str(folder), "train", "fewer", "four-4", "8", **NO_KERNELS)
    wanted, weights = losses["four"][0]
    for found, parameters in read(folder, "again", 4):
        assert found == wanted[4:]
        assert all(torch.equal(left, right) for left, right in zip(parameters, weights, strict=True))
    for found, parameters in read(folder, "fewer", 2):
        assert found == pytest.approx(wanted[4:], rel=1e-10)
        assert all(torch.allclose(left, right, rtol=1e-10) for left, right in zip(parameters, weights, strict=True))


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="processes are listed by /proc")
def test_a_rank_that_is_killed_ends_the_others(folder: Path) -> None:
    agents = start_nodes(PROGRAM, [2, 2], str(folder), "killed", **NO_KERNELS)
    said = [agent.communicate(timeout=120)[0] for agent in agents]
    assert all(agent.returncode for agent in agents), "\n".join(said)
    told = [path.read_text().split("|", 2) for path in sorted(folder.glob("lost-*"))]
    assert told, "\n".join(said)
    assert all(float(seconds) < 25 for _, seconds, _ in told), told
    assert all(kind == "WorkerError" and "a worker was lost" in text for kind, _, text in told), told
    assert not _processes_that_name(folder)


def _processes_that_name(folder: Path) -> list[int]:
    """Processes with the folder among their arguments."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has just ended
            if str(folder).encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def test_ranks_that_are_out_of_step_are_told(folder: Path) -> None:
    on_machines(PROGRAM, [1, 1], str(folder), "apart", fails=True, **NO_KERNELS)
    told = [path.read_text() for path in folder.glob("step-*")]
    assert any("ranks are out of step: this one is at epoch" in text for text in told), told
