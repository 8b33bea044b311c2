"""How programs of DistDGL begin and end.

Takes: addresses of servers that there are not. Gives: nothing. Runs once per process.
"""

from __future__ import annotations

from typing import Any


def initialize(ip_config: Any = None, *args: Any, **options: Any) -> None:
    """Nothing: a program makes its process group next, and if it makes none, the first DistGraph does."""


def exit_client() -> None:
    """Nothing: there are no servers to leave."""
