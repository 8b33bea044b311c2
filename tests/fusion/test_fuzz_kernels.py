"""Random functions as kernels beside DGL's own batches; ``python -m tests.fusion.fuzz`` runs more of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fusion.fuzz import check_seed, compile_fast
from vgraph.fusion import build

NUM_CASES = 100

pytestmark = pytest.mark.skipif(build.find_compiler() is None, reason="there is no C++ compiler")


@pytest.fixture(autouse=True)
def fast() -> Iterator[None]:
    with compile_fast():
        yield


@pytest.mark.parametrize("start", range(0, NUM_CASES, 10))
def test_random_functions_as_kernels(start: int) -> None:
    """Outputs and gradients; of one in ten also second gradients, and all ways."""
    for seed in range(start + 1, start + 10):
        check_seed(seed, second=False, ways=("kernels",))
    check_seed(start, second=True)
