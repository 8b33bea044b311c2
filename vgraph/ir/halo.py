"""Halo: rows of sources that other processes hold, as what passes messages on a part of a graph sees them.

Takes: own rows. Gives: own rows, then those of others at the tails of own edges. Runs at every exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


class Window(Protocol):
    """Some vertices of a Topology with all of their in-edges; rows of their sources are here when they are fetched."""

    @property
    def vertex_ids(self) -> Tensor:
        """Vertices, as the Topology counts them."""
        ...

    @property
    def edge_ids(self) -> Tensor:
        """Their in-edges."""
        ...

    @property
    def ends(self) -> tuple[Tensor, Tensor]:
        """Sources and destinations of those edges, counted anew."""
        ...

    @property
    def num_sources(self) -> int:
        """How many rows are fetched."""
        ...

    @property
    def original_ids(self) -> Mapping[str, Tensor]:
        """Of "vertex", "edge" and "src", in the whole."""
        ...

    def fetch(self, columns: Sequence[Tensor], what: str) -> list[Tensor]:
        """Rows of its sources. All processes call, also for a window of nothing."""
        ...

    def give_back(self, totals: Sequence[Tensor], rows: Sequence[Tensor], what: str) -> None:
        """Adds rows of its sources to own ``totals``, on whichever process owns them: the transpose of ``fetch``."""
        ...


@dataclass(frozen=True, eq=False)
class InEdges:
    """In-edges by destination: where each one's begin, sources, numbers of edges, original ids by kind."""

    ptr: Tensor
    src: Tensor
    edge_ids: Tensor
    original_ids: Mapping[str, Tensor]


class Halo(Protocol):
    """How a Topology that is one process's part of a larger one gets the rows of its sources.

    The first sources of such a Topology are the process's own, of which features have rows; the others are what
    ``rows`` appends. Whatever decides which functions run, and so which rows are exchanged, is known of the whole:
    all processes make the same exchanges in the same order.
    """

    @property
    def num_own(self) -> int:
        """Sources whose rows are here."""
        ...

    @property
    def num_edges(self) -> int:
        """Of the whole."""
        ...

    @property
    def has_lonely(self) -> bool:
        """Whether a vertex of the whole has no in-edge."""
        ...

    @property
    def degrees(self) -> tuple[int, ...]:
        """In-degrees of vertices of the whole, ascending, without 0."""
        ...

    @property
    def is_cut(self) -> bool:
        """Whether any process reads rows of another."""
        ...

    def here(self, columns: Mapping[str, Tensor]) -> frozenset[str]:
        """Names of columns of which others' rows are here, as they have come before. All processes ask."""
        ...

    def preferred(self, columns: Mapping[str, Tensor]) -> frozenset[str]:
        """Names of columns that are to come, as nothing else may, for they will be kept."""
        ...

    def rows(
        self, columns: Mapping[str, Tensor], here: Collection[str] | None = None, made: Collection[str] = ()
    ) -> dict[str, Tensor]:
        """Own rows and then others', by name, in one exchange; differentiable as often as one likes.

        ``here``: what the method of that name has said; None: it is asked. ``made``: names of what was made for this
        call, and is not kept.
        """
        ...

    def overlaps(self, columns: Mapping[str, Tensor], here: Collection[str], made: Collection[str]) -> bool:
        """Whether what is not here is to come by ``start``, while vertices that do not read it are computed."""
        ...

    def start(
        self, columns: Mapping[str, Tensor], here: Collection[str], own_ids: Tensor, source_ids: Tensor
    ) -> tuple[dict[str, Tensor], Callable[[], dict[str, Tensor]]]:
        """What is not here begins to come. Gives own rows; and what waits for rows of ``source_ids``, by name.

        ``own_ids``: own ones among those sources, which stand before those of others.
        """
        ...

    @property
    def room(self) -> int | None:
        """Bytes of others' rows that may be here at a time; None: all that messages read."""
        ...

    def windows(self, edges: InEdges, row_bytes: int) -> Sequence[Window]:
        """Windows of which none fetches more than there is room for; as many on every process. All call."""
        ...

    @property
    def num_readers(self) -> int:
        """How many relations that begin at these sources pass messages now, and share what has come."""
        ...

    def shared(self, num_readers: Mapping[str, int]) -> AbstractContextManager[None]:
        """Meanwhile a column comes once, whichever relations read it; ``num_readers`` by type of source."""
        ...

    def folded(self, rows: Tensor) -> Tensor:
        """Own rows, to which what others have of them is added: the transpose of ``rows``."""
        ...

    def reduced(self, rows: Tensor, reducer: str) -> Tensor:
        """``sum``, ``mean``, ``max`` or ``min`` of the rows of all processes, (1, ...); 0 of none."""
        ...

    def softmax(self, rows: Tensor) -> Tensor:
        """Own rows of the softmax over the rows of all processes."""
        ...

    def agreed(self, seed: Tensor) -> Tensor:
        """The seed of the first process."""
        ...


@dataclass(frozen=True)
class EdgesElsewhere:
    """Of a minibatch without edges of some type, where those of other processes may have some.

    What would be left out runs on no rows, so that every process's backward reaches the same parameters: those that
    average gradients wait for each of them.
    """

    num_own: int
    num_edges: int = 1
    has_lonely: bool = True
    degrees: tuple[int, ...] = (1,)
    is_cut: bool = False

    def here(self, columns: Mapping[str, Tensor]) -> frozenset[str]:
        """All of them."""
        return frozenset(columns)

    def preferred(self, columns: Mapping[str, Tensor]) -> frozenset[str]:
        """All of them."""
        return frozenset(columns)

    def rows(
        self, columns: Mapping[str, Tensor], here: Collection[str] | None = None, made: Collection[str] = ()
    ) -> dict[str, Tensor]:
        """The rows as they are: all are here."""
        return dict(columns)

    def overlaps(self, columns: Mapping[str, Tensor], here: Collection[str], made: Collection[str]) -> bool:
        """No: nothing comes."""
        return False

    def start(
        self, columns: Mapping[str, Tensor], here: Collection[str], own_ids: Tensor, source_ids: Tensor
    ) -> tuple[dict[str, Tensor], Callable[[], dict[str, Tensor]]]:
        """Nothing comes: all are here."""
        return dict(columns), lambda: {name: rows.index_select(0, source_ids) for name, rows in columns.items()}

    @property
    def room(self) -> int | None:
        """None: nothing comes."""
        return None

    def windows(self, edges: InEdges, row_bytes: int) -> Sequence[Window]:
        """None: nothing comes."""
        return ()

    @property
    def num_readers(self) -> int:
        """One: nothing comes."""
        return 1

    def shared(self, num_readers: Mapping[str, int]) -> AbstractContextManager[None]:
        """Nothing: nothing comes."""
        return nullcontext()

    def folded(self, rows: Tensor) -> Tensor:
        """The rows as they are."""
        return rows

    def reduced(self, rows: Tensor, reducer: str) -> Tensor:
        """``sum``, ``mean``, ``max`` or ``min`` of the rows, (1, ...): a minibatch is read out by itself."""
        if not len(rows):
            return rows.new_zeros(1, *rows.shape[1:])
        by_name = {"sum": rows.sum, "mean": rows.mean, "max": rows.amax, "min": rows.amin}
        return by_name[reducer](0, keepdim=True)

    def softmax(self, rows: Tensor) -> Tensor:
        """The softmax over the rows."""
        return rows.softmax(0)

    def agreed(self, seed: Tensor) -> Tensor:
        """This process's own seed: others have other rows."""
        return seed
