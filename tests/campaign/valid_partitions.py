"""Partitioned graphs, and graphs in every format that the partitioner reads, with what reads them and looks at them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import vgraph.distributed as vd
from tests.distributed.stored_graphs import store_all, typed_graph
from vgraph.distributed.stored.manifest import read_content


def partition_cases(folder: Path) -> list[tuple[str, dict[str, bytes], Callable[[Path], Any], Any]]:
    """(name, valid files, what reads them, what makes a checksum fit again)."""
    vd.partition_graph(typed_graph(), folder / "parts" / "g.vg", 2, "ldg", both=True)
    cases: list[Any] = [("PartitionedGraph", _files(folder / "parts"), _load_parts, _sealed_manifest)]
    for name, (path, _) in store_all(folder / "raw").items():
        where = path.relative_to(folder / "raw")
        files = {n: data for n, data in _files(folder / "raw").items() if Path(n).parts[0] == where.parts[0]}
        cases.append((f"partition_files ({name})", files, lambda place, where=where: _partition(place, where), None))
    return cases


def _files(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def _load_parts(folder: Path) -> None:
    stored = vd.PartitionedGraph.open(folder / "g.vg")
    for number in range(stored.num_parts):
        part = stored.part(number)
        for ntype in stored.ntypes:
            assert part.orig(ntype).shape == (part.num_nodes(ntype),)
            for name in stored.node_schemes(ntype):
                part.node_data(ntype, name).sum()
        for etype in stored.canonical_etypes:
            src, ptr = part.src(etype), part.ptr(etype)
            assert int(ptr[-1]) == len(src) == len(part.eid(etype)) and len(ptr) == part.num_nodes(etype[2]) + 1
            assert not len(src) or 0 <= int(src.min()) <= int(src.max()) < stored.num_nodes(etype[0])
    vd.check_graph(folder / "g.vg")
    vd.plan_graph(stored, 1)


def _sealed_manifest(content: bytes) -> bytes:
    try:
        return read_content(json.loads(content), Path("graph.json")).text().encode()
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return content


def _partition(folder: Path, where: Path) -> None:
    vd.partition_files(folder / where, folder / "g.vg", 2, "hash")
    vd.check_graph(folder / "g.vg")
    stored = vd.PartitionedGraph.open(folder / "g.vg")
    assert all(torch.equal(stored.new_ids(t).sort().values, torch.arange(stored.num_nodes(t))) for t in stored.ntypes)
