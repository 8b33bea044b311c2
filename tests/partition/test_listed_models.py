"""Models as people write them: the numbers of one process, bytes of the best named plan or fewer, memory or a reason.

All twenty-six on 2, 3, 4 and 8 workers: ``python benchmarks/partition.py --only models``.
"""

from __future__ import annotations

import pytest

from benchmarks.partitioning.listed import MODELS, listed, outcome
from vgraph.api.dense.plan_hints import NEAR
from vgraph.ir.sharding import Replicate, Split
from vgraph.partition.accounting.crossing import crossing_entries

SAMPLE = {
    "ResNeXt": 4, "U-Net, interpolated": 2, "the same, time first": 3, "GPT, tied": 2, "LoRA": 3, "GRU": 2,
    "Fourier operator": 2, "DLRM, EmbeddingBag": 8, "perceptron": 8,
}  # fmt: skip


@pytest.mark.parametrize("name", SAMPLE)
def test_a_listed_model(name: str) -> None:
    found = outcome(*listed(name), SAMPLE[name])
    assert found.error < 1e-10
    assert found.moved <= (1 + 1e-9) * found.best_named
    assert found.shares <= NEAR or " shares too many: " in found.reason


def test_the_list_is_as_long_as_it_says() -> None:
    assert len(MODELS) == 26
    assert set(SAMPLE) <= set(MODELS)


def test_halves_of_halves_are_other_entries_than_halves() -> None:
    """Two of four workers have no entry of the half that they read: six quarters move, not four."""
    have, need = (Split(0), Split(0)), (Replicate(), Split(0))
    assert crossing_entries((8, 3), have, need, (2, 2)) == 6 * 2 * 3
