"""Graphs on several ranks beside training: ids, layers, readouts, types, edges of what is possible, bytes, faults."""

from __future__ import annotations

import pytest

from tests.distributed.launch import on_ranks

RIGHT = (
    "ids_and_counts",
    "other_layers",
    "readouts",
    "many_types",
    "sent_once",
    "at_the_edges",
    "bytes_sent",
    "refusals",
    "numbers_of_16_bits",
    "sparse_gradients",
)


@pytest.mark.parametrize("ranks", [1, 3])
def test_all_that_a_part_answers(ranks: int) -> None:
    said = on_ranks("tests.distributed.cases", ranks, *RIGHT)
    for name in RIGHT:
        assert said.count(f"{name} is right") == ranks


def test_ranks_that_are_out_of_step_are_told_so() -> None:
    said = on_ranks("tests.distributed.cases", 2, "out_of_step", fails=True, VGRAPH_CHECK_RANKS="1")
    assert "rank 0: " in said and "ranks are out of step" in said and "mean" in said and "halo _N src:x" in said


@pytest.mark.parametrize("fault", ["killed", "silent"])
def test_a_lost_rank_is_an_error_on_all_others_within_the_timeout(fault: str) -> None:
    said = on_ranks("tests.distributed.cases", 3, fault, fails=True)
    told = [line for line in said.splitlines() if "WorkerError: a worker was lost" in line]
    assert {line.split(" after ")[0] for line in told} == {"rank 0", "rank 2"}
