"""Signatures: how modules of a class are called, which the parameters of their ``forward`` tell.

Takes: classes of modules. Gives: words and truth values. Runs once per class; Dynamo takes what is given for constants
(traced_signatures.py).
"""

from __future__ import annotations

import inspect
from functools import lru_cache

from torch import nn

_NAMES_OF_GRAPHS = frozenset(("g", "bg", "hg", "sg", "mfg"))
_NAMES_OF_ROWS = frozenset("x h z feat feats features input inputs rows".split())
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def manner(kind: type[nn.Module], num_feats: int) -> str:
    """How modules of a class are called: with a "graph", with "rows" alone, as their only "child"; "": unknown."""
    return _found_manner(kind, num_feats)


@lru_cache(512)
def _found_manner(kind: type[nn.Module], num_feats: int) -> str:
    parameters = _parameters(kind)
    positional = [one for one in parameters if one.kind in _POSITIONAL]
    takes_any = any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in parameters)
    if takes_any and not positional:
        return "child"
    if kind.__module__.partition(".")[0] == "torch":
        return "rows"
    least = sum(one.default is inspect.Parameter.empty for one in positional)
    most = num_feats + 1 if takes_any else len(positional)
    fits = {"graph": least <= num_feats + 1 <= most, "rows": least <= num_feats <= most}
    if all(fits.values()):
        return _first_is(positional[0]) if positional else ""
    return next((manner for manner, does in fits.items() if does), "")


def _first_is(first: inspect.Parameter) -> str:
    """What a parameter's annotation or name says of it."""
    annotation, name = str(first.annotation), first.name.lower()
    if "Graph" in annotation or name in _NAMES_OF_GRAPHS or "graph" in name or "block" in name:
        return "graph"
    return "rows" if "Tensor" in annotation or name in _NAMES_OF_ROWS else ""


def has_then(kind: type[nn.Module]) -> bool:
    """Whether ``forward`` takes what ends its loop."""
    return any(one.name == "then" and one.kind is inspect.Parameter.KEYWORD_ONLY for one in _parameters(kind))


@lru_cache(512)
def _parameters(kind: type[nn.Module]) -> tuple[inspect.Parameter, ...]:
    """Those of ``forward``, without ``self``."""
    try:
        return tuple(inspect.signature(kind.forward).parameters.values())[1:]
    except (AttributeError, TypeError, ValueError):  # compiled code, which does not tell
        return ()
