"""Loader: batches of graphs, prepared by a thread while the last one is computed.

Takes: graphs. Gives: batched graphs whose frontiers, where they have any, are known. Runs at every step.
Source: Cavs section 3.5 (streaming: what the next batch needs overlaps with this one's arithmetic).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from itertools import islice
from typing import Generic, TypeVar, cast

import torch

from vgraph.api.graph import Graph
from vgraph.api.serving.collate import collate, graphs_in
from vgraph.api.serving.prefetch import prefetched
from vgraph.arguments import COUNT, EACH, FUNCTION, MOST, POSITIVE, Bound, checked, whole
from vgraph.compiler import level_schedule, levels
from vgraph.errors import CycleError, FunctionError, GraphError

_DIRECTIONS = {None: (False,), "forward": (False,), "reverse": (True,), "both": (False, True)}
_SAMPLES = Bound("graphs by number, as a list has them", lambda g: hasattr(g, "__getitem__") and _has_length(g))
_GENERATOR = Bound("a torch.Generator", lambda given: isinstance(given, torch.Generator))
_NUMBER = whole(-MOST)
Sample = TypeVar("Sample")
WINDOW = 32  # batches among whose graphs those of like height are put together


class GraphLoader(Generic[Sample]):
    """Batches of graphs, their features along, in random order or as they stand.

    A thread of this process prepares them, so that nothing is pickled and the levels of graphs stay known. Whoever
    needs processes (``num_workers`` and what goes with it) has ``vgraph.sampling.GraphDataLoader``.

    Args:
        graphs: with features in their frames; or samples, which are tuples, lists or mappings with a graph and what
            stands beside it, such as a label. A minibatch has the same members: graphs batched, numbers and tensors
            stacked. The levels of graphs are computed once and kept.
        batch_size: graphs a batch; the last batch of an epoch may have fewer.
        shuffle: a new order every epoch.
        drop_last: leave out the last batch of an epoch if it has fewer graphs.
        sampler: numbers of graphs in the order of an epoch, instead of ``shuffle``; read anew every epoch. None: all.
        batch_sampler: lists of numbers, one for each batch of an epoch, instead of ``batch_size``, ``shuffle``,
            ``drop_last``, ``sampler`` and ``by_height``. None: the loader decides.
        collate_fn: makes a minibatch of a list of samples; None: ``vgraph.collate``.
        generator: what draws the order of ``shuffle``; None: torch's own.
        by_height: put graphs of like height into one batch (of 32 batches' graphs at a time): as many vertices then
            take fewer frontiers. Batches, not graphs, are shuffled then.
        prefetch: batches that a thread prepares ahead; 0 prepares each when it is asked for.
        direction: along which edges frontiers are prepared: "forward", "reverse" or "both"; None: forward, in batches
            without a cycle. Messages need no frontiers; a vertex function refuses a batch with a cycle.

    Raises:
        ArgumentError: the size of a batch is below 1, or ``prefetch`` below 0; an argument is another kind of thing.
        GraphError: there is no such direction; a sampler names a graph that is not there.
        CycleError: where there is a ``direction``, or ``by_height``, a graph has a cycle.
        FunctionError: a sample has no graph, samples differ in form, or two arguments exclude each other.

    Source: Xu et al. 2018 (Cavs), section 3.5 (streaming); the words are those of torch's ``DataLoader``.

    Example:
        >>> import torch, vgraph
        >>> tree = vgraph.graph(([0, 1], [2, 2]))
        >>> [len(g.batch_num_nodes()) for g in vgraph.GraphLoader([tree] * 5, 2)]
        [2, 2, 1]
        >>> samples = [(tree, label) for label in (1, 0, 1)]
        >>> [labels.tolist() for g, labels in vgraph.GraphLoader(samples, 2, drop_last=True)]
        [[1, 0]]
    """

    @checked(
        graphs=_SAMPLES,
        batch_size=POSITIVE,
        sampler=EACH.or_none(),
        batch_sampler=EACH.or_none(),
        collate_fn=FUNCTION.or_none(),
        generator=_GENERATOR.or_none(),
        prefetch=COUNT,
    )
    def __init__(
        self,
        graphs: Sequence[Sample],
        batch_size: int = 1,
        *,
        shuffle: bool = False,
        drop_last: bool = False,
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[Sequence[int]] | None = None,
        collate_fn: Callable[[list[Sample]], object] | None = None,
        generator: torch.Generator | None = None,
        by_height: bool = False,
        prefetch: int = 2,
        direction: str | None = None,
    ) -> None:
        if not isinstance(direction, (str, type(None))) or direction not in _DIRECTIONS:  # pyright: ignore[reportUnnecessaryIsInstance]
            cure = "forward, reverse or both"
            raise GraphError(f"there is no direction {direction!r}", cure=cure)
        order = {"batch_size": batch_size != 1, "drop_last": drop_last, "sampler": sampler is not None}
        _refuse_both("batch_sampler", batch_sampler, {**order, "shuffle": shuffle, "by_height": by_height})
        _refuse_both("sampler", sampler, {"shuffle": shuffle})
        self.graphs, self.batch_size = graphs, batch_size
        self.shuffle, self.by_height, self.prefetch, self.direction = shuffle, by_height, prefetch, direction
        self.drop_last, self.sampler, self.batch_sampler = drop_last, sampler, batch_sampler
        self.collate_fn, self.generator = collate_fn, generator

    def __len__(self) -> int:
        if self.batch_sampler is not None:
            return _length("batch_sampler", self.batch_sampler)
        count = len(self.graphs) if self.sampler is None else _length("sampler", self.sampler)
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)

    def __iter__(self) -> Iterator[Sample]:
        return prefetched(self._prepare, self._plans(), num_workers=int(self.prefetch > 0), ahead=self.prefetch)

    def _plans(self) -> Iterable[list[int]]:
        """Which graphs each batch of an epoch holds; a sampler is asked for them as they are needed."""
        if self.batch_sampler is not None:
            return (list(self._known(plan)) for plan in self.batch_sampler)
        order = self._known(self._order() if self.sampler is None else self.sampler)
        plans = self._divided(self._by_height(order) if self.by_height else order)
        if not (self.by_height and self.shuffle):
            return plans
        found = list(plans)
        return [found[i] for i in self._drawn(len(found))]

    def _order(self) -> Sequence[int]:
        count = len(self.graphs)
        return self._drawn(count) if self.shuffle else range(count)

    def _drawn(self, count: int) -> list[int]:
        return torch.randperm(count, generator=self.generator, device="cpu").tolist()

    def _divided(self, order: Iterable[int]) -> Iterator[list[int]]:
        for plan in _pieces(order, self.batch_size):
            if len(plan) == self.batch_size or not self.drop_last:
                yield plan

    def _known(self, numbers: Iterable[int]) -> Iterator[int]:
        """GraphError: a sampler names another thing than a graph."""
        count = len(self.graphs)
        for number in numbers:
            if not _NUMBER.accepts(number) or not -count <= number < count:
                fact = f"a sampler names graph {number!r}, where there are {count}"
                raise GraphError(fact, cure=f"give whole numbers from 0 to {count - 1}")
            yield int(number)

    def _by_height(self, order: Iterable[int]) -> Iterator[int]:
        for window in _pieces(order, WINDOW * self.batch_size):
            yield from sorted(window, key=self._height)

    def _height(self, index: int) -> int:
        return max(int(levels(g.topology).max(initial=-1)) for g in _graphs_of(self.graphs[index]))

    def _prepare(self, plan: list[int]) -> Sample:
        samples = [self.graphs[i] for i in plan]
        whole = collate(samples) if self.collate_fn is None else self.collate_fn(samples)
        for g in _graphs_of(whole) if self.collate_fn is None else graphs_in(whole):
            try:
                for is_reversed in _DIRECTIONS[self.direction]:
                    level_schedule(g.topology.reversed if is_reversed else g.topology)
            except CycleError:
                if self.direction is not None:
                    raise
        return cast("Sample", whole)


def _has_length(given: object) -> bool:
    return isinstance(given, Sized) and not isinstance(given, (str, bytes, Mapping)) and getattr(given, "ndim", 1) > 0


def _pieces(numbers: Iterable[int], size: int) -> Iterator[list[int]]:
    """So many at a time; the last may be fewer."""
    left = iter(numbers)
    while piece := list(islice(left, size)):
        yield piece


def _length(word: str, given: object) -> int:
    if not isinstance(given, Sized):
        fact = f"the {word} has no length, so the loader has none"
        raise FunctionError(fact, cure=f"give the {word} a method __len__, or count batches as they come")
    return len(given)


def _refuse_both(word: str, given: object, others: Mapping[str, object]) -> None:
    """FunctionError: one of the others is set beside what decides for it."""
    found = [name for name, value in others.items() if value]
    if given is not None and found:
        raise FunctionError(f"GraphLoader is given {word} and {found[0]}", cure="give one of them")


def _graphs_of(sample: object) -> list[Graph]:
    graphs = list(graphs_in(sample))
    if not graphs:
        fact = f"a sample of GraphLoader is a {type(sample).__name__} without a graph"
        raise FunctionError(fact, cure="give graphs, or tuples and mappings that have one")
    return graphs
