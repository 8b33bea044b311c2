"""``dgl.multiprocessing``: torch's processes, whose functions run in a thread of their own, and tensors of all of them.

Takes: functions. Gives: processes, tensors. Runs once per process. A child that was forked while
threads of OpenMP ran would wait for them for ever, were it to start another loop of theirs in its main thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
import torch.multiprocessing
from torch import Tensor

from vgraph.compat.shared import shared_by_all

P = ParamSpec("P")
Result = TypeVar("Result")


def thread_wrapped_func(func: Callable[P, Result]) -> Callable[P, Result]:
    """The function, run in a new thread that is waited for; what it raises is raised."""

    @wraps(func)
    def run(*args: P.args, **kwargs: P.kwargs) -> Result:
        found: list[Result] = []
        raised: list[BaseException] = []

        def call() -> None:
            try:
                found.append(func(*args, **kwargs))
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        if raised:
            raise raised[0]
        return found[0]

    return run


class Process(torch.multiprocessing.Process):
    """A process whose target runs in a thread."""

    def run(self) -> None:
        """Calls the target; it is what ``start`` runs in the child."""
        thread_wrapped_func(super().run)()


def call_once_and_share(func: Callable[[], Tensor], shape: Sequence[int], dtype: torch.dtype, rank: int = 0) -> Tensor:
    """What a function gives in one process of the program's group, in memory that all its processes share."""

    def filled(rows: Tensor) -> Tensor:
        return rows.copy_(func())

    return shared_by_all("once", shape, dtype, filled, rank)


def shared_tensor(shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
    """Zeros that all processes of the program's group share."""
    return shared_by_all("tensor", shape, dtype, None)
