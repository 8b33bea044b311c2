"""Seeding: the random numbers that decide about graphs, apart from those of a model.

Takes: a seed. Gives: a generator. Runs at every call.
"""

from __future__ import annotations

import torch

from vgraph.arguments import WHOLE, checked


class _Holder:
    generator: torch.Generator | None = None


@checked(val=WHOLE)
def seed(val: int) -> None:
    """Seeds what draws graphs (``rand_graph``, samplers); models draw from torch's own generator.

    Args:
        val: a whole number.

    Raises:
        ArgumentError: it is none.

    Source: DGL 1.1, ``dgl.seed``.

    Example:
        >>> import vgraph
        >>> vgraph.seed(1)
        >>> first = vgraph.rand_graph(10, 5).edges()[0]
        >>> vgraph.seed(1)
        >>> bool((vgraph.rand_graph(10, 5).edges()[0] == first).all())
        True
    """
    _Holder.generator = torch.Generator("cpu").manual_seed(int(val))


def generator() -> torch.Generator | None:
    """The seeded generator; None: torch's default one."""
    return _Holder.generator
