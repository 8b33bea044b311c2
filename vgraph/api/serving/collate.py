"""Minibatches of samples: graphs are batched, all that stands beside them is stacked.

Takes: a list of samples. Gives: one sample of the same members. Runs at every step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Sized
from typing import Any, cast

import torch.utils.data

from vgraph.api.graph import Graph
from vgraph.arguments import Bound, checked
from vgraph.errors import FunctionError
from vgraph.graphs.batching import batch

_SAMPLES = Bound("a list of samples", lambda given: isinstance(given, (list, tuple)), FunctionError)


@checked(samples=_SAMPLES)
def collate(samples: list[Any]) -> Any:
    """One minibatch of several samples: graphs are batched, all else is stacked as torch's loader does.

    Args:
        samples: graphs, numbers, tensors of one shape, or tuples, lists and mappings of these, all of one form.

    Returns:
        A batched graph; a tensor with one row a sample; or a list, dict or named tuple of these, member by member.

    Raises:
        FunctionError: there are no samples, they differ in form, or members of them do not stack.
        GraphError: graphs differ in device, dtype of ids or types.
        FeatureError: a feature is missing in some of them, or differs in dtype or shape.

    Source: torch, ``torch.utils.data.default_collate``.

    Example:
        >>> import torch, vgraph
        >>> samples = [(vgraph.graph(([0, 1], [2, 2])), label) for label in (1, 0, 1)]
        >>> loader = torch.utils.data.DataLoader(samples, batch_size=2, collate_fn=vgraph.collate)
        >>> [(g.batch_size, labels.tolist()) for g, labels in loader]
        [(2, [1, 0]), (1, [1])]
    """
    if not samples:
        raise FunctionError("there are no samples", cure="give one or more")
    first = samples[0]
    if isinstance(first, Graph):
        return batch(samples)
    if isinstance(first, Mapping):
        _check_form(samples, f"with {list(first)}")
        return {key: collate([sample[key] for sample in samples]) for key in first}
    if isinstance(first, (tuple, list)):
        _check_form(samples, f"of {len(first)} members")
        members = [collate(list(parts)) for parts in zip(*samples, strict=True)]
        return type(first)(*members) if isinstance(first, tuple) and hasattr(first, "_fields") else members
    try:
        return torch.utils.data.default_collate(samples)
    except (TypeError, RuntimeError, ValueError) as error:
        why = str(error).partition("\n")[0]
        fact = f"{len(samples)} samples, of which the first has a {type(first).__name__} here, do not stack: {why}"
        raise FunctionError(
            fact, cure="give numbers, or tensors of one shape and dtype; or stack them yourself"
        ) from error


def _check_form(samples: Sequence[object], words: str) -> None:
    """FunctionError: a sample has other members than the first."""
    for index, sample in enumerate(samples):
        if not _has_members_of(sample, samples[0]):
            first, other = type(samples[0]).__name__, type(sample).__name__
            fact = f"sample 0 is a {first} {words}; sample {index} is another: a {other}"
            raise FunctionError(fact, cure="give samples of one form")


def _has_members_of(sample: object, first: object) -> bool:
    if isinstance(first, Mapping):
        return isinstance(sample, Mapping) and all(key in sample for key in cast("Mapping[object, object]", first))
    return isinstance(sample, (tuple, list)) and isinstance(first, Sized) and len(cast("Sized", sample)) == len(first)


def graphs_in(sample: object) -> Iterator[Graph]:
    """The graphs of a sample or of a minibatch, in the order of its members."""
    if isinstance(sample, Graph):
        yield sample
    elif isinstance(sample, (tuple, list, Mapping)):
        for member in sample.values() if isinstance(sample, Mapping) else sample:
            yield from graphs_in(member)
