"""Halo exchange: rows to the processes that read them, and what is to be added to them back; each other's transpose.

Takes: a Route, rows. Gives: rows. Runs at every exchange. Each is the other's backward, so there are derivatives of
any order. Source: DistDGL and SAR send halos; that the two are transposes is Cavs section 3.4 (gather and scatter).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress, pairwise
from typing import Any, Protocol

import torch
from torch import Tensor

from vgraph.runtime.distributed import ranks as limits
from vgraph.runtime.distributed.ranks import Arriving, Ranks


@dataclass(frozen=True, eq=False)
class Route:
    """Which own rows go to which rank, and how many come from each.

    ``sent_ids``: own rows, by rank that reads them; ``received``: rows from every rank, which follow own ones in
    this order. ``most_rows``: the largest number that any rank sends or gets, which decides on rounds everywhere.
    """

    ranks: Ranks
    num_own: int
    sent_ids: Tensor
    sent: tuple[int, ...]
    received: tuple[int, ...]
    most_rows: int

    @property
    def num_rows(self) -> int:
        """Own rows and those that come."""
        return self.num_own + sum(self.received)

    @cached_property
    def _on_devices(self) -> dict[torch.device, Tensor]:
        return {self.sent_ids.device: self.sent_ids}

    def ids_on(self, device: torch.device) -> Tensor:
        """``sent_ids`` where rows lie."""
        if device not in self._on_devices:
            self._on_devices[device] = self.sent_ids.to(device)
        return self._on_devices[device]

    def rounds(self, row_bytes: int) -> int:
        """In how many pieces rows travel: an all-to-all counts bytes in 32 bits."""
        room = max(limits.MOST_BYTES - row_bytes * self.ranks.size, row_bytes)
        return max(1, -(-self.most_rows * row_bytes // room))


def make_route(ranks: Ranks, num_own: int, wanted: Sequence[Tensor]) -> Route:
    """The route by which this rank gets, from every rank, that rank's own rows ``wanted``; all ranks call."""
    counts = torch.tensor([len(ids) for ids in wanted], dtype=torch.int64, device="cpu")
    ones = [1] * ranks.size
    sent = ranks.all_to_all(counts, ones, ones, "halo sizes").tolist()
    received = counts.tolist()
    asked = torch.cat([ids.to(torch.int64) for ids in wanted])
    most = int(ranks.max(torch.tensor(max(sum(sent), sum(received)), device="cpu"), "halo limits"))
    ids = _in_rounds(Route(ranks, 0, asked, tuple(received), tuple(sent), most), asked.unsqueeze(1), back=False)
    return Route(ranks, num_own, ids.wait().reshape(-1), tuple(sent), tuple(received), most)


# ---------------------------------------------------------------- rows as bytes, one exchange for several columns
class Transfer:
    """Rows under way, in one round or several."""

    def __init__(self, arriving: list[Arriving], pieces: list[list[tuple[int, int]]], out: Tensor | None) -> None:
        self._arriving, self._pieces, self._out = arriving, pieces, out

    def wait(self) -> Tensor:
        """All rows that were sent here, by rank."""
        found = [one.wait() for one in self._arriving]
        if self._out is None:
            return found[0]
        for rows, pieces in zip(found, self._pieces, strict=True):
            start = 0
            for first, last in pieces:
                self._out[first:last] = rows[start : start + last - first]
                start += last - first
        return self._out


def _in_rounds(route: Route, packed: Tensor, *, back: bool, what: str = "halo ids") -> Transfer:
    """Starts an exchange of rows (n, width), by rank; ``back``: from those that read them to their owners."""
    counts, expected = (route.received, route.sent) if back else (route.sent, route.received)
    number = route.rounds(packed.element_size() * packed.shape[1])
    ranks = route.ranks
    if number == 1:
        out = packed.new_empty((sum(expected), packed.shape[1]))
        return Transfer([ranks.start_all_to_all(out, packed, counts, expected, what=what)], [], None)
    arriving: list[Arriving] = []
    placed: list[list[tuple[int, int]]] = []
    for index in range(number):
        mine, theirs = (_pieces(sizes, index, number) for sizes in (counts, expected))
        part = torch.cat([packed[first:last] for first, last in mine])
        sizes = [[last - first for first, last in pieces] for pieces in (mine, theirs)]
        room = packed.new_empty((sum(sizes[1]), packed.shape[1]))
        arriving.append(ranks.start_all_to_all(room, part, *sizes, what=f"{what} {index + 1}/{number}"))
        arriving[-1].wait()  # one at a time: their sum is what does not fit
        placed.append(theirs)
    return Transfer(arriving, placed, packed.new_empty((sum(expected), packed.shape[1])))


def _pieces(sizes: Sequence[int], index: int, number: int) -> list[tuple[int, int]]:
    """Which rows of every rank travel in one of several rounds, as first and last places."""
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + size)
    return [(a + (b - a) * index // number, a + (b - a) * (index + 1) // number) for a, b in pairwise(starts)]


def _packed(columns: Sequence[Tensor]) -> Tensor:
    """Rows of several columns side by side, (rows, bytes)."""
    parts = [_as_bytes(column) for column in columns]
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def _as_bytes(column: Tensor) -> Tensor:
    width = column.shape[1:].numel()
    return column.reshape(column.shape[0], width).contiguous().view(torch.uint8)


def _unpacked(rows: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    found: list[Tensor] = []
    start = 0
    for column in like:
        width = column.shape[1:].numel() * column.element_size()
        mine = rows if len(like) == 1 else rows[:, start : start + width].contiguous()
        found.append(mine.view(column.dtype).view(rows.shape[0], *column.shape[1:]))
        start += width
    return found


# ---------------------------------------------------------------- the two transposes
def start_sending(route: Route, columns: Sequence[Tensor], what: str) -> Transfer:
    """Starts to send rows to those that read them."""
    ids = route.ids_on(columns[0].device)
    return _in_rounds(route, _packed([c.detach().index_select(0, ids) for c in columns]), back=False, what=what)


def fetch(route: Route, columns: Sequence[Tensor], what: str) -> list[Tensor]:
    """Those of others alone, without gradient."""
    return _unpacked(start_sending(route, columns, what).wait(), columns)


def add_back(route: Route, totals: Sequence[Tensor], rows: Sequence[Tensor], what: str) -> None:
    """Adds rows, by rank that has sent them, to what their owners have: the transpose of ``fetch``, in place."""
    _add_by_rank(route, totals, start_returning(route, rows, what))


def start_returning(route: Route, rows: Sequence[Tensor], what: str) -> Transfer:
    """Starts to send rows back to those who own them."""
    return _in_rounds(route, _packed([one.detach() for one in rows]), back=True, what=what)


def _add_by_rank(route: Route, totals: Sequence[Tensor], transfer: Transfer) -> None:
    """Always in the same order."""
    ids, received = route.ids_on(totals[0].device), _unpacked(transfer.wait(), totals)
    for total, rows in zip(totals, received, strict=True):
        start = 0
        for count in route.sent:
            total.index_add_(0, ids[start : start + count], rows[start : start + count])
            start += count


@dataclass(eq=False)
class _Out:
    """Own rows on their way to those who read them. ``own_ids``: those that are read here, too; they come first."""

    route: Route
    what: str
    own_ids: Tensor | None
    answer: _Back | None = None  # the transpose, once it has started

    def start(self, own: Sequence[Tensor], needs: Sequence[bool]) -> None:
        """``needs``: which of them have a gradient."""
        self.needs, self._own = needs, [column.detach() for column in own]
        self._coming = start_sending(self.route, self._own, f"halo {self.what}")

    def finish(self) -> list[Tensor]:
        own, rows = self._own, _unpacked(self._coming.wait(), self._own)
        del self._own, self._coming
        if self.own_ids is None:
            return rows
        here = (column.index_select(0, self.own_ids) for column in own)
        return [torch.cat(pair) for pair in zip(here, rows, strict=True)]

    def without_grad(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return [one for one, need in zip(tensors, self.needs, strict=True) if not need]

    def turned(self) -> _Back:
        self.answer = _Back(self.route, self.what, self.own_ids)
        return self.answer


@dataclass(eq=False)
class _Back:
    """What was read, or what belongs to it, on its way to the owners."""

    route: Route
    what: str
    own_ids: Tensor | None
    answer: _Out | None = None

    def start(self, rows: Sequence[Tensor]) -> None:
        num_here = 0 if self.own_ids is None else len(self.own_ids)
        self._here = [one.detach()[:num_here] for one in rows]
        self._coming = start_returning(self.route, [one[num_here:] for one in rows], f"fold {self.what}")

    def finish(self, own: Sequence[Tensor]) -> list[Tensor]:
        """Own rows, to which what has come is added."""
        totals = [column.detach().clone(memory_format=torch.contiguous_format) for column in own]
        if self.own_ids is not None:
            for total, rows in zip(totals, self._here, strict=True):
                total.index_add_(0, self.own_ids, rows)
        _add_by_rank(self.route, totals, self._coming)
        del self._here, self._coming
        return totals

    def turned(self) -> _Out:
        self.answer = _Out(self.route, self.what, self.own_ids)
        return self.answer


# What autograd knows of an exchange that is under way is a ticket, a tensor without elements. The backward of what
# waits starts to send gradients; then that of what was computed meanwhile runs, as autograd takes the latest first.
class _Context(Protocol):
    needs_input_grad: Sequence[bool]

    def mark_non_differentiable(self, *tensors: Tensor) -> None: ...


class _OutContext(_Context, Protocol):
    trip: _Out


class _BackContext(_Context, Protocol):
    trip: _Back


Made = tuple[Tensor | None, ...]


class _Depart(torch.autograd.Function):
    """Own rows -> a ticket, own rows."""

    @staticmethod
    def forward(ctx: _OutContext, trip: _Out, *own: Tensor) -> Made:
        ctx.trip = trip
        trip.start(own, ctx.needs_input_grad[1:])
        aliases = [column.view_as(column) for column in own]
        ctx.mark_non_differentiable(*trip.without_grad(aliases))
        return torch.empty(0, device=own[0].device), *aliases

    @staticmethod
    def backward(ctx: _OutContext, *grads: Tensor) -> Made:
        trip, (ticket, *own) = ctx.trip, grads
        found = list(compress(own, trip.needs))
        if trip.answer is not None:
            found, trip.answer = list(_Collect.apply(trip.answer, ticket, *found)), None
        made = iter(found)
        return None, *(next(made) if need else None for need in trip.needs)


class _Arrive(torch.autograd.Function):
    """A ticket -> rows."""

    @staticmethod
    def forward(ctx: _OutContext, trip: _Out, ticket: Tensor) -> Made:
        ctx.trip, rows = trip, trip.finish()
        ctx.mark_non_differentiable(*trip.without_grad(rows))
        return tuple(rows)

    @staticmethod
    def backward(ctx: _OutContext, *grads: Tensor) -> Made:
        return None, _Return.apply(ctx.trip.turned(), *compress(grads, ctx.trip.needs))


class _Return(torch.autograd.Function):
    """Rows -> a ticket: the transpose of what arrives."""

    @staticmethod
    def forward(ctx: _BackContext, trip: _Back, *rows: Tensor) -> Tensor:
        ctx.trip = trip
        trip.start(rows)
        return torch.empty(0, device=rows[0].device)

    @staticmethod
    def backward(ctx: _BackContext, *grads: Tensor) -> Made:
        return None, *_Arrive.apply(ctx.trip.answer, *grads)


class _Collect(torch.autograd.Function):
    """A ticket, own rows -> own rows with what has come added: the transpose of what departs."""

    @staticmethod
    def forward(ctx: _BackContext, trip: _Back, ticket: Tensor, *own: Tensor) -> Made:
        ctx.trip = trip
        return tuple(trip.finish(own))

    @staticmethod
    def backward(ctx: _BackContext, *grads: Tensor) -> Made:
        if not ctx.needs_input_grad[1]:  # nothing of what has come has a gradient
            return None, None, *grads
        return None, *_Depart.apply(ctx.trip.turned(), *grads)


class Exchange:
    """Own rows that go to those that read them while the program goes on; differentiable as often as one likes.

    ``own``: own rows, for what reads no others; ``own_ids``: those for what does.
    """

    def __init__(self, route: Route, columns: Sequence[Tensor], what: str, own_ids: Tensor | None = None) -> None:
        self._trip = _Out(route, what, own_ids)
        self._ticket, *self.own = _Depart.apply(self._trip, *columns)

    def wait(self) -> list[Tensor]:
        """Rows ``own_ids`` of every column, then those of others."""
        return list(_Arrive.apply(self._trip, self._ticket))


def spread(route: Route, columns: Sequence[Tensor], what: str) -> list[Tensor]:
    """Own rows of several columns, then those of others; differentiable."""
    exchange = Exchange(route, columns, what)
    return [torch.cat(pair) for pair in zip(exchange.own, exchange.wait(), strict=True)]


def fold(route: Route, columns: Sequence[Tensor], what: str) -> list[Tensor]:
    """Own rows, each with what all ranks have of it added; differentiable."""
    own, others = zip(*(column.tensor_split([route.num_own]) for column in columns), strict=True)
    trip = _Back(route, what, None)
    return list(_Collect.apply(trip, _Return.apply(trip, *others), *own))


class _Total(torch.autograd.Function):
    """The sum over ranks, whose gradient is the sum over ranks of what each has of it."""

    @staticmethod
    def forward(ctx: Any, ranks: Ranks, what: str, tensor: Tensor) -> Tensor:
        ctx.ranks, ctx.what = ranks, what
        return ranks.sum(tensor, what)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return None, None, _Total.apply(ctx.ranks, ctx.what, grads[0])


def total(ranks: Ranks, tensor: Tensor, what: str) -> Tensor:
    """The sum over ranks; differentiable, its own transpose."""
    return _Total.apply(ranks, what, tensor)
