"""Read graph: which of the formats a path is of, found by what lies there.

Takes: a path, an empty folder for what has to be unpacked. Gives: a ``RawGraph``, every id compared. Runs once per
graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vgraph.api.build.files import load_graphs
from vgraph.distributed.partition.raw_graph import EdgeSegment, RawEdges, RawGraph
from vgraph.distributed.readers.chunked import read_chunked
from vgraph.distributed.readers.dist_dgl import read_dist_dgl
from vgraph.distributed.readers.plain_arrays import read_array_file, read_array_folder, read_npz
from vgraph.errors import DataError
from vgraph.files import read_json

FORMATS = (
    "a .npz of OGB or SciPy, a .npy of edges, a folder of .npy files, a .bin of graphs, DGL's chunked metadata.json, "
    "or the JSON file of DistDGL's partitions"
)


def read_graph(path: str | Path, folder: Path) -> RawGraph:
    """The graph of a file or folder; what is compressed or text is unpacked below ``folder``, which must stay.

    Raises:
        DataError: nothing that is known lies there, or it is damaged, or its parts do not fit together.
    """
    found = _read(Path(path), folder)
    found.check(Path(path))
    return found


def _read(path: Path, folder: Path) -> RawGraph:
    if path.is_dir():
        described = [path / "metadata.json", *sorted(path.glob("*.json"))]
        file = next((one for one in described if one.is_file()), None)
        return read_array_folder(path, folder) if file is None else _read_described(file, folder)
    if path.suffix == ".json":
        return _read_described(path, folder)
    if path.suffix == ".npz":
        return read_npz(path, folder)
    if path.suffix == ".npy":
        return read_array_file(path)
    if path.suffix == ".bin":
        return _read_stored(path)
    raise DataError("it is of no known format", line=str(path), cure=f"give {FORMATS}")


def _read_described(path: Path, folder: Path) -> RawGraph:
    content: Any = read_json(path)
    if isinstance(content, Mapping) and "part-0" in content:
        return read_dist_dgl(path, content, folder)
    if isinstance(content, Mapping) and "edges" in content:
        return read_chunked(path, content, folder)
    raise DataError("it describes neither chunks nor partitions of DGL", line=str(path), cure=f"give {FORMATS}")


def _read_stored(path: Path) -> RawGraph:
    """The one graph of a file of ``save_graphs``."""
    graphs, _ = load_graphs(path)
    if len(graphs) != 1 or graphs[0].is_block:
        fact = f"it holds {len(graphs)} graphs" if len(graphs) != 1 else "it holds a block"
        raise DataError(fact, line=str(path), cure="store the one graph to be partitioned")
    g = graphs[0]
    ends = {e: g.all_edges(etype=e) for e in g.canonical_etypes}
    return RawGraph(
        {t: frame.num_rows for t, frame in g.src_frames.items()},
        {e: RawEdges([EdgeSegment(src, dst, path)]) for e, (src, dst) in ends.items()},
        {t: dict(frame) for t, frame in g.src_frames.items()},
        {e: dict(frame) for e, frame in g.edge_frames.items()},
    )
