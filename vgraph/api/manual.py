"""One text in one place: a method that is one call of a public function shows that function's docstring.

Takes: a function of a graph. Gives: a decorator of the method. Runs once, when the class is made.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import TypeVar

Method = TypeVar("Method", bound=Callable[..., object])


def manual_of(function: Callable[..., object]) -> Callable[[Method], Method]:
    """The method's docstring, one line that an editor shows, goes on with what the function's says below its own."""

    def attach(method: Method) -> Method:
        if method.__doc__ and function.__doc__:  # python -OO keeps neither
            method.__doc__ = f"{inspect.cleandoc(method.__doc__)}\n\n{_below_first_line(function, function.__doc__)}"
        return method

    return attach


def _below_first_line(function: Callable[..., object], text: str) -> str:
    """Without the entry of the first parameter, which is the graph."""
    _, _, below = inspect.cleandoc(text).partition("\n\n")
    graph = next(iter(inspect.signature(function).parameters))
    others = re.sub(rf"^    {graph}: .*\n(?:        .*\n)*", "", below, count=1, flags=re.MULTILINE)
    return others.replace("Args:\n\n", "", 1)
