"""What tests of draws have in common."""

from __future__ import annotations

import pytest

from vgraph.graphs.draw import kernels


@pytest.fixture(params=["compiled", "numpy"])
def by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """By which means edges are drawn: kernels or NumPy."""
    if request.param == "numpy":
        monkeypatch.setattr(kernels, "compiled", lambda: None)
    elif kernels.compiled() is None:
        pytest.skip("there is no compiler")
    return request.param
