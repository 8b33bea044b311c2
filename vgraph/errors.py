"""Errors in three parts: fact, the user's own line, cure.

Takes: what went wrong. Gives: exceptions that also subclass the fitting built-in.
"""

from __future__ import annotations

from vgraph.user_line import user_line


class VGraphError(Exception):
    """Base of every error that vgraph raises on purpose.

    Args:
        fact: what is wrong, with the values that show it.
        cure: what to do about it; "": nothing is known.
        line: ``file:line`` of the user's program; None: the line that is running now, "": none.

    Source: none (fact, line and cure are this library's convention).

    Example:
        >>> print(VGraphError("edge 3 names vertex 9 of 5", cure="pass num_nodes=10", line="train.py:12"))
        edge 3 names vertex 9 of 5
          at train.py:12
          cure: pass num_nodes=10
    """

    def __init__(self, fact: str, *, cure: str = "", line: str | None = None) -> None:
        line = user_line() if line is None else line
        self.fact, self.cure, self.line = fact, cure, line
        parts = [fact]
        if line:
            parts.append(f"  at {line}")
        if cure:
            parts.append(f"  cure: {cure}")
        super().__init__("\n".join(parts))

    def __str__(self) -> str:
        return str(self.args[0])

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[VGraphError], args: tuple[object, ...], attributes: dict[str, object]) -> VGraphError:
    """An error that comes from another process: the line is where it was raised."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


class GraphError(VGraphError, ValueError):
    """A graph whose ids, counts or shape are wrong."""


class ArgumentError(VGraphError, ValueError):
    """A number that is outside of what a constructor or function takes."""


class CycleError(GraphError):
    """A cycle where a vertex function needs a DAG.

    Args:
        fact: what is wrong, with the values that show it.
        cycle: its vertices, in the order of its edges.
        cure: what to do about it; "": nothing is known.
        line: ``file:line`` of the user's program; None: the line that is running now, "": none.
    """

    def __init__(self, fact: str, *, cycle: list[int], cure: str = "", line: str | None = None) -> None:
        super().__init__(fact, cure=cure, line=line)
        self.cycle = cycle


class FeatureError(VGraphError, ValueError):
    """A feature with the wrong number of rows, device or shape."""


class ShapeError(FeatureError, RuntimeError):
    """Rows of a width that a layer, or the feature that they meet, does not take; torch's own is a RuntimeError."""


class DeviceError(VGraphError, RuntimeError):
    """A device that this machine does not have."""


class DTypeError(VGraphError, TypeError):
    """A tensor of a dtype that does not fit."""


class DimError(VGraphError, IndexError):
    """A dim that a tensor does not have, or that is named twice."""


class NameLookupError(VGraphError, KeyError):
    """A feature, state, message or type name that does not exist."""


class FunctionError(VGraphError, TypeError):
    """A user function that does not do what its programming model asks for."""


class StaleCaptureError(VGraphError, RuntimeError):
    """A capture that guards accepted, though its function is another one by now; see ``VGRAPH_CAPTURE=check``."""


class WorkerError(VGraphError, RuntimeError):
    """Workers that do not fit a plan, or one that was lost while others wait for it."""


class ServerError(VGraphError, RuntimeError):
    """A server that answers nobody any more; ``__cause__`` is what ended it."""


class ServerFullError(ServerError):
    """A server to which more graphs were submitted than may wait for their results."""


class KernelMemoryError(VGraphError, MemoryError):
    """A compiled loop for whose scratch the system has no memory left."""


class DescriptionError(VGraphError, ValueError):
    """A description of an operator that is not affine, or of one that is described already."""


class ModelError(VGraphError, ValueError):
    """A model that cannot be captured, or split as asked."""


class ChildIndexError(VGraphError, IndexError):
    """``gather(k)`` where a vertex has children, but fewer than k + 1."""


class DataError(VGraphError, ValueError):
    """A data file that is truncated or malformed; ``line`` is ``file:line``."""


class CheckpointError(VGraphError, ValueError):
    """A checkpoint that belongs to another model, or is damaged."""


class TrainingError(VGraphError, ArithmeticError):
    """A training whose loss, or the gradient of it, is no finite number."""


class PlacementError(VGraphError, ValueError):
    """Devices, a profile or an op graph that do not fit together."""


class DeviceMemoryError(VGraphError, MemoryError):
    """No placement that was found fits into the devices; says how many bytes are missing."""
