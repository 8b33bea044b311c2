"""Sizes of the examples on which functions are recorded.

Takes: which spaces a function has. Gives: a number of rows for each, twice. Runs once per function.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from math import isqrt

from vgraph.ir.space import EDGE, GRAPH, SLOT, SOURCE, VERTEX, Space

# Prime sizes: no size or product of one recording is a multiple of another's by the same factor. The second ones are
# about twice as large: their logarithms and roots, made whole, are other numbers, too.
SIZES: tuple[dict[Space, int], dict[Space, int]] = (
    {VERTEX: 29, EDGE: 37, SOURCE: 43, GRAPH: 53},
    {VERTEX: 67, EDGE: 79, SOURCE: 97, GRAPH: 113},
)  # above 25, where torch.cdist changes to another algorithm
SLOT_SIZES = (17, 37)
_WITH_MANY_SLOTS = (29, 31)
_OF_LONG_MAILBOXES = (
    (1024, (2, 3)),
    (128, (5, 7)),
    (32, _WITH_MANY_SLOTS),
)  # from which degree on how many vertices: what they hold is computed


def _primes_above(least: int) -> Iterator[int]:
    for number in count(least + 1):
        if all(number % factor for factor in range(2, isqrt(number) + 1)):
            yield number


def sizes_for(
    mailbox: bool | int, spaces: tuple[Space, ...] = (), *, one_vertex_set: bool = False
) -> tuple[dict[Space, int], dict[Space, int]]:
    """Both recordings' sizes; ``mailbox``: False none, True a slot dim, a number that degree.

    ``spaces``: further ones, subsets and types of vertices. ``one_vertex_set``: edges join vertices
    of one set, so rows of sources are rows of vertices.
    """
    both = (dict(SIZES[0]), dict(SIZES[1]))
    both[0][VERTEX], both[1][VERTEX] = _WITH_MANY_SLOTS if mailbox is True else _num_vertices(mailbox)
    if one_vertex_set:
        for sizes in both:
            sizes[SOURCE] = sizes[VERTEX]
    for sizes, num_slots in zip(both, SLOT_SIZES, strict=True):
        if mailbox is True:
            sizes[SLOT] = num_slots
            sizes[EDGE] = sizes[VERTEX] * num_slots
        elif mailbox is not False:
            sizes[EDGE] = sizes[VERTEX] * mailbox
    further = (_primes_above(max(sizes.values())) for sizes in SIZES)
    for space, *two in zip(spaces, *further, strict=False):
        both[0][space], both[1][space] = two
    return both


def _num_vertices(degree: int) -> tuple[int, int]:
    """Few where each has many in-edges, so that recording costs about as much as running once."""
    usual = (SIZES[0][VERTEX], SIZES[1][VERTEX])
    return next((few for least, few in _OF_LONG_MAILBOXES if degree >= least), usual)
