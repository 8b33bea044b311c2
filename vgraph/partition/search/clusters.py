"""Clusters: ops whose division is decided together; what Tofu calls the coarsened graph.

Takes: Classes. Gives: Clusters of an op with what merely follows it, of a parameter with its update. Runs once per
model. Source: Tofu section 5.1 (an operator with its gradients, a tensor with its history).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from vgraph.ir.program import Value, op_name
from vgraph.ir.step import UPDATE
from vgraph.ir.tdl.table import is_pointwise, is_view
from vgraph.partition.rewrite.views import View, view_of
from vgraph.partition.search.classes import Classes, Members, OpClass, Reading

_SPREADS = 4  # an op whose result is this much larger than what it reads decides for itself


@dataclass(eq=False)
class Cluster:
    """A root (an op, or an input of the Program) and the ops that are divided as it is.

    ``members``: class numbers, the root first; ``follows``: for each, the operand it follows.
    """

    index: int
    members: list[int] = field(default_factory=list[int])
    follows: list[int] = field(default_factory=list[int])
    owned: list[int] = field(default_factory=list[int])  # other inputs that lie as the root does: history


Result = tuple[int, int]  # a class or an input, and which of its results
Port = tuple[bool, int, int]  # whether it is read from outside; member; result or operand


class Link(NamedTuple):
    """One value of a cluster and all that reads it in another; ``form``: which members, how often."""

    source: int
    reader: int
    form: int
    readings: tuple[Reading, ...]


class Outgoing(NamedTuple):
    """All links from one cluster, and who reads, each once; ``form``: which links, to the reader at which place."""

    source: int
    readers: tuple[int, ...]
    form: int
    links: tuple[Link, ...]


@dataclass(frozen=True, eq=False)
class ClassView(View):
    """A view of as many members of another class, each of its own; ``only``: of that one, all of them."""

    only: Members | None


@dataclass(frozen=True, eq=False)
class Coarse:
    """All clusters, which one every class and input is in, and the readings between clusters.

    ``views``: results that have the entries of another, and which.
    """

    classes: Classes
    clusters: tuple[Cluster, ...]
    cluster_of: tuple[int, ...]
    inside: tuple[tuple[Reading, ...], ...]  # readings within a cluster, by cluster
    between: tuple[Link, ...]
    member_of: tuple[int, ...]  # a class's place within its cluster
    ports: tuple[tuple[Port, ...], ...]  # by cluster: what other clusters read from it, and what it reads
    forms: tuple[int, ...] = ()  # by cluster: equal for those with the same ops, readings and ports
    views: Mapping[Result, tuple[Result, ClassView]] = field(default_factory=dict[Result, tuple[Result, ClassView]])
    skeletons: dict[int, object] = field(
        default_factory=dict[int, object], repr=False
    )  # by form, as they are asked for
    sizes: dict[Result, int] = field(default_factory=dict[Result, int], repr=False)  # bytes, as they are asked for

    @cached_property
    def outgoing(self) -> tuple[Outgoing, ...]:
        """The links between clusters, by source."""
        links: dict[int, list[Link]] = {}
        for link in self.between:
            links.setdefault(link.source, []).append(link)
        forms: dict[Hashable, int] = {}
        found: list[Outgoing] = []
        for source, mine in links.items():
            places: dict[int, int] = {}
            form = tuple([(places.setdefault(link.reader, len(places)), link.form) for link in mine])
            found.append(Outgoing(source, tuple(places), forms.setdefault(form, len(forms)), tuple(mine)))
        return tuple(found)

    @cached_property
    def viewed(self) -> Mapping[Result, tuple[Result, ClassView]]:
        """The views that are in another cluster than what they are views of."""
        of, views = self.cluster_of, self.views
        return {view: found for view, found in views.items() if of[view[0]] != of[found[0][0]]}


def coarsen(classes: Classes, *, joins: bool = True) -> Coarse:
    """One pass in the order of the Program; without ``joins`` every op decides for itself, but those of updates."""
    return with_forms(_Coarsening(classes, joins=joins).run())


class _Coarsening:
    def __init__(self, classes: Classes, *, joins: bool) -> None:
        self.classes, self.joins = classes, joins
        self.views: dict[Result, tuple[Result, ClassView]] = {}
        self.total = len(classes.classes) + len(classes.step.program.inputs)
        self.cluster_of = [-1] * self.total
        self.clusters: list[Cluster] = []
        self.largest: dict[int, frozenset[int] | None] = {}  # by kind
        self.sources: list[list[tuple[int, int, int]]] = [[] for _ in range(self.total)]
        for reading in classes.readings:
            found = self.sources[reading.reader]
            if (source := (reading.position, reading.source, reading.result)) not in found[-1:]:  # other members
                found.append(source)

    def run(self) -> Coarse:
        self._add_inputs()
        for op_class in self.classes.classes:
            follow = self._followed(op_class)
            if follow is None:
                self._new(op_class.index)
            else:
                self._join(op_class.index, *follow)
        return self._linked()

    def _new(self, item: int) -> Cluster:
        cluster = Cluster(len(self.clusters), [item], [-1])
        self.clusters.append(cluster)
        self.cluster_of[item] = cluster.index
        return cluster

    def _join(self, item: int, position: int, cluster: int) -> None:
        self.clusters[cluster].members.append(item)
        self.clusters[cluster].follows.append(position)
        self.cluster_of[item] = cluster

    def _add_inputs(self) -> None:
        """A parameter's history lies as the parameter does."""
        step, first = self.classes.step, len(self.classes.classes)
        inputs = {given.value.id: first + i for i, given in enumerate(step.program.inputs)}
        histories = {h.before.id: h.parameter for h in step.history if h.before.shape == self._shape(h.parameter)}
        for value_id, item in inputs.items():
            if value_id not in histories:
                self._new(item)
        for value_id, name in histories.items():
            cluster = self.cluster_of[inputs[step.parameters[name].id]]
            self.cluster_of[inputs[value_id]] = cluster
            self.clusters[cluster].owned.append(inputs[value_id])

    def _readings(self) -> Iterator[Reading]:
        """A gradient is brought once to where its parameter lies, and read there by the update."""
        step, home, first = self.classes.step, self.classes.home, len(self.classes.classes)
        inputs = {given.value.id: first + i for i, given in enumerate(step.program.inputs)}
        homes = {home[g.id]: self.cluster_of[inputs[step.parameters[n].id]] for n, g in step.gradients.items()}
        for reading in self.classes.readings:
            if homes.get((reading.source, reading.result), -1) != self.cluster_of[reading.reader]:
                yield reading
        pairs = [(g, step.parameters[n]) for n, g in step.gradients.items()]
        pairs += [(v, step.parameters[n]) for n, v in step.updated.items()]
        pairs += [(v, step.buffers[n]) for n, v in step.new_buffers.items()]
        for value, given in pairs:
            yield Reading(*home[value.id], inputs[given.id], 0, frozenset((self.classes.member_of[value.id],)))

    def _shape(self, name: str) -> tuple[object, ...]:
        return self.classes.step.parameters[name].shape

    def _followed(self, op_class: OpClass) -> tuple[int, int] | None:
        """The operand that this op is divided with, and its cluster; None if it decides for itself."""
        if op_class.kind not in self.largest:
            self.largest[op_class.kind] = _largest(op_class)
        largest = self.largest[op_class.kind]
        if largest is None:
            return None
        if op_class.phase == UPDATE:
            return self._updated(op_class)
        if not self.joins:
            return None
        choices = [
            (source if source < len(self.classes.classes) else -1, position, self.cluster_of[source])
            for position, source, _ in self.sources[op_class.index]
            if position in largest and source != op_class.index and self.cluster_of[source] >= 0
        ]
        return max(choices)[1:] if choices else None

    def _updated(self, op_class: OpClass) -> tuple[int, int] | None:
        """An op of the optimizer is divided as the parameter and the history that it reads."""
        first, best = len(self.classes.classes), None
        made = max(size(value) for value in op_class.op.results)
        for position, source, _ in sorted(self.sources[op_class.index]):
            cluster = self.cluster_of[source]
            is_owned = self.clusters[cluster].members[0] >= first
            if size(op_class.operands[position]) == made and (best is None or (is_owned and not best[2])):
                best = (position, cluster, is_owned)
        return best[:2] if best else None

    def _linked(self) -> Coarse:
        self._find_views()
        member_of = [-1] * self.total
        for cluster in self.clusters:
            for place, item in enumerate(cluster.members):
                member_of[item] = place
        inside: list[list[Reading]] = [[] for _ in self.clusters]
        between: dict[tuple[int, int], list[Reading]] = {}
        for reading in self._readings():
            source, reader = self.cluster_of[reading.source], self.cluster_of[reading.reader]
            if source == reader:
                inside[source].append(reading)
            else:
                between.setdefault((source, reader), []).append(reading)
        ports: list[set[Port]] = [set() for _ in self.clusters]
        for (source, reader), readings in between.items():
            for r in readings:
                ports[source].add((True, max(member_of[r.source], 0), r.result))
                ports[reader].add((False, max(member_of[r.reader], 0), r.position))
        for (source, result), _ in self.views.values():
            ports[self.cluster_of[source]].add((True, max(member_of[source], 0), result))
        return Coarse(
            self.classes,
            tuple(self.clusters),
            tuple(self.cluster_of),
            tuple(map(tuple, inside)),
            tuple(_links(between, member_of)),
            tuple(member_of),
            tuple([tuple(sorted(found)) for found in ports]),
            views=self.views,
        )

    def _find_views(self) -> None:
        """Views of one class, by which each call turns its own value, or all calls one weight."""
        classes, step, member_of = self.classes.classes, self.classes.step, self.classes.member_of
        read: dict[int, Members] = {}
        for reading in self.classes.readings:
            read[reading.reader] = read.get(reading.reader, frozenset()) | reading.members
        known: dict[int, View | None] = {}  # by kind
        for one in classes:
            if one.kind not in known:
                view = view_of(one.op)
                known[one.kind] = view if view is not None and view.base.dtype == one.op.results[0].dtype else None
            view, sources = known[one.kind], self.sources[one.index]
            if view is None or len(sources) != 1:
                continue
            _, source, result = sources[0]
            seen, made = read[one.index], [step.ops[number].results[0].id for number in one.members]
            own = frozenset([member_of[value_id] for value_id in made])
            if len(seen) == 1 or seen == own:
                only = None if seen == own else seen
                self.views[one.index, 0] = ((source, result), ClassView(one.op, one.operands[0], view.dims, only))


def _links(between: dict[tuple[int, int], list[Reading]], member_of: list[int]) -> Iterator[Link]:
    forms: dict[Hashable, int] = {}
    for (source, reader), readings in between.items():
        values: dict[tuple[int, int], list[Reading]] = {}
        for r in readings:
            if r.members:
                values.setdefault((r.source, r.result), []).append(r)
        for found in values.values():
            form = tuple([(member_of[r.source], r.result, member_of[r.reader], r.position, r.members) for r in found])
            yield Link(source, reader, forms.setdefault(form, len(forms)), tuple(found))


def _largest(op_class: OpClass) -> frozenset[int] | None:
    """The operands that an op of this kind may be divided with, none larger; None: such an op decides for itself."""
    op, operands = op_class.op, op_class.operands
    if not operands or not (is_pointwise(op.target) or is_view(op.target) or op_name(op.target) in _LIGHT):
        return None
    sizes = list(map(size, operands))
    if max(map(size, op.results)) > _SPREADS * max(sizes):
        return frozenset()
    return frozenset(position for position, count in enumerate(sizes) if count == max(sizes))


_LIGHT = frozenset("reshape flatten unflatten split split_with_sizes unbind select slice cat stack".split()) - {
    "cat",
    "stack",
}


def size(value: Value) -> int:
    """The number of elements of a dense value."""
    return math.prod(value.shape)  # pyright: ignore[reportCallIssue, reportArgumentType]


def with_forms(coarse: Coarse) -> Coarse:
    """The same clusters, numbered by their forms: what chose alike before has the same states and costs inside."""
    numbers: dict[Hashable, int] = {}
    forms = [numbers.setdefault(_form(coarse, cluster), len(numbers)) for cluster in coarse.clusters]
    return replace(coarse, forms=tuple(forms))


def _form(coarse: Coarse, cluster: Cluster) -> Hashable:
    classes, first = coarse.classes.classes, len(coarse.classes.classes)
    ops = tuple(
        [
            (classes[c].kind, len(classes[c].members)) if c < first else (coarse.classes.input_kind(c), 1)
            for c in cluster.members
        ]
    )
    wires = tuple(
        [
            (
                coarse.member_of[r.source] if r.source not in cluster.owned else -1,
                r.result,
                coarse.member_of[r.reader],
                r.position,
                r.members,
            )
            for r in coarse.inside[cluster.index]
        ]
    )
    return ops, tuple(cluster.follows), wires, coarse.ports[cluster.index]
