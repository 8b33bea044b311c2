"""``dgl.random``: items drawn at random.

Takes: items. Gives: some of them. Runs at every call.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from vgraph.errors import FunctionError
from vgraph.graphs.seed import generator


def choice(a: Tensor | int, size: int | tuple[int, ...], replace: bool = True, prob: Tensor | None = None) -> Tensor:
    """Some of ``a``, or of the numbers below it, each as often as ``prob`` says; as ``numpy.random.choice``.

    Args:
        a: items (n,), or how many numbers.
        size: the shape of what is drawn.
        replace: whether an item is drawn again.
        prob: (n,); None: all alike.

    Raises:
        FunctionError: there are fewer items than are drawn, and none is drawn again.
    """
    items = torch.arange(a, device="cpu") if isinstance(a, int) else a
    shape = (size,) if isinstance(size, int) else size
    count, weights = math.prod(shape), torch.ones(len(items), device="cpu") if prob is None else prob
    if not replace and count > int((weights > 0).sum()):
        fact = f"{count} of {int((weights > 0).sum())} items are to be drawn, each once"
        raise FunctionError(fact, cure="draw fewer, or pass replace=True")
    if prob is None:
        drawn = torch.randint(len(items), (count,), generator=generator(), device="cpu") if replace else None
        places = torch.randperm(len(items), generator=generator(), device="cpu")[:count] if drawn is None else drawn
    else:
        places = torch.multinomial(weights, count, replace, generator=generator())
    return items[places.to(items.device)].reshape(shape)
