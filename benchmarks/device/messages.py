"""Message passing on a device: sums over in-edges, attention, pairs of functions; each side as a step.

torch.sparse is cuSPARSE on a GPU.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Set
from dataclasses import replace
from functools import cache

import torch
from sides.steps import Step
from sides.workloads import Workload

from device.data import DeviceData
from device.row import Results, Row

REDDIT = Workload("aggregate", 232_965, 114_615_892, ())
FEWER = Workload("gat", 232_965, 23_213_838, (128, 64, 16), heads=8)  # so that the peers' rows of edges fit
WIDTHS = (16, 32, 64, 128, 256)
L2_FLOOR = {16: 0.9e-3, 64: 3.2e-3, 128: 6.5e-3, 256: 13e-3}  # seconds of a sum at Reddit's size, by width
PAIRS = ("gated", "linear_message", "softmax_reduce", "std_reduce")
PEERS = {"torch.sparse": "sparse", "PyG": "pyg", "PyG compiled": "pyg", "by hand in torch": "torch"}
ATTENTION = {"times PyG": 5.0, "times PyG compiled": 3.0, "memory of PyG over ours": 5.0}


def rows(device: str, *, is_small: bool) -> Iterator[Row]:
    for name, work, aims in workloads():
        if not is_small or name in ("gat", "udf-none", "udf-gated"):
            # compiling takes longer than all else that is small: one row shows that it runs
            left_out = {"PyG compiled"} if is_small and name != "udf-none" else set[str]()
            yield row_of(name, smaller(work) if is_small else work, device, aims, PEERS.keys() - left_out)


def workloads() -> Iterator[tuple[str, Workload, dict[str, float]]]:
    """Sums at Reddit's size; a fifth of its edges for what the peers do with a row an edge."""
    for width in WIDTHS:
        yield f"gcn-{width}", replace(REDDIT, width=width), {"of the L2 floor": 0.65, "times torch.sparse": 1.0}
    yield "gcn-training", replace(FEWER, kind="gcn", heads=1), {}
    yield "gat", FEWER, ATTENTION
    yield "gatv2", replace(FEWER, kind="gatv2"), {}
    pairs = replace(FEWER, nodes=100_000, edges=5_000_000, sizes=())
    yield "udf-none", replace(pairs, kind="aggregate"), {}  # the sum alone, which pairs are held against
    for kind in PAIRS:
        yield f"udf-{kind}", replace(pairs, kind=kind), {"of the sum's bytes a second": 1 / 1.3}


def smaller(work: Workload) -> Workload:
    sizes = tuple(min(size, 8) for size in work.sizes)
    return replace(work, nodes=60, edges=400, width=min(work.width, 16), sizes=sizes, heads=min(work.heads, 2))


def row_of(name: str, work: Workload, device: str, aims: dict[str, float], peers: Set[str] = PEERS.keys()) -> Row:
    few = work if work.nodes < 1000 else replace(work, nodes=2000, edges=60_000)
    data = cache(lambda: DeviceData(work, device))  # drawn when the first side is built
    names = [n for n in PEERS if n in peers and (n != "torch.sparse" or work.kind in ("aggregate", "gcn"))]
    sides = {"vgraph": lambda: built("vgraph", data())} | {n: peer(n, data) for n in names}
    gathers = (work.nodes, work.edges, work.width) if work.kind == "aggregate" else None
    floor = L2_FLOOR.get(work.width, 0.0) if work.edges == REDDIT.edges else 0.0
    check = lambda where: results(few, where)  # noqa: E731
    return Row(name, sides, check, few.edges, aims, gathers, row_bytes=row_bytes(work), floor=floor)


def row_bytes(work: Workload) -> float:
    """Of the rows that a step takes along edges, forward and backward."""
    sweeps = {"aggregate": 1, "gated": 4, "linear_message": 2, "softmax_reduce": 4, "std_reduce": 3}
    return 4.0 * work.edges * work.width * sweeps.get(work.kind, 0)


def results(work: Workload, device: str) -> Results:
    """Of three steps: losses of a model tell of its gradients, too."""
    step = built("vgraph", DeviceData(work, device))
    return [tensor.clone() for _ in range(3) for tensor in step()]


def peer(name: str, data: Callable[[], DeviceData]) -> Callable[[], Step]:
    def make() -> Step:
        step = built(PEERS[name], data())
        return torch.compile(step, dynamic=False) if "compiled" in name else step

    return make


def built(module: str, data: DeviceData) -> Step:
    side = importlib.import_module(f"sides.by_{module}")
    with torch.device(data.device):  # where parameters lie
        return side.build(data, data.graph) if module == "vgraph" else side.build(data)
