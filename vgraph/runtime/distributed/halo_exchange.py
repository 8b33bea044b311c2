"""Halo exchange: rows to the processes that read them, and what is to be added to them back; each other's transpose.

Takes: a Route, rows. Gives: rows. Runs at every exchange. Each is the other's backward, so there are derivatives of
any order. Source: DistDGL and SAR send halos; that the two are transposes is Cavs section 3.4 (gather and scatter).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

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


def arrived(transfer: Transfer, columns: Sequence[Tensor]) -> list[Tensor]:
    """Own rows, then those of others."""
    others = _unpacked(transfer.wait(), columns)
    return [torch.cat([own.detach(), rows]) for own, rows in zip(columns, others, strict=True)]


def fetch(route: Route, columns: Sequence[Tensor], what: str) -> list[Tensor]:
    """Those of others alone, without gradient."""
    return _unpacked(start_sending(route, columns, what).wait(), columns)


def add_back(route: Route, totals: Sequence[Tensor], rows: Sequence[Tensor], what: str) -> None:
    """Adds rows, by rank that has sent them, to what their owners have: the transpose of ``fetch``, in place."""
    transfer = _in_rounds(route, _packed([one.detach() for one in rows]), back=True, what=what)
    ids, received = route.ids_on(totals[0].device), _unpacked(transfer.wait(), totals)
    for total, come in zip(totals, received, strict=True):
        _add_by_rank(route, total, ids, come)


def _add_by_rank(route: Route, total: Tensor, ids: Tensor, rows: Tensor) -> None:
    """Always in the same order."""
    start = 0
    for count in route.sent:
        total.index_add_(0, ids[start : start + count], rows[start : start + count])
        start += count


def _folded(route: Route, columns: Sequence[Tensor], what: str) -> list[Tensor]:
    """Own rows, to which those that others have of them are added, rank by rank: always in the same order."""
    transfer = _in_rounds(route, _packed([c.detach()[route.num_own :] for c in columns]), back=True, what=what)
    ids, totals = route.ids_on(columns[0].device), list[Tensor]()
    received = _unpacked(transfer.wait(), columns)
    for column, rows in zip(columns, received, strict=True):
        totals.append(column.detach()[: route.num_own].clone())
        _add_by_rank(route, totals[-1], ids, rows)
    return totals


class _Spread(torch.autograd.Function):
    """Own rows -> rows of all sources."""

    @staticmethod
    def forward(ctx: Any, route: Route, what: str, *own: Tensor) -> Any:
        ctx.route, ctx.what = route, what
        full = arrived(start_sending(route, own, f"halo {what}"), own)
        ctx.mark_non_differentiable(*_without_grad(ctx, full))
        return tuple(full)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return None, None, *_transposed(_Fold, ctx, grads)


class _Fold(torch.autograd.Function):
    """Rows of all sources -> own rows, with what others add to them."""

    @staticmethod
    def forward(ctx: Any, route: Route, what: str, *full: Tensor) -> Any:
        ctx.route, ctx.what = route, what
        own = _folded(route, full, f"fold {what}")
        ctx.mark_non_differentiable(*_without_grad(ctx, own))
        return tuple(own)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return None, None, *_transposed(_Spread, ctx, grads)


def _without_grad(ctx: Any, made: Sequence[Tensor]) -> list[Tensor]:
    return [tensor for tensor, needs in zip(made, ctx.needs_input_grad[2:], strict=True) if not needs]


def _transposed(function: Any, ctx: Any, grads: Sequence[Tensor]) -> list[Tensor | None]:
    """One exchange of the gradients that are asked for."""
    wanted = [i for i, needs in enumerate(ctx.needs_input_grad[2:]) if needs]
    found = function.apply(ctx.route, ctx.what, *(grads[i] for i in wanted))
    by_place = dict(zip(wanted, found, strict=True))
    return [by_place.get(i) for i in range(len(grads))]


def spread(route: Route, columns: Sequence[Tensor], what: str) -> list[Tensor]:
    """Own rows of several columns, then those of others; differentiable."""
    return list(_Spread.apply(route, what, *columns))


def fold(route: Route, columns: Sequence[Tensor], what: str) -> list[Tensor]:
    """Own rows, each with what all ranks have of it added; differentiable."""
    return list(_Fold.apply(route, what, *columns))


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
