"""Where a compiled loop finds no memory: a MemoryError with the user's line, and nothing is lost."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import vgraph
from vgraph import compiler
from vgraph.capture import capture
from vgraph.fusion.cpu import build
from vgraph.fusion.cpu.emit import emit_kernels
from vgraph.graphs.draw import kernels
from vgraph.runtime.cpu.native import join_native, native_sources

pytestmark = pytest.mark.skipif(build.find_compiler() is None, reason="there is no C++ compiler")

PRELUDE = re.compile(r'(#include "(?:prelude|threads)\.h"\n)')
TEXT = """
import threading, torch, vgraph
torch.set_num_threads(1)
g = vgraph.graph(([0, 1], [1, 2]))
g.ndata["h"] = torch.ones(3, 2048, dtype=torch.float64)
message = lambda edges: {f"m{i}": edges.src["h"] * (i + 1.5) for i in range(8)}
def reduce(nodes):
    made = {f"o{i}": nodes.mailbox[f"m{i}"].max(1).values + nodes.mailbox[f"m{i}"].min(1).values for i in range(8)}
    return made | {"p": torch.softmax(nodes.mailbox["m1"].sum(1), -1)}
def run():
    with g.local_scope():
        g.update_all(message, reduce)
        assert g.ndata["o2"][:, 0].tolist() == [0, 7, 7]
        print("done")
run()
threading.stack_size(1 << 18)
thread = threading.Thread(target=run)
thread.start()
thread.join()
"""


def without_memory(source: str, count: int, **level: str) -> list[Any] | None:
    """As ``build_kernels``, on a machine without memory."""
    return build.build_kernels(PRELUDE.sub(r"\1#define malloc(bytes) nullptr\n", source), count, **level)


@pytest.fixture
def no_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    monkeypatch.setattr(compiler, "build_kernels", without_memory)
    capture.forget()
    yield
    capture.forget()


def graph(width: int = 2) -> vgraph.Graph:
    g = vgraph.graph(([0, 1, 0], [1, 2, 2]))
    g.ndata["h"] = torch.rand(3, width)
    g.ndata["o"] = torch.zeros(3, 1)
    return g


def attention(edges: Any) -> dict[str, torch.Tensor]:
    return {"m": edges.src["h"], "score": (edges.src["h"] * edges.dst["h"]).sum(1, keepdim=True).exp()}


def weighted(nodes: Any) -> dict[str, torch.Tensor]:
    share = nodes.mailbox["score"] / nodes.mailbox["score"].sum(1, keepdim=True)
    return {"o": (nodes.mailbox["m"] * share * share.log()).sum(1)}


def wide(edges: Any) -> dict[str, torch.Tensor]:
    return {f"m{i}": edges.src["h"] * i for i in range(8)}


def extremes(nodes: Any) -> dict[str, torch.Tensor]:
    return {"o": sum(nodes.mailbox[f"m{i}"].amax(1) * nodes.mailbox[f"m{i}"].amin(1) for i in range(8))}


@pytest.mark.parametrize(("message", "reduce", "width"), [(attention, weighted, 2), (wide, extremes, 2048)])
def test_a_kernel_says_so(message: Any, reduce: Any, width: int, no_memory: None) -> None:
    g = graph(width)
    with pytest.raises(MemoryError, match="no memory left for what a kernel keeps of a row") as caught:
        g.update_all(message, reduce)
    assert isinstance(caught.value, vgraph.VGraphError)
    assert "test_no_memory.py" in str(caught.value)
    assert g.ndata["o"].tolist() == [[0], [0], [0]]
    capture.forget()


class Wide(vgraph.VertexFunction):
    def forward(self, v: vgraph.Vertex) -> None:
        children = v.gather()["h"]
        h = v.pull("h") + sum((children * i).max() * (children * i).min() for i in range(8)) * 1e-3
        v.scatter(h=h)
        v.push(h=h)


def test_a_loop_over_frontiers_says_so(no_memory: None) -> None:
    with pytest.raises(MemoryError, match="no memory left for what a kernel keeps of a row") as caught:
        Wide()(graph(), h=torch.ones(3, 2048))
    assert "test_no_memory.py" in str(caught.value)


def test_a_tall_product_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    (source, count), *tiles = native_sources()
    built = [without_memory(f'#include "prelude.h"\n{source}', count), *(build.build_kernels(*one) for one in tiles)]
    products = join_native([part for part in built if part is not None])
    with pytest.raises(MemoryError, match="no memory left for what a matrix product keeps"):
        products.multiply(torch.ones(4, 1 << 15), torch.ones(1 << 15, 4), None)


def test_sampling_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "build_kernels", without_memory)
    kernels.compiled.cache_clear()
    try:
        with pytest.raises(MemoryError, match="no memory left for what sampling keeps"):
            vgraph.sampling.sample_neighbors(graph(), torch.tensor([2]), 1)
    finally:
        kernels.compiled.cache_clear()


def test_rows_of_any_width_on_a_small_stack(tmp_path: Any) -> None:
    own = {"PATH": "/usr/bin", "VGRAPH_KERNELS": "1", "VGRAPH_CACHE_DIR": str(tmp_path)}
    own["PYTHONPATH"] = ":".join(sys.path)
    done = subprocess.run([sys.executable, "-c", TEXT], capture_output=True, text=True, check=False, env=own)
    assert (done.returncode, done.stdout) == (0, "done\ndone\n"), done.stderr


def test_no_array_of_a_row_overflows_the_stack() -> None:
    """Whatever a function of a kernel has of them: their sum is bounded."""
    found = capture_kernels(wide, extremes, 4096)
    totals: list[int] = []
    for function in found.split("static int64_t ")[1:]:
        arrays = re.findall(r"^ *(float|double|vg_t<float, (\d+)>) \w+\[([\d *]+)\];", function, re.MULTILINE)
        sizes = (4 * (2 if kind == "double" else 1) * int(lanes or 1) * eval(count) for kind, lanes, count in arrays)
        totals.append(sum(sizes))
    assert 0 < max(totals) <= 1 << 15
    assert "room" in found


def capture_kernels(message: Any, reduce: Any, width: int) -> str:
    sources: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VGRAPH_KERNELS", "1")
        patch.setitem(compiler.TARGETS, "cpu", lambda specs: sources.append(emit_kernels(specs)))
        capture.forget()
        graph(width).update_all(message, reduce)
        capture.forget()
    return "\n".join(sources)
