"""What options of the command line take: numbers within bounds.

Takes: the bounds. Gives: converters for ``argparse``, which says what is outside. Runs once per option.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from vgraph.arguments import MOST


def at_least(least: int, most: int = MOST) -> Callable[[str], int]:
    """Whole numbers from ``least`` to ``most``."""

    def convert(text: str) -> int:
        if (value := int(text)) < least:
            raise argparse.ArgumentTypeError(f"{text} is below {least}")
        if value > most:
            raise argparse.ArgumentTypeError(f"{text} is above {most}")
        return value

    convert.__name__ = "whole number"
    return convert


def number_from(above: float | None = None, below: float = float("inf")) -> Callable[[str], float]:
    """From 0, or more than ``above``, to less than ``below``."""

    def convert(text: str) -> float:
        value = float(text)
        if not (0 <= value < below and (above is None or value > above)):
            least = "from 0" if above is None else f"above {above:g}"
            raise argparse.ArgumentTypeError(f"{text} is not {least} and below {below:g}")
        return value

    convert.__name__ = "number"
    return convert
