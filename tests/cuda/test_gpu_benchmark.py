"""Every row of benchmarks/gpu.py on torch's "meta" device: what would lie on two devices at once is an error there."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cuda.counted import on_meta
from vgraph.capture import capture

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
NAMES = ["gcn-16", "gcn-training", "gat", "gatv2", "udf-none", "udf-gated", "udf-linear_message", "udf-softmax_reduce",
         "udf-std_reduce", "tree-lstm-3", "var-lstm-2", "circuit-4"]  # fmt: skip


@pytest.fixture(autouse=True)
def modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Those of benchmarks/ can be imported while a test runs."""
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    capture.forget()
    yield
    capture.forget()
    ours = ("device", "sides", "recursion", "reductions", "tree_lstm", "roofline", "gpu")
    for name in [n for n in sys.modules if n.split(".")[0] in ours]:
        del sys.modules[name]


@pytest.fixture
def rows() -> dict[str, Any]:
    from device import messages, sequences  # pyright: ignore[reportMissingImports]

    found = {name: messages.row_of(name, messages.smaller(work), "meta", {}) for name, work, _ in messages.workloads()}
    return found | {row.name: row for row in sequences.rows("meta", is_small=True)}


@pytest.mark.parametrize("name", NAMES)
def test_all_lies_on_one_device(name: str, rows: dict[str, Any]) -> None:
    from sides.workloads import NotExpressible  # pyright: ignore[reportMissingImports]

    with on_meta():
        for side, make in rows[name].sides.items():
            if "compiled" in side:
                continue
            try:
                results = [make()() for _ in range(2)][1]
            except (ImportError, NotExpressible, NotImplementedError) as error:  # no such peer, or not for this
                assert side != "vgraph", error
                continue
            assert results and all(t.device.type == "meta" for t in results), side


ROWS = """
import json, sys, time
tell = lambda answer: print(json.dumps(answer), flush=True)
for line in sys.stdin:
    name = line.strip()
    tell({"result": {"row": name, "figures": {"n": 1.0}}})
    if name == "gcn-lost":
        sys.exit(3)
    if name == "gcn-slow":
        time.sleep(600)
    tell({"done": name})
"""


def test_a_row_that_fails_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One takes its process along, one hangs: both are noted beside what they had measured, and the next ones run."""
    import gpu  # pyright: ignore[reportMissingImports]

    monkeypatch.setattr(gpu, "GRACE", -1.0)
    monkeypatch.setattr(gpu, "SECTIONS", {"gcn-*": 5, "gat": 60})
    worker = gpu.Worker
    monkeypatch.setattr(gpu, "Worker", lambda _: worker([sys.executable, "-c", ROWS]))
    given = SimpleNamespace(smoke=False, out=tmp_path)
    found: dict[str, Any] = {"device": "cpu", "name": "?", "torch": "?", "machine": {"copy": 0.0}, "rows": []}
    monkeypatch.setattr(gpu, "SPARE", 0.5)
    start = time.monotonic()  # the slow row is ended a second before its section's end
    gpu.run(given, ["gcn-lost", "gcn-slow", "gcn-late", "gat"], found, start + 65)
    assert time.monotonic() - start < 30
    problems = {row["row"]: row.get("problem", "") for row in found["rows"]}
    assert "status 3" in problems["gcn-lost"] or "does not recover" in problems["gcn-lost"]
    assert "too long" in problems["gcn-slow"] and problems["gat"] == ""
    assert all(row["figures"] == {"n": 1.0} for row in found["rows"] if row["row"] != "gcn-late")
    assert json.loads((tmp_path / "gpu.json").read_text()) == found
