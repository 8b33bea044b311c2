"""Graphs that grow in time: trust in Bitcoin OTC, events of GDELT and ICEWS18.

Takes: files as DGL has them. Gives: data sets of graphs, each of all edges up to a time. Runs once per set.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

import vgraph
from vgraph.compat.datasets.kinds import InMode, ManyGraphs, Named, graph_of
from vgraph.files import damage_told, read_lines

FORTNIGHT = 14 * 24 * 3600
CURE = "use the file as it was published"


class BitcoinOTCDataset(Named, ManyGraphs):
    """Who trusts whom (``edata["h"]``: how far) a fortnight each, from ``bitcoinotc.csv.gz`` in ``raw_dir``."""

    set_name, is_temporal = "bitcoinotc", True
    address = "https://snap.stanford.edu/data/soc-sign-bitcoinotc.csv.gz"

    @property
    def raw_path(self) -> str:
        return str(Path(self.raw_dir) / f"{self.name}.csv.gz")

    def download(self) -> None:
        raise self.absent(self.raw_path)

    def read(self, folder: Path) -> None:
        data = _table(folder, ",", 4)
        data[:, :2] -= data[:, :2].min()
        times = np.around((data[:, 3] - data[:, 3].min()) / FORTNIGHT).astype(np.int64)
        _refuse_many(times.max(), len(data))
        self.graphs = [_until(data[:, [0, 1, 2]], times, i, "h") for i in range(times.max())]


class GDELTDataset(InMode):
    """Events in quarters of an hour, from ``mode.txt``; ``edata["rel_type"]`` of an item: their kinds."""

    set_name, file, num_nodes, is_temporal = "GDELT", "gdelt.zip", 23033, True

    def read(self, folder: Path) -> None:
        self.data = _table(folder / f"{self.mode}.txt", "\t", 4)
        self.time_index = self.data[:, 3] // 15
        self.start_time, self.end_time = int(self.time_index.min()), int(self.time_index.max())

    def __getitem__(self, t: int) -> vgraph.Graph:
        if not 0 <= t < len(self):
            raise IndexError(f"{t} is none of {len(self)} times")
        g = _until(self.data[:, [0, 2, 1]], self.time_index, t + self.start_time, "rel_type")
        return self._changed(g)

    def __len__(self) -> int:
        return self.end_time - self.start_time + 1


class ICEWS18Dataset(InMode, ManyGraphs):
    """Events of 2018, from ``mode.txt``; a graph for every day, ``edata["rel_type"]``: the kind of event."""

    set_name, file, is_temporal = "ICEWS18", "icews18.zip", True

    def read(self, folder: Path) -> None:
        data = _table(folder / f"{self.mode}.txt", "\t", 4)
        times = data[:, 3] // 24
        first = times[times != -1].min()
        _refuse_many(times.max() - first, len(data))
        self.graphs = [_until(data[:, [0, 2, 1]], times, i, "rel_type") for i in range(first, times.max() + 1)]


def _refuse_many(count: int, rows: int) -> None:
    if count > 64 * rows:
        raise ValueError(f"{rows} events over {count} times")


def _until(rows: NDArray[np.int64], times: NDArray[np.int64], last: int, name: str) -> vgraph.Graph:
    """The edges up to a time: a row is a source, a destination, and what the edge says."""
    kept = rows[times <= last]
    g = graph_of(kept[:, 0], kept[:, 1])
    g.edata[name] = torch.from_numpy(kept[:, 2:].copy())
    return g


def _table(path: Path, delimiter: str, least: int) -> NDArray[np.int64]:
    """The first ``least`` numbers of every line, without what stands behind a point."""
    with damage_told(path, CURE, fact="it is no table of numbers"):
        rows = [
            [int(float(word)) for word in line.split(delimiter)[:least]] for line in read_lines(path) if line.strip()
        ]
        table = np.array(rows, np.int64)
        if table.ndim != 2 or table.shape[1] != least:
            raise ValueError(f"there are not {least} numbers in every line")
        return table


BitcoinOTC, GDELT, ICEWS18 = BitcoinOTCDataset, GDELTDataset, ICEWS18Dataset
