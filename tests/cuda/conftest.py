"""Kernels for GPUs, which a CPU runs, and how often."""

from __future__ import annotations

import pytest

from tests.cuda import shim


@pytest.fixture
def launches(kernels: None) -> None:
    """Compiled kernels, none of which has been launched yet."""
    shim.launched.clear()
