"""Leaves: the arguments of a step as constants that can be looked up, and the Python numbers among them.

Takes: steps as keys. Gives: the same steps without their numbers, or with inputs in the places of some. Used when a
step was never seen. Source: docs/adr/0026-what-no-guard-can-watch.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Leaf = tuple[Any, ...]


def map_key(leaf: Any, change: Callable[[Leaf], Any]) -> Any:
    """The same nested leaves, each constant, number of rows and tensor from outside changed."""
    if isinstance(leaf, tuple) and leaf and leaf[0] in ("const", "rows", "lifted"):
        return change(leaf)
    if isinstance(leaf, tuple):
        return tuple([map_key(item, change) for item in leaf])
    return leaf


def _is_number(leaf: Leaf) -> bool:
    return leaf[0] == "const" and type(leaf[1]) in (int, float)


def numbers_of(key: Any) -> tuple[Any, tuple[Any, ...]]:
    """A step without its numbers, and those."""
    values: list[Any] = []

    def change(leaf: Leaf) -> Any:
        if not _is_number(leaf):
            return leaf
        values.append(leaf[1])
        return ("number", type(leaf[1]))

    action, given, named, *modes = key
    return (action, map_key(given, change), map_key(named, change), *modes), tuple(values)


def with_leaves(key: Any, leaves: Mapping[int, Leaf]) -> Any:
    """A step with these leaves in the places of its numbers."""
    count = -1

    def change(leaf: Leaf) -> Any:
        nonlocal count
        if not _is_number(leaf):
            return leaf
        count += 1
        return leaves.get(count, leaf)

    action, given, named, *modes = key
    return (action, map_key(given, change), map_key(named, change), *modes)


def sized(tree: Any, which: int) -> Any:
    """Numbers of rows as they are on the first or the second examples."""
    return map_key(tree, lambda leaf: ("const", leaf[which], int) if leaf[0] == "rows" else leaf)
