"""Random message and reduce functions on random graphs, captured and by DGL's own batches.

``python tests/api/test_fuzz.py N`` runs N seeds (the first argument; the second: where to begin).
"""

from __future__ import annotations

import sys
import traceback

import pytest
import torch

from tests.api.agreement import assert_agrees, random_frames
from tests.api.random_functions import Maker, random_topology

NUM_CASES = 150


def check_seed(seed: int) -> None:
    torch.manual_seed(seed)
    maker = Maker(seed)
    topology = random_topology(maker.draw)
    heads, width = maker.heads, maker.width
    edge_shape = maker.draw.choice([(heads, width), (heads, 1), (1, width)])
    frames = random_frames(topology, {"node:h": (heads, width), "node:s": (heads, 1), "edge:w": edge_shape})
    assert_agrees(topology, frames, *maker.pair(str(seed)), maker.parameters, 1e-8)


@pytest.mark.parametrize("start", range(0, NUM_CASES, 10))
def test_random_functions(start: int) -> None:
    for seed in range(start, start + 10):
        check_seed(seed)


def main(count: int, start: int) -> None:
    failed: list[int] = []
    for seed in range(start, start + count):
        try:
            check_seed(seed)
        except Exception:
            failed.append(seed)
            traceback.print_exc(limit=-6)
    print(f"{count - len(failed)} of {count} agree; failed: {failed}")


if __name__ == "__main__":
    main(*(int(word) for word in (*sys.argv[1:], "100", "0")[:2]))
