"""Entities to be classified in graphs of RDF: AIFB, MUTAG, BGS, AM.

Takes: folders as DGL's archives have them. Gives: data sets of one graph of many types. Runs once per set.
Source: Ristoski et al. 2016 (the data), Schlichtkrull et al. 2018 (their use).
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

import vgraph
from vgraph.compat.data import dgl_url
from vgraph.compat.datasets.kinds import StoredGraph, Transform, graph_of, mask_of
from vgraph.data.rdf import TRIPLE
from vgraph.errors import DataError
from vgraph.files import read_lines

BLANK, NAME, LITERAL = range(3)  # kinds of terms, as they sort
RENAMED = {"type": "rdftype", "rev-type": "rev-rdftype"}
ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))")
LETTERS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


class Term(NamedTuple):
    """A name, a literal or a blank node of RDF."""

    kind: int
    text: str


class Entity(NamedTuple):
    """A node: its class becomes its type."""

    id: str
    cls: str | None

    def __str__(self) -> str:
        return f"{self.cls}/{self.id}"


Triple = tuple[Term, Term, Term]
Parsed = tuple[Entity, str, Entity]


class RDFGraphDataset(StoredGraph):
    """A graph from ``*.nt``, ``*.nt.gz`` (or, where rdflib is installed, ``*.n3``) and two tables of labels.

    Nodes of ``predict_category`` have ``labels`` (-1: none), ``train_mask`` and ``test_mask``. Nodes are numbered as
    triples sort: those of literals by their text.
    """

    set_name = category = ""
    sample_column = 0

    def __init__(
        self,
        print_every: int = 10000,
        insert_reverse: bool = True,
        raw_dir: str | None = None,
        force_reload: bool = False,
        verbose: bool = True,
        transform: Transform | None = None,
    ) -> None:
        self._insert_reverse, self.predict_category = insert_reverse, self.category
        url = dgl_url(f"dataset/rdf/{self.set_name}.zip")
        super().__init__(self.set_name, url, raw_dir, force_reload=force_reload, verbose=verbose, transform=transform)

    @abstractmethod
    def parse_entity(self, term: Term) -> Entity | None:
        """What a term names; None: nothing that is kept."""

    @abstractmethod
    def parse_relation(self, term: Term) -> str | None:
        """What a relation is called; None: it is left out."""

    def typed(self, relation: Term, found: Parsed) -> Parsed:
        """The same with a class for every entity."""
        return found

    def read(self, folder: Path) -> None:
        built, entity_of, name_of = _Builder(), cache(self.parse_entity), cache(self.parse_relation)
        for subject, relation, value in sorted(set(_triples(folder))):
            first, name, last = entity_of(subject), name_of(relation), entity_of(value)
            if first is not None and name is not None and last is not None:
                built.add(*self.typed(relation, (first, name, last)))
        self._hg = self._graph = built.graph(self._insert_reverse)
        of_category = self._hg.nodes[self.category].data["_ID"].tolist()
        local = {number: place for place, number in enumerate(of_category)}
        known = {name: local[number] for name, number in built.entities.items() if number in local}
        data, classes = self._hg.nodes[self.category].data, dict[str, int]()
        data["labels"] = torch.full((len(of_category),), -1)
        for part, file in (("train", "trainingSet.tsv"), ("test", "testSet.tsv")):
            ids: list[int] = []
            for sample, label in self._labelled(folder / file):
                entity = self.parse_entity(Term(NAME, sample))
                if str(entity) in known:  # some have no triple that is kept
                    ids.append(known[str(entity)])
                    data["labels"][ids[-1]] = classes.setdefault(label, len(classes))
            data[f"{part}_mask"] = mask_of(ids, len(of_category))
        data["label"] = data["labels"]
        self.num_classes = len(classes)

    def _labelled(self, path: Path) -> Iterator[tuple[str, str]]:
        for number, line in enumerate(read_lines(path), 1):
            cells = line.strip().split("\t")
            if number == 1 or cells == [""]:
                continue
            if len(cells) != 3:
                raise DataError("there are not 3 cells", line=f"{path}:{number}", cure="separate them by tabs")
            yield cells[self.sample_column], cells[2]


class _Builder:
    """Numbers for entities and types, in the order in which they are first met."""

    def __init__(self) -> None:
        self.entities: dict[str, int] = {}
        self.kinds: dict[str, int] = {}
        self.relations: dict[str, int] = {}
        self.kind_of: list[int] = []
        self.edges: list[tuple[int, int, int]] = []

    def add(self, subject: Entity, relation: str, value: Entity) -> None:
        for entity in (subject, value):
            kind = self.kinds.setdefault(str(entity.cls), len(self.kinds))
            if self.entities.setdefault(str(entity), len(self.entities)) == len(self.kind_of):
                self.kind_of.append(kind)
        number = self.relations.setdefault(relation, len(self.relations))
        self.edges.append((self.entities[str(subject)], self.entities[str(value)], number))

    def graph(self, insert_reverse: bool) -> vgraph.Graph:
        if not self.edges:
            raise ValueError("no triple is of use")
        src, dst, relation = np.array(self.edges, np.int64).T
        names = list(self.relations)
        if insert_reverse:
            src, dst = np.concatenate([src, dst]), np.concatenate([dst, src])
            relation = np.concatenate([relation, relation + len(names)])
            names += [f"rev-{name}" for name in names]
        g = graph_of(src, dst, len(self.kind_of))
        g.ndata["_TYPE"], g.edata["_TYPE"] = torch.tensor(self.kind_of), torch.from_numpy(relation.copy())
        return vgraph.to_heterogeneous(g, list(self.kinds), [RENAMED.get(name, name) for name in names])


# ---------------------------------------------------------------- files
def _triples(folder: Path) -> Iterator[Triple]:
    found = [path for path in sorted(folder.iterdir()) if path.name.endswith((".nt", ".nt.gz", ".n3"))]
    if not found:
        raise DataError("there is no .nt file", line=str(folder), cure="unpack DGL's archive anew")
    for path in found:
        yield from _notation3(path) if path.suffix == ".n3" else _ntriples(path)


def _ntriples(path: Path) -> Iterator[Triple]:
    for number, line in enumerate(read_lines(path), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        found = TRIPLE.fullmatch(stripped)
        if found is None:
            cure = "write <subject> <relation> <object> ."
            raise DataError(f"{stripped[:80]!r} is no triple", line=f"{path}:{number}", cure=cure)
        subject, relation, value = found.groups()
        yield _term(subject), Term(NAME, relation), _term(value)


def _term(word: str) -> Term:
    if word.startswith("<"):
        return Term(NAME, word[1:-1])
    if word.startswith("_:"):
        return Term(BLANK, word[2:])
    return Term(LITERAL, ESCAPE.sub(_letter, word[1 : word.rindex('"')]))


def _letter(found: re.Match[str]) -> str:
    short, long, letter = found.groups()
    return LETTERS.get(letter, letter) if letter else chr(int(short or long, 16))


def _notation3(path: Path) -> Iterator[Triple]:
    if importlib.util.find_spec("rdflib") is None:
        cure = "install rdflib, or turn the file into .nt"
        raise DataError("N3 is read by rdflib, which is not installed", line=str(path), cure=cure)
    rdflib = importlib.import_module("rdflib")
    kinds = {rdflib.BNode: BLANK, rdflib.URIRef: NAME, rdflib.Literal: LITERAL}
    triples: Iterable[tuple[object, object, object]] = rdflib.Graph().parse(str(path), format="n3")
    for subject, relation, value in triples:
        yield (
            Term(kinds[type(subject)], str(subject)),
            Term(kinds[type(relation)], str(relation)),
            Term(kinds[type(value)], str(value)),
        )


# ---------------------------------------------------------------- what the four sets name
class AIFBDataset(RDFGraphDataset):
    """People of an institute and the groups they belong to."""

    set_name, category = "aifb-hetero", "Personen"
    entity_prefix, relation_prefix = "http://www.aifb.uni-karlsruhe.de/", "http://swrc.ontoware.org/"
    left_out = ("http://swrc.ontoware.org/ontology#employs", "http://swrc.ontoware.org/ontology#affiliation")

    def parse_entity(self, term: Term) -> Entity | None:
        if term.kind == LITERAL:
            return Entity(term.text, "_Literal")
        if term.kind == BLANK or not term.text.startswith(self.entity_prefix):
            return None
        words = term.text.split("/")
        return Entity(words[5], words[3])

    def parse_relation(self, term: Term) -> str | None:
        if term.text in self.left_out:
            return None
        words = term.text.split("/")
        return words[3] if term.text.startswith(self.relation_prefix) else words[-1]


class MUTAGDataset(RDFGraphDataset):
    """Molecules and whether they cause mutations."""

    set_name, category = "mutag-hetero", "d"
    entity_prefix = relation_prefix = "http://dl-learner.org/carcinogenesis#"

    def parse_entity(self, term: Term) -> Entity | None:
        if term.kind == LITERAL:
            return Entity(term.text, "_Literal")
        if term.kind == BLANK or not term.text.startswith(self.entity_prefix):
            return None
        inst = term.text.removeprefix(self.entity_prefix)
        kind = next((kind for kind in ("d", "bond") if re.match(f"{kind}[0-9]", inst)), None)
        return Entity(inst, kind)

    def parse_relation(self, term: Term) -> str | None:
        if term.text == f"{self.entity_prefix}isMutagenic":
            return None
        if term.text.startswith(self.relation_prefix):
            return term.text.removeprefix(self.relation_prefix)
        return term.text.split("/")[-1]

    def typed(self, relation: Term, found: Parsed) -> Parsed:
        subject, name, value = found
        if not relation.text.startswith(self.relation_prefix):
            value = value._replace(cls="SCHEMA")
            subject = subject._replace(cls=subject.cls or "SCHEMA")
        if subject.cls is None:
            raise ValueError(f"{subject.id!r} has no class")
        return subject, name, value._replace(cls=value.cls or name)


class BGSDataset(RDFGraphDataset):
    """Named rock units of the British Geological Survey and how they came to be."""

    set_name, category, sample_column = "bgs-hetero", "Lexicon/NamedRockUnit", 1
    entity_prefix, relation_prefix = "http://data.bgs.ac.uk/", "http://data.bgs.ac.uk/ref"

    def parse_entity(self, term: Term) -> Entity | None:
        words = term.text.split("/")
        is_status = term.text.startswith(f"{self.relation_prefix}/CurrentStatus")
        if term.kind != NAME or is_status or not term.text.startswith(self.entity_prefix) or len(words) != 7:
            return None
        return Entity(words[6], f"{words[4]}/{words[5]}")

    def parse_relation(self, term: Term) -> str | None:
        if term.text == f"{self.relation_prefix}/Lexicon/hasLithogenesis":
            return None
        if not term.text.startswith(self.relation_prefix):
            return term.text.replace(".", "_")
        words = term.text.split("/")
        return f"{words[4]}/{words[5]}" if len(words) == 6 else None


class AMDataset(RDFGraphDataset):
    """Things in the Amsterdam Museum and their categories."""

    set_name, category = "am-hetero", "proxy"
    entity_prefix = relation_prefix = "http://purl.org/collections/nl/am/"

    def parse_entity(self, term: Term) -> Entity | None:
        if term.kind == BLANK:
            return Entity(term.text, "_BNode")
        if term.kind == LITERAL or not term.text.startswith(self.entity_prefix):
            return None
        words = term.text.split("/")[6].split("-")
        return Entity(words[1], words[0]) if len(words) == 2 else Entity(str(words), "TYPE")

    def parse_relation(self, term: Term) -> str | None:
        if term.text in (f"{self.entity_prefix}objectCategory", f"{self.entity_prefix}material"):
            return None
        if term.text.startswith(self.relation_prefix):
            return term.text.split("/")[6]
        return term.text.replace(".", "_")
