"""Leaves: the arguments of a step as constants that can be looked up, and the Python numbers among them.

Takes: steps as keys. Gives: the same steps without their numbers, or with inputs in the places of some. Used when a
step was never seen. Source: docs/adr/0026-what-no-guard-can-watch.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from vgraph.capture.player import Leaf

Key = tuple[Any, ...]  # a step: its action, its arguments and keywords as leaves, the modes


def map_key(leaf: Any, change: Callable[[Leaf], Leaf]) -> Any:
    """The same nested leaves, each constant, number of rows and tensor from outside changed."""
    if not isinstance(leaf, tuple):
        return leaf
    return (
        change(leaf) if leaf and leaf[0] in ("const", "rows", "lifted") else tuple([map_key(i, change) for i in leaf])
    )


def _is_number(leaf: Leaf) -> bool:
    return leaf[0] == "const" and type(leaf[1]) in (int, float)


def _map_arguments(key: Key, change: Callable[[Leaf], Leaf]) -> Key:
    action, given, named, *modes = key
    return action, map_key(given, change), map_key(named, change), *modes


def numbers_of(key: Key) -> tuple[Key, tuple[float, ...]]:
    """A step without its numbers, and those."""
    values: list[float] = []

    def change(leaf: Leaf) -> Leaf:
        if not _is_number(leaf):
            return leaf
        values.append(leaf[1])
        return ("number", type(leaf[1]))

    return _map_arguments(key, change), tuple(values)


def with_leaves(key: Key, leaves: Mapping[int, Leaf]) -> Key:
    """A step with these leaves in the places of its numbers."""
    places = count()
    return _map_arguments(key, lambda leaf: leaves.get(next(places), leaf) if _is_number(leaf) else leaf)


def sized(tree: Any, which: int) -> Any:
    """Numbers of rows as they are on the first or the second examples."""
    return map_key(tree, lambda leaf: ("const", leaf[which], int) if leaf[0] == "rows" else leaf)
