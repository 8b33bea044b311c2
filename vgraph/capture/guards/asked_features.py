"""Asked: what a function asked of features beside those that it read: names that were not there, or all of them.

Takes: a recording's questions. Gives: whether a later call would answer alike. Runs once per function, then every
call of those that asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass(eq=False)
class Asked:
    """Full names of features that were not there, and the names of each kind where they were listed."""

    absent: set[str] = field(default_factory=set[str])
    listed: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    def holds(self, find: Callable[[str], object], names: Callable[[str], Sequence[str]]) -> bool:
        """Whether the answers are the same for these features."""
        return all(find(name) is None for name in self.absent) and all(
            tuple(names(kind)) == known for kind, known in self.listed.items()
        )

    def __bool__(self) -> bool:
        return bool(self.absent or self.listed)
