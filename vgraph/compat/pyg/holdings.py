"""What a layer holds besides tensors and attributes: a function that writes to it must run in every call.

Takes: a layer, before and after its functions have run. Gives: where something else lies now. Runs once per function,
while it is recorded.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import cast

from torch import nn

_CONTAINERS = (dict, OrderedDict, list, set, deque)
_Container = dict[object, object] | list[object] | set[object] | deque[object]
_PLAIN = (int, float, bool, str)
_MOST_ITEMS = 1000  # of one container: what holds more is data
_OF_TORCH = frozenset(vars(nn.Module()))  # parameters, buffers, modules and hooks, which capture itself looks at


class Holdings:
    """Lists, dicts, sets and deques of a layer and of modules within it, and numbers and strings of those modules.

    What they hold is kept meanwhile: the id of an object that is gone may be that of the next.
    """

    def __init__(self, layer: nn.Module) -> None:
        self._layer = layer
        self._held = dict(_held_by(layer))

    def first_written(self) -> str:
        """The place of one that holds something else now; "": there is none."""
        now = dict(_held_by(self._layer))
        places = (place for place in now if _told(now[place]) != _told(self._held.get(place)))
        return next(places, "")


def _told(held: list[object] | None) -> list[object] | None:
    return held and [(type(one), one) if type(one) in _PLAIN else id(one) for one in held]


def _held_by(layer: nn.Module) -> Iterator[tuple[str, list[object]]]:
    seen = set[int]()
    for module_name, module in layer.named_modules():
        for name, value in vars(module).items():
            place = f"{module_name}.{name}" if module_name else name
            if name in _OF_TORCH:
                continue
            if type(value) in _CONTAINERS:
                yield from _within(place, cast("_Container", value), seen)
            elif module is not layer and type(value) in _PLAIN:
                yield place, [value]


def _within(place: str, container: _Container, seen: set[int]) -> Iterator[tuple[str, list[object]]]:
    """What a container holds, and those within it, each where it is met first."""
    if id(container) in seen or len(container) > _MOST_ITEMS:
        return
    seen.add(id(container))
    values = list(container.values() if isinstance(container, dict) else container)
    yield place, [*container, *values] if isinstance(container, dict) else values
    for i, value in enumerate(values):
        if type(value) in _CONTAINERS:
            yield from _within(f"{place}[{i}]", cast("_Container", value), seen)
