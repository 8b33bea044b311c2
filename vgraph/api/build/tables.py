"""Edge lists in tables: pandas' DataFrame, or anything with columns by name.

Takes: tables. Gives: Graphs, and back. Runs once per sample. pandas is not needed to import vgraph.
"""

from __future__ import annotations

import importlib
from collections.abc import Hashable, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vgraph.api.build.construct import Device, graph
from vgraph.api.graph import Graph
from vgraph.arguments import EACH, WORDS, Bound, checked
from vgraph.errors import FeatureError, FunctionError, NameLookupError
from vgraph.graphs.given import GRAPH

_TITLE = Bound("the name of a column", lambda given: isinstance(given, Hashable))
_KNOWN = Bound("a dict", lambda given: isinstance(given, MutableMapping))


@checked(source=_TITLE, target=_TITLE, edge_attrs=EACH.or_none(), node_ids=_KNOWN.or_none())
def from_pandas(
    frame: Mapping[str, object],
    source: str = "src",
    target: str = "dst",
    edge_attrs: Sequence[str] | None = None,
    *,
    num_nodes: int | None = None,
    idtype: torch.dtype | None = None,
    device: Device = None,
    node_ids: dict[Hashable, int] | None = None,
) -> Graph:
    """A graph from a table with one edge a row: a pandas DataFrame, or anything with columns by name.

    Args:
        frame: the table.
        source: the name of the column of sources.
        target: the name of the column of destinations.
        edge_attrs: the names of columns that become ``edata``; None: none.
        num_nodes: all ids are below it; None: the largest id + 1.
        idtype: ``torch.int64`` or ``torch.int32``; None: that of the ids.
        device: where ids and features go; None: the CPU.
        node_ids: where nodes have names (text, or anything that a dict takes): the id of each. It gets the names that
            are not in it yet, row by row, with the ids that follow; ``{}`` to begin with, and the same for further
            tables. None: the columns hold ids.

    Returns:
        A Graph with one type of nodes and edges, its edges in the order of rows.

    Raises:
        NameLookupError: there is no such column.
        FeatureError: a column holds no numbers, or a row lacks the name of a node.

    Source: pandas, ``DataFrame`` (columns by name).

    Example:
        >>> import vgraph
        >>> table = {"src": [0, 1], "dst": [1, 2], "w": [0.5, 1.0]}
        >>> vgraph.from_pandas(table, edge_attrs=["w"]).edata["w"].tolist()
        [0.5, 1.0]
        >>> ids = {}
        >>> vgraph.from_pandas({"src": ["Ann", "Bob"], "dst": ["Bob", "Cid"]}, node_ids=ids).edges()
        (tensor([0, 1]), tensor([1, 2]))
        >>> ids
        {'Ann': 0, 'Bob': 1, 'Cid': 2}
    """
    attrs = () if edge_attrs is None else tuple(edge_attrs)
    columns = {name: _column(frame, name) for name in (source, target, *attrs)}
    names = None if node_ids is None else dict(node_ids)
    ends = _ids_of((source, target), (columns[source], columns[target]), names)
    if names is not None and num_nodes is None:
        num_nodes = 1 + max(names.values(), default=-1)
    g = graph(ends, num_nodes=num_nodes, idtype=idtype, device=device)
    for name in attrs:
        if columns[name].dtype.kind not in "biufc":
            fact = f"the column {name!r} holds no numbers"
            raise FeatureError(fact, cure="convert it first")
        g.edata[name] = torch.from_numpy(columns[name].copy()).to(g.device)
    if node_ids is not None:
        node_ids.update(names or {})
    return g


_Ends = tuple[NDArray[np.generic], NDArray[np.generic]]


def _holds_names(column: NDArray[np.generic]) -> bool:
    """Whether it is text; numbers beyond 64 bits are objects, too, and no names."""
    return column.dtype.kind in "US" or (column.dtype.kind == "O" and not all(isinstance(n, int) for n in column))


def _ids_of(titles: tuple[str, str], ends: _Ends, names: dict[Hashable, int] | None) -> _Ends:
    """Ids as they stand in two columns, or those of names, which are added to the ones known."""
    if names is None:
        if any(_holds_names(column) for column in ends):
            fact = f"the columns {titles[0]!r} and {titles[1]!r} hold names, not ids"
            raise FeatureError(fact, cure="pass node_ids={}, a dict that gets the id of each name")
        return ends
    found: list[int] = []
    following = 1 + max(names.values(), default=-1)
    for row, pair in enumerate(zip(*(end.tolist() for end in ends), strict=True)):
        for title, name in zip(titles, pair, strict=True):
            if not isinstance(name, Hashable) or name is None or name != name:  # noqa: PLR0124  # NaN
                fact = f"row {row} of the column {title!r} is {name!r}, which names no node"
                raise FeatureError(fact, cure="drop the row: frame.dropna(subset=[source, target])")
            found.append(names.setdefault(name, following))
            following += found[-1] == following
    both = np.array(found, np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _column(frame: Mapping[str, object], name: str) -> NDArray[np.generic]:
    try:
        is_there = name in frame
    except (TypeError, RuntimeError) as error:
        fact = f"the table is a {type(frame).__name__}"
        raise FeatureError(fact, cure="pass a DataFrame, or a dict of columns") from error
    if not is_there:
        known = ", ".join(map(repr, frame))
        raise NameLookupError(f"there is no column {name!r}; there is: {known}", cure="name one of them")
    return np.asarray(frame[name])


@checked(g=GRAPH, edge_attrs=WORDS.or_none())
def to_pandas(g: Graph, edge_attrs: Sequence[str] | None = None) -> Any:
    """A pandas DataFrame with columns src, dst and the edge features named, one row an edge; needs pandas.

    Args:
        g: a graph with one type of edges.
        edge_attrs: names of features of the edges; None: none.

    Returns:
        A ``pandas.DataFrame``, its rows in the order of edge ids; it shares no memory with the graph's ids.

    Raises:
        FunctionError: pandas is not installed.
        NameLookupError: there is no such feature.

    Source: pandas, ``DataFrame`` (columns by name).

    Example:
        >>> import vgraph
        >>> table = vgraph.to_pandas(vgraph.graph(([0], [1])))  # doctest: +SKIP
    """
    t, _, _, frame = g.relation(None)
    columns = {name: list(frame[name].numpy(force=True)) for name in edge_attrs or ()}
    try:
        made = importlib.import_module("pandas").DataFrame
    except ImportError as error:
        raise FunctionError("to_pandas needs pandas", cure="install it") from error
    return made({"src": t.src.cpu().numpy().copy(), "dst": t.dst.cpu().numpy().copy(), **columns})
