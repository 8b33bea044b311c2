"""What loaders ask of their arguments beside numbers.

Takes: nothing. Gives: the bounds that stand above them. They are checked at every call, before a file is opened.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import cast

from vgraph.arguments import Bound, is_list_of


def _in_order(given: object) -> bool:
    """Whether these are words with an order: a word's place in the list is its number."""
    return is_list_of(given, str) and not isinstance(given, Set)


def _by_name(given: object) -> bool:
    return isinstance(given, Mapping) and all(map(_in_order, cast("Mapping[str, object]", given).values()))


TEXT = Bound("a text", lambda given: isinstance(given, str))
BYTES = Bound("bytes", lambda given: isinstance(given, (bytes, bytearray, memoryview)))
WORDS = Bound("a list of words, in order", _in_order)
WORDS_BY_NAME = Bound("lists of words by name", _by_name)
