"""Lists of directed acyclic graphs from JSON or CSV: cells of neural architectures, lattices, expressions, plans.

Takes: a file. Gives: graphs with kinds of vertices and edges, labels and scores. Runs once per file.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

import vgraph
from vgraph.arguments import PATH, checked
from vgraph.data.given import WORDS
from vgraph.data.lines import SHOWN, Line, Record, records_of
from vgraph.data.sst import UNKNOWN
from vgraph.errors import CycleError, DataError
from vgraph.files import read_json_items, read_text

COLUMNS = ("graph", "node", "kind", "parents")
KEYS = ("nodes", "edges", "label", "score")
MOST_NODES = 1 << 24  # of a graph
MOST_SHOWN = 8  # nodes of a cycle
SHAPE = 'write {"nodes": ["a", "b"], "edges": [[0, 1]]}, and "label" and "score" where there are some'
NUMBERED = "number the nodes of a graph 0, 1, 2, ... in order"
ACYCLIC = "turn one of these edges round, or remove it"


@dataclass(frozen=True, eq=False)
class DagDataset:
    """Directed acyclic graphs with what is known of each.

    Attributes:
        graphs: graphs with ``ndata["kind"]``, int64 (vertices,), an index into ``kinds``; where edges have kinds,
            ``edata["kind"]``, int64 (edges,), is one into ``edge_kinds``.
        labels: int64 (graphs,), an index into ``classes``; -1 where a graph has no label.
        scores: float32 (graphs,); NaN where a graph has none.
        kinds: what vertices are; 0 is the unknown kind.
        edge_kinds: what edges are; 0 is the unknown kind. Empty where edges have no kinds.
        classes: the names of the labels.

    Source: none (a list of graphs with what belongs to each).

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "cells.json")
        ...     _ = path.write_text('[{"nodes": ["in", "conv"], "edges": [[0, 1]], "score": 0.75}]')
        ...     data = load_dags(path)
        >>> len(data.graphs), data.scores.tolist(), data.labels.tolist()
        (1, [0.75], [-1])
    """

    graphs: list[vgraph.Graph]
    labels: Tensor
    scores: Tensor
    kinds: tuple[str, ...]
    edge_kinds: tuple[str, ...]
    classes: tuple[str, ...]


@checked(path=PATH, kinds=WORDS.or_none(), edge_kinds=WORDS.or_none(), classes=WORDS.or_none())
def load_dags(
    path: str | Path,
    *,
    kinds: Sequence[str] | None = None,
    edge_kinds: Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
) -> DagDataset:
    """The graphs of a ``.csv``, or of a file of JSON: a list of objects, or an object a line.

    An object has ``"nodes"``, the kind of each vertex (text or a whole number), and ``"edges"``, a list of
    ``[source, destination]`` or ``[source, destination, kind]`` with vertices numbered from 0 in the order of
    ``"nodes"``. ``"label"`` (text or a whole number: a class) and ``"score"`` (a number) may stand beside them.

    A table has the columns ``graph,node,kind,parents`` and a line for each vertex: the graph's name, the vertex'
    number (0, 1, 2, ... within its graph), its kind, and the numbers of its parents, with blanks between them. The
    lines of a graph follow each other. ``label`` and ``score`` may be further columns, and are read in each graph's
    first line.

    ``kinds``, ``edge_kinds`` and ``classes`` are those of the training set; without them the file's own, sorted.

    Args:
        path: the file.
        kinds: what vertices are, as of the training set.
        edge_kinds: what edges are, as of the training set.
        classes: the labels, as of the training set.

    Returns:
        A DagDataset.

    Raises:
        DataError: the file is missing or malformed, an edge names a vertex that is not there, edges form a cycle, or a
            label is not among ``classes``.

    Source: none (the plainest shape that such lists have).

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "cells.csv")
        ...     _ = path.write_text("graph,node,kind,parents,label\\nx,0,in,,good\\nx,1,conv,0,\\nx,2,add,0 1,\\n")
        ...     data = load_dags(path)
        >>> data.graphs[0].edges(), data.kinds, data.classes
        ((tensor([0, 0, 1]), tensor([1, 2, 2])), ('<unknown>', 'add', 'conv', 'in'), ('good',))
    """
    found = list(_from_csv(path) if Path(path).suffix.lower() == ".csv" else _from_json(path))
    if not found:
        raise Line("", path, 1).wrong("there are no graphs", SHAPE)
    edge_names = {kind for dag in found for kind in dag.edge_kinds}
    kinds = _names({kind for dag in found for kind in dag.kinds}) if kinds is None else kinds
    edge_kinds = (_names(edge_names) if edge_names else ()) if edge_kinds is None else edge_kinds
    classes = sorted({dag.label for dag in found if dag.label is not None}) if classes is None else classes
    numbers = [{name: i for i, name in enumerate(names)} for names in (kinds, edge_kinds, classes)]
    return DagDataset(
        graphs=_graphs(found, numbers[0], numbers[1]),
        labels=torch.tensor([_label(dag, numbers[2]) for dag in found]),
        scores=torch.tensor([torch.nan if dag.score is None else dag.score for dag in found]),
        kinds=tuple(kinds),
        edge_kinds=tuple(edge_kinds),
        classes=tuple(classes),
    )


def _names(found: set[str]) -> tuple[str, ...]:
    return (UNKNOWN, *sorted(found - {UNKNOWN}))


@dataclass
class _Dag:
    """A graph as a file has it."""

    line: Line
    label: str | None = None
    score: float | None = None
    kinds: list[str] = field(default_factory=list[str])
    src: list[int] = field(default_factory=list[int])
    dst: list[int] = field(default_factory=list[int])
    edge_kinds: list[str] = field(default_factory=list[str])


def _graphs(dags: Sequence[_Dag], kinds: Mapping[str, int], edge_kinds: Mapping[str, int]) -> list[vgraph.Graph]:
    """The graphs as slices of one batch: batches of some are ranges of it."""
    sizes = [len(dag.kinds) for dag in dags]
    first = list(accumulate(sizes, initial=0))
    ends = [
        torch.tensor([at + v for at, vs in zip(first, side, strict=False) for v in vs], dtype=torch.int64)
        for side in ([dag.src for dag in dags], [dag.dst for dag in dags])
    ]
    whole = vgraph.graph((ends[0], ends[1]), num_nodes=first[-1])
    try:
        vgraph.topological_nodes_generator(whole)
    except CycleError as error:
        raise _cyclic(error.cycle, dags, first) from None
    whole.ndata["kind"] = torch.tensor([kinds.get(kind, 0) for dag in dags for kind in dag.kinds], dtype=torch.int64)
    if edge_kinds:
        named = [kind for dag in dags for kind in dag.edge_kinds or [UNKNOWN] * len(dag.src)]
        whole.edata["kind"] = torch.tensor([edge_kinds.get(kind, 0) for kind in named], dtype=torch.int64)
    whole.set_batch_num_nodes(sizes)
    whole.set_batch_num_edges([len(dag.src) for dag in dags])
    return vgraph.unbatch(whole)


def _cyclic(cycle: Sequence[int], dags: Sequence[_Dag], first: Sequence[int]) -> DataError:
    at = bisect_right(first, cycle[0]) - 1
    shown = ", ".join(str(vertex - first[at]) for vertex in cycle[:MOST_SHOWN])
    more = ", ..." if len(cycle) > MOST_SHOWN else ""
    return dags[at].line.wrong(
        f"no acyclic graph: edges lead from node {shown}{more} back to where they began", ACYCLIC
    )


def _label(dag: _Dag, classes: dict[str, int]) -> int:
    if dag.label is None:
        return -1
    if dag.label not in classes:
        known = ", ".join(classes)[:SHOWN]
        raise dag.line.wrong(f"label {dag.label[:SHOWN]!r} is none of {known}", "pass the labels as classes")
    return classes[dag.label]


# ---------------------------------------------------------------- JSON
def _from_json(path: str | Path) -> Iterator[_Dag]:
    for number, item in read_json_items(path):
        line = Line("", path, number)
        if not isinstance(item, dict):
            raise line.wrong(f"a graph is an object, not {_shown(item)}", SHAPE)
        members = cast("dict[str, object]", item)
        strange = next((key for key in members if key not in KEYS), None)
        if strange is not None:
            raise line.wrong(f"a graph has no {strange[:SHOWN]!r}", SHAPE)
        dag = _Dag(line, kinds=[_name(kind, "kind of a node", line) for kind in _list(members, "nodes", line)])
        for edge in _list(members, "edges", line):
            _add_edge(dag, edge)
        if dag.edge_kinds and len(dag.edge_kinds) < len(dag.src):
            raise line.wrong("some edges have a kind and some have none", "give every edge a kind, or none")
        if "label" in members:
            dag.label = _name(members["label"], "label", line)
        if "score" in members:
            dag.score = _score(members["score"], line)
        yield dag


def _list(members: dict[str, object], key: str, line: Line) -> list[object]:
    if key not in members:
        raise line.wrong(f"a graph lacks {key!r}", SHAPE)
    if not isinstance(members[key], list):
        raise line.wrong(f"{key!r} is a list, not {_shown(members[key])}", SHAPE)
    return cast("list[object]", members[key])


def _add_edge(dag: _Dag, edge: object) -> None:
    ends = cast("list[object]", edge) if isinstance(edge, list) else []
    if len(ends) not in (2, 3):
        raise dag.line.wrong(f"{_shown(edge)} is no edge", "write [source, destination] or [source, destination, kind]")
    for end, vertices in zip(ends[:2], (dag.src, dag.dst), strict=True):
        if not isinstance(end, int) or isinstance(end, bool) or not 0 <= end < len(dag.kinds):
            raise dag.line.wrong(f"edge {_shown(edge)} names no node of {len(dag.kinds)}", NUMBERED)
        vertices.append(end)
    if len(ends) == 3:
        dag.edge_kinds.append(_name(ends[2], "kind of an edge", dag.line))


def _name(thing: object, what: str, line: Line) -> str:
    if isinstance(thing, bool) or not isinstance(thing, (str, int)):
        raise line.wrong(f"{_shown(thing)} is no {what}", "give text or a whole number")
    return str(thing)


def _score(thing: object, line: Line) -> float:
    if isinstance(thing, bool) or not isinstance(thing, (int, float)):
        raise line.wrong(f"{_shown(thing)} is no score", "give a number")
    return line.real(str(thing), "score")


def _shown(thing: object) -> str:
    return repr(thing)[:SHOWN]


# ---------------------------------------------------------------- CSV
def _from_csv(path: str | Path) -> Iterator[_Dag]:
    seen: set[str] = set()
    name, dag, parents = "", None, list[tuple[Line, str]]()
    for record in records_of(read_text(path), path, COLUMNS):
        fields = record.fields
        if dag is None or fields["graph"] != name:
            if dag is not None:
                yield _with_parents(dag, parents)
            name, parents = fields["graph"], []
            if name in seen:
                raise record.line.wrong(
                    f"graph {name[:SHOWN]!r} goes on after another", "let its lines follow each other"
                )
            seen.add(name)
            dag = _begun(record)
        if record.line.whole(fields["node"], "number of a node", MOST_NODES, NUMBERED, NUMBERED) != len(dag.kinds):
            raise record.line.wrong(f"node {fields['node']} stands where {len(dag.kinds)} belongs", NUMBERED)
        dag.kinds.append(fields["kind"])
        parents.append((record.line, fields["parents"]))
    if dag is not None:
        yield _with_parents(dag, parents)


def _begun(record: Record) -> _Dag:
    """The graph that begins with a record, as yet without nodes."""
    label, score = record.fields.get("label"), record.fields.get("score")
    return _Dag(record.line, label or None, record.line.real(score, "score") if score else None)


def _with_parents(dag: _Dag, parents: Sequence[tuple[Line, str]]) -> _Dag:
    """The graph with its edges, whose ends are all known now."""
    for vertex, (line, words) in enumerate(parents):
        for word in words.split():
            cure = f"name nodes of the same graph, which has {len(dag.kinds)}"
            dag.src.append(line.whole(word, "parent", len(dag.kinds) - 1, cure, cure))
            dag.dst.append(vertex)
    return dag
