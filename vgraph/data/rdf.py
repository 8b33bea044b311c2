"""Graphs from RDF: one type of edges a relation, as relational graph networks take them.

Takes: N-Triples, tables of labelled entities. Gives: a graph of several types, splits. Runs once per file.
Source: Schlichtkrull et al. 2018, section 5.1; Ristoski et al. 2016 (the splits).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import vgraph
from vgraph.arguments import NAME, PATH, Bound, checked
from vgraph.data.given import TEXT
from vgraph.errors import DataError
from vgraph.files import read_lines, read_text

ENTITY, LITERAL, INVERSE = "entity", "literal", "inverse-"
TRIPLE = re.compile(
    r'(<[^<>"\s]*>|_:\S+)[ \t]+<([^<>"\s]*)>[ \t]+'
    r'(<[^<>"\s]*>|_:\S+|"(?:[^"\\]|\\.)*"(?:\^\^<[^<>"\s]*>|@[\w-]+)?)[ \t]*\.[ \t]*(?:#.*)?'
)


@dataclass(frozen=True, eq=False)
class RdfGraph:
    """A graph of entities and literals, with an edge type for every relation.

    Attributes:
        graph: a graph with nodes of the types "entity" and "literal"; the inverse of a relation is called
            "inverse-...".
        names: by type, what each node is called in the file, without brackets, quotes kept.
        relations: the full name of every edge type.

    Source: Schlichtkrull et al. 2018, section 5.1.

    Example:
        >>> data = parse_ntriples('<x#a> <x#knows> <x#b> .')
        >>> data.graph.num_nodes("entity"), data.names["entity"], data.relations
        (2, ['x#a', 'x#b'], {'knows': 'x#knows'})
    """

    graph: vgraph.Graph
    names: Mapping[str, list[str]]
    relations: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class RdfTask:
    """Entities to be classified, in train and test.

    Attributes:
        train_ids: int64 (train,), nodes of type "entity".
        train_labels: int64 (train,).
        test_ids: int64 (test,), nodes of type "entity".
        test_labels: int64 (test,).
        num_classes: labels are below it.

    Source: Ristoski et al. 2016 (the splits).

    Example:
        >>> import tempfile
        >>> data = parse_ntriples("<a> <knows> <b> .")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     paths = [Path(folder, name) for name in ("a.tsv", "b.tsv")]
        ...     _ = [path.write_text(f"who\\tkind\\n{path.stem}\\tx\\n") for path in paths]
        ...     load_rdf_task(data, *paths, entity="who", label="kind").num_classes
        1
    """

    train_ids: Tensor
    train_labels: Tensor
    test_ids: Tensor
    test_labels: Tensor
    num_classes: int


@checked(text=TEXT)
def parse_ntriples(text: str, *, inverse: bool = True, path: str | Path = "<text>") -> RdfGraph:
    """Reads "<subject> <relation> object ." lines; a triple that is stated twice counts once.

    Args:
        text: the lines.
        inverse: give every relation another one with its edges turned round, so that messages go both ways.
        path: what errors call the text.

    Returns:
        An RdfGraph.

    Raises:
        DataError: a line is no triple, there is none, or a relation is called as the inverse of another.

    Source: W3C's RDF 1.1 N-Triples; Schlichtkrull et al. 2018, section 5.1 (the data).

    Example:
        >>> data = parse_ntriples('<x#a> <x#knows> <x#b> .\\n<x#b> <x#age> "7" .\\n')
        >>> sorted(data.graph.canonical_etypes)[:2]
        [('entity', 'age', 'literal'), ('entity', 'inverse-knows', 'entity')]
        >>> data.names["literal"], data.graph.num_edges("inverse-knows")
        (['"7"'], 1)
    """
    return _parse(text.split("\n"), inverse, path)


def _parse(lines: Iterable[str], inverse: bool, path: str | Path) -> RdfGraph:
    numbers: dict[str, dict[str, int]] = {ENTITY: {}, LITERAL: {}}
    edges: dict[tuple[str, str], dict[tuple[int, int], None]] = {}
    for count, line in enumerate(lines, 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        found = TRIPLE.fullmatch(stripped)
        if found is None:
            fact, cure = f"{stripped[:80]!r} is no triple", "write <subject> <relation> <object> ."
            raise DataError(fact, line=f"{path}:{count}", cure=cure)
        subject, relation, value = found.groups()
        kind = LITERAL if value.startswith('"') else ENTITY
        ids = (_number(numbers[ENTITY], subject), _number(numbers[kind], value))
        edges.setdefault((relation, kind), {})[ids] = None
    if not edges:
        raise DataError("there is no triple", line=str(path), cure="write <subject> <relation> <object> .")
    short = _short_names(dict.fromkeys(relation for relation, _ in edges))
    names = {ENTITY: [name.strip("<>") for name in numbers[ENTITY]], LITERAL: list(numbers[LITERAL])}
    return RdfGraph(_typed_graph(edges, short, numbers, inverse), names, {name: full for full, name in short.items()})


@checked(path=PATH)
def load_rdf(path: str | Path, *, inverse: bool = True) -> RdfGraph:
    """The graph of a file of N-Triples, also compressed (``.nt.gz``).

    Args:
        path: the file; one that ends in ``.gz`` is read as gzip.
        inverse: give every relation another one with its edges turned round.

    Returns:
        An RdfGraph.

    Raises:
        DataError: the file is missing, no gzip where it is called so, malformed, or expands beyond belief.

    Source: W3C's RDF 1.1 N-Triples; Schlichtkrull et al. 2018, section 5.1 (the data).

    Example:
        >>> import gzip, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "pair.nt.gz")
        ...     _ = path.write_bytes(gzip.compress(b"<x#a> <x#knows> <x#b> ."))
        ...     data = load_rdf(path)
        >>> data.names["entity"], data.relations
        (['x#a', 'x#b'], {'knows': 'x#knows'})
    """
    return _parse(read_lines(path), inverse, path)


_RDF = Bound("an RdfGraph, as load_rdf gives it", lambda given: isinstance(given, RdfGraph))


@checked(data=_RDF, train=PATH, test=PATH, entity=NAME, label=NAME)
def load_rdf_task(data: RdfGraph, train: str | Path, test: str | Path, *, entity: str, label: str) -> RdfTask:
    """Who is in train and test, with what label, from tables with tabs and a header.

    Args:
        data: the graph that names entities.
        train: a table of names and labels, like ``trainingSet.tsv``.
        test: another such table.
        entity: the title of the column of names.
        label: the title of the column of labels, whatever they are: they are numbered as they sort.

    Returns:
        An RdfTask.

    Raises:
        DataError: a column is missing, a name is not in the graph, has two labels, or stands in both files; a file is
            missing, or a line of it has more or fewer cells than the header.

    Source: Ristoski et al. 2016 (the splits).

    Example:
        >>> import tempfile
        >>> data = parse_ntriples("<a> <knows> <b> .")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     paths = [Path(folder, name) for name in ("a.tsv", "b.tsv")]
        ...     _ = [path.write_text(f"who\\tkind\\n{path.stem}\\tx\\n") for path in paths]
        ...     task = load_rdf_task(data, *paths, entity="who", label="kind")
        >>> task.train_ids.tolist(), task.test_ids.tolist(), task.test_labels.tolist(), task.num_classes
        ([0], [1], [0], 1)
    """
    known = {name: i for i, name in enumerate(data.names[ENTITY])}
    tables = [_read_table(path, entity, label) for path in (train, test)]
    classes = {word: i for i, word in enumerate(sorted({word for table in tables for word in table.values()}))}
    for name in tables[1]:
        if name in tables[0]:
            raise DataError(f"{name} is in train and in test", line=str(test), cure="keep it in one of them")
    ids: list[Tensor] = []
    for path, table in zip((train, test), tables, strict=True):
        for name in table:
            if name not in known:
                raise DataError(f"{name} is not in the graph", line=str(path), cure="pass the tables of this graph")
        ids.append(torch.tensor([known[name] for name in table], dtype=torch.int64))
    labels = [torch.tensor([classes[word] for word in table.values()], dtype=torch.int64) for table in tables]
    return RdfTask(ids[0], labels[0], ids[1], labels[1], len(classes))


def _read_table(path: str | Path, entity: str, label: str) -> dict[str, str]:
    """Labels by name; whole numbers are written without a point."""
    header, *lines = read_text(path).rstrip("\n").split("\n")
    columns = header.rstrip("\r").split("\t")
    for name in (entity, label):
        if name not in columns:
            raise DataError(f"there is no column {name!r}", line=f"{path}:1", cure=f"one of {', '.join(columns)}")
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 2):
        cells = line.rstrip("\r").split("\t")
        if len(cells) != len(columns):
            fact = f"{len(cells)} cells under {len(columns)} columns"
            raise DataError(fact, line=f"{path}:{number}", cure="separate them by tabs")
        name, word = cells[columns.index(entity)], cells[columns.index(label)].removesuffix(".0")
        if found.setdefault(name, word) != word:
            fact = f"{name} is labelled {word}, and {found[name]} before"
            raise DataError(fact, line=f"{path}:{number}", cure="keep one label")
    return found


def _number(known: dict[str, int], name: str) -> int:
    return known.setdefault(name, len(known))


def _short_names(relations: Mapping[str, None]) -> dict[str, str]:
    """What stands behind the last "#" or "/", where that tells relations apart."""
    tails = {full: re.split(r"[#/]", full)[-1] or full for full in relations}
    seen = Counter(tails.values())
    return {full: tail if seen[tail] == 1 else full for full, tail in tails.items()}


def _typed_graph(
    edges: Mapping[tuple[str, str], Mapping[tuple[int, int], None]],
    short: Mapping[str, str],
    numbers: Mapping[str, Mapping[str, int]],
    inverse: bool,
) -> vgraph.Graph:
    forward: dict[tuple[str, str, str], tuple[Tensor, Tensor]] = {}
    backward: dict[tuple[str, str, str], tuple[Tensor, Tensor]] = {}
    for (relation, kind), pairs in edges.items():
        src, dst = torch.from_numpy(np.array(list(pairs), np.int64)).unbind(1)
        forward[ENTITY, short[relation], kind] = (src.contiguous(), dst.contiguous())
        backward[kind, INVERSE + short[relation], ENTITY] = (dst.contiguous(), src.contiguous())
    for twin in forward.keys() & backward.keys() if inverse else ():
        fact = f"the relation {twin[1]!r} is also the inverse of another"
        raise DataError(fact, cure="pass inverse=False, or rename it")
    counts = {kind: len(known) for kind, known in numbers.items()}
    return vgraph.heterograph({**forward, **(backward if inverse else {})}, counts)
