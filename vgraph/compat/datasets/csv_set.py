"""A data set of a user's own tables: what each of them holds stands in a file beside them.

Takes: a folder with meta.yaml and tables with a header. Gives: graphs and what is known of each. Runs once per set.
Source: DGL 1.1, ``dgl.data.CSVDataset``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeVar, cast

from torch import Tensor

import vgraph
from vgraph.compat.data import DGLDataset
from vgraph.compat.datasets.csv_meta import Meta
from vgraph.compat.datasets.csv_tables import Columns, Id, Parser, Table
from vgraph.compat.names import save_graphs
from vgraph.compat.splits import Subset
from vgraph.graphs.types import EdgeType

__all__ = ["CSVDataset"]

T = TypeVar("T")
Ends = tuple[list[int], list[int], Columns]


class CSVDataset(DGLDataset):
    """Graphs of the tables that ``meta.yaml`` names; with one column of graphs' own, ``labels``, with several ``data``.

    Nodes are numbered by their ids in ascending order. Columns are numbers, truth values, or lists of numbers such as
    ``"0.5,1,2"``; floats become float32. A parser gets a DataFrame of pandas, without ids, and gives the columns.
    """

    META_YAML_NAME = "meta.yaml"

    def __init__(
        self,
        data_path: str,
        force_reload: bool = False,
        verbose: bool = True,
        ndata_parser: Mapping[str, Parser] | Parser | None = None,
        edata_parser: Mapping[EdgeType, Parser] | Parser | None = None,
        gdata_parser: Parser | None = None,
        transform: Callable[[vgraph.Graph], vgraph.Graph] | None = None,
    ) -> None:
        self.graphs: list[vgraph.Graph] = []
        self.data: dict[str, Tensor] = {}
        self.ndata_parser, self.edata_parser, self.gdata_parser = ndata_parser, edata_parser, gdata_parser
        self.meta_yaml = Meta.of(Path(data_path) / self.META_YAML_NAME)
        super().__init__(
            self.meta_yaml.name, raw_dir=str(data_path), force_reload=force_reload, verbose=verbose, transform=transform
        )

    def process(self) -> None:
        meta, nodes, edges = self.meta_yaml, _Nodes(), dict[Id, dict[EdgeType, Ends]]()
        for entry in meta.tables["node_data"]:
            nodes.add(Table.of(meta, entry, _parser_of(self.ndata_parser, entry.kind)))
        for entry in meta.tables["edge_data"]:
            table = Table.of(meta, entry, _parser_of(self.edata_parser, entry.kind))
            for graph, rows in table.by_graph():
                edges.setdefault(graph, {})[cast("EdgeType", entry.kind)] = nodes.edges_of(table, graph, rows)
        self._arrange({graph: _graph(kinds, edges.get(graph, {})) for graph, kinds in nodes.graphs.items()})

    def _arrange(self, made: Mapping[Id, vgraph.Graph]) -> None:
        """Graphs in the order of their own table, where there is one."""
        entries = self.meta_yaml.tables["graph_data"]
        if not entries:
            self.graphs = list(made.values())
            return
        table = Table.of(self.meta_yaml, entries[0], self.gdata_parser)
        absent = sorted(str(one) for one in made.keys() - set(table.graphs))
        if absent and table.records:
            fact = f"there is no line for graph {absent[0]}, which has nodes"
            raise table.line(0).wrong(fact, "give every graph a line")
        self.graphs = [made[one] if one in made else vgraph.graph(([], [])) for one in table.graphs]
        columns = table.columns(range(len(table.records)))
        self.data = {name: rows.reshape(len(self.graphs), -1) for name, rows in columns.items()}

    @property
    def labels(self) -> Tensor:
        """The only column of graphs' own; AttributeError: there is none, or several."""
        if len(self.data) != 1:
            raise AttributeError("labels")
        return next(iter(self.data.values()))

    def has_cache(self) -> bool:
        return self._kept.exists()

    def save(self) -> None:
        self._kept.parent.mkdir(parents=True, exist_ok=True)
        save_graphs(str(self._kept), self.graphs, self.data)

    def load(self) -> None:
        graphs, self.data = vgraph.load_graphs(str(self._kept))
        self.graphs = list(graphs)

    @property
    def _kept(self) -> Path:
        return Path(self.save_path) / f"{self.name}.bin"

    def __getitem__(self, idx: int | Tensor) -> object:
        if isinstance(idx, Tensor) and idx.dim() == 1:
            return Subset(self, idx.tolist())
        place = int(idx)
        g = self._changed(self.graphs[place])
        if len(self.data) == 1:
            return g, self.labels[place]
        return (g, {name: rows[place] for name, rows in self.data.items()}) if self.data else g

    def __len__(self) -> int:
        return len(self.graphs)


def _parser_of(given: Mapping[T, Parser] | Parser | None, kind: object) -> Parser | None:
    """The one for a type of nodes or edges, or for all; None: there is none."""
    return cast("Mapping[object, Parser]", given).get(kind) if isinstance(given, Mapping) else given


class _Nodes:
    """The nodes of every graph by type: numbers by id, and columns."""

    def __init__(self) -> None:
        self.graphs: dict[Id, dict[str, tuple[dict[str, int], Columns]]] = {}

    def add(self, table: Table) -> None:
        ids = table.ids("node_id_field")
        for graph, rows in table.by_graph():
            order = sorted(rows, key=lambda row: (isinstance(ids[row], str), ids[row]))
            for before, row in pairwise(order):
                if ids[before] == ids[row]:
                    fact = f"node {ids[row]} was there before"
                    raise table.line(max(before, row)).wrong(fact, "give each an id of its own")
            # by text: ids of nodes may hold words where those of an edge table are all numbers
            numbers = {str(ids[row]): number for number, row in enumerate(order)}
            self.graphs.setdefault(graph, {})[cast("str", table.entry.kind)] = numbers, table.columns(order)

    def edges_of(self, table: Table, graph: Id, rows: Sequence[int]) -> Ends:
        """Numbers of the ends of some edges, and their columns."""
        ends: list[list[int]] = []
        for use, place in (("src_id_field", 0), ("dst_id_field", 2)):
            ids, kind = table.ids(use), table.entry.kind[place]
            numbers = self.graphs.get(graph, {}).get(kind, ({}, {}))[0]
            for row in rows:
                if str(ids[row]) not in numbers:
                    fact = f"graph {graph} has no node {ids[row]!r} of type {kind!r}"
                    raise table.line(row).wrong(fact, "name it in the table of these nodes")
            ends.append([numbers[str(ids[row])] for row in rows])
        return ends[0], ends[1], table.columns(rows)


def _graph(kinds: Mapping[str, tuple[Mapping[str, int], Columns]], edges: Mapping[EdgeType, Ends]) -> vgraph.Graph:
    pairs = {etype: (src, dst) for etype, (src, dst, _) in edges.items()} or {("_V", "_E", "_V"): ([], [])}
    counts = dict.fromkeys((etype[end] for etype in pairs for end in (0, 2)), 0)
    counts |= {kind: len(numbers) for kind, (numbers, _) in kinds.items()}
    g = vgraph.heterograph(pairs, num_nodes_dict=counts)
    for kind, (_, columns) in kinds.items():
        g.nodes[kind].data.update(columns)
    for etype, (_, _, columns) in edges.items():
        g.edges[etype].data.update(columns)
    return g
