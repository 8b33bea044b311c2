"""Models that a command is told by name: a function of the user's own file or module, or a built-in one.

Takes: "file.py:function", "package.module:function" or a name. Gives: a model and its example inputs. Runs once.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn

from vgraph.errors import DataError, NameLookupError

Example = tuple[nn.Module, tuple[object, ...]]


class TwoBranches(nn.Module):
    """Two towers of three layers that meet in a scalar loss."""

    def __init__(self, width: int = 512) -> None:
        super().__init__()
        self.left, self.right = (
            nn.Sequential(*[layer for _ in range(3) for layer in (nn.Linear(width, width), nn.Tanh())])
            for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        return (self.left(x) + self.right(x)).square().mean()


def two_branches() -> Example:
    """The built-in model ``two-branches`` and a batch of 256."""
    return TwoBranches(), (torch.randn(256, 512),)


BUILT_IN: dict[str, Callable[[], Example]] = {"two-branches": two_branches}


def load_model(text: str) -> Example:
    """A model and its example inputs.

    Raises:
        NameLookupError: there is no such model, file or function.
        DataError: the function gives something else.

    >>> model, inputs = load_model("two-branches")
    >>> type(model).__name__
    'TwoBranches'
    """
    made = _function(text)()
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], nn.Module)):
        raise DataError(
            f"{text} gives a {type(made).__name__}", cure="return (model, example_inputs), as in: return net, (batch,)"
        )
    model, inputs = made
    return model, inputs if isinstance(inputs, tuple) else (inputs,)


def _function(text: str) -> Callable[..., object]:
    if text in BUILT_IN:
        return BUILT_IN[text]
    if ":" not in text:
        raise NameLookupError(
            f"there is no model {text!r}", cure=f"name file.py:function, or one of {', '.join(sorted(BUILT_IN))}"
        )
    return load_callable(text, "function", "name one that returns (model, example_inputs)")


def load_callable(text: str, what: str, cure: str) -> Callable[..., object]:
    """What "file.py:name" or "package.module:name" means.

    Raises:
        NameLookupError: there is no such file or module, or it has no such ``what``; then with this ``cure``.
    """
    place, _, name = text.rpartition(":")
    if not place:
        raise NameLookupError(f"{text!r} names no {what}", cure=f"name file.py:{what}, or package.module:{what}")
    module = _load_file(Path(place), what) if place.endswith(".py") else _load_module(place, what)
    found = getattr(module, name, None)
    if not callable(found):
        raise NameLookupError(f"{place} has no {what} {name!r}", cure=cure)
    return found


def _load_file(path: Path, what: str) -> ModuleType:
    if not path.is_file():
        raise NameLookupError(f"there is no file {path}", cure=f"name file.py:{what}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    sys.path.insert(0, str(path.parent))  # what it imports lies beside it
    spec.loader.exec_module(module)
    return module


def _load_module(name: str, what: str) -> ModuleType:
    sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise NameLookupError(f"{name} cannot be imported: {error}", cure=f"name file.py:{what}") from error
