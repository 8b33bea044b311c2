"""Request queue: graphs on their way from whoever submits them to the thread of a server, and their answers back.

Takes: Requests from any thread. Gives: them to the server's thread, at most so many at once; and an error to everybody
who waits once nobody will answer any more: the thread has ended, the interpreter shuts down, or this is a forked child.
Runs once per graph.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import InvalidStateError
from dataclasses import dataclass
from weakref import WeakSet

from torch import Tensor

from vgraph.api.serving.requests import Request
from vgraph.errors import FunctionError, ServerError, ServerFullError

logger = logging.getLogger("vgraph")


@dataclass(frozen=True)
class Bound:
    """How many graphs may be on their way at once, and what a caller meets who submits one more."""

    most: int
    when_full: str  # "wait" or "raise"
    timeout: float | None  # seconds to wait for


class RequestQueue:
    """Graphs that were submitted and are not answered yet; bounded."""

    def __init__(self, bound: Bound) -> None:
        self.bound = bound
        self.changed = threading.Condition()  # what follows has
        self._arrived: dict[Request, None] = {}  # the server has not seen them
        self._unanswered: set[Request] = set()
        self._is_closed = False
        self._end: ServerError | None = None  # why nobody is answered any more
        self._server_thread = 0
        with _registry:
            _queues.add(self)

    # ------------------------------------------------------------ whoever submits
    def put(self, request: Request) -> None:
        """Hands a request over, once there is room.

        Raises:
            FunctionError: the server is closed.
            ServerError: nobody would answer.
            ServerFullError: there is no room, or there was none for as long as was asked for.
        """
        with self.changed:
            if self.bound.when_full == "wait" and threading.get_ident() != self._server_thread:
                self.changed.wait_for(self._has_room, self.bound.timeout)
            self._refuse()
            self._arrived[request] = None
            self._unanswered.add(request)
            self.changed.notify_all()
        request.future.add_done_callback(lambda _: self._leave(request))

    def check(self) -> None:
        """Raises what ``put`` would raise of a server that answers nobody any more."""
        if self._end is not None:
            raise ServerError(self._end.fact, cure=self._end.cure) from self._end.__cause__
        if self._is_closed:
            raise FunctionError("the server is closed", cure="submit inside the with")

    def _has_room(self) -> bool:
        return self._is_closed or len(self._unanswered) < self.bound.most

    def _refuse(self) -> None:
        self.check()
        if not self._has_room():
            raise ServerFullError(
                f"the server is full: {len(self._unanswered)} graphs wait for their results",
                cure="submit fewer at a time, later, or with serve(max_waiting=...)",
            )

    def _leave(self, request: Request) -> None:
        """Of one that is answered or cancelled; makes room."""
        with self.changed:
            was_waiting = request in self._arrived
            self._arrived.pop(request, None)
            self._unanswered.discard(request)
            self.changed.notify_all()
        if was_waiting and request.future.cancelled():
            request.future.set_running_or_notify_cancel()  # tells whoever waits for several futures

    # ------------------------------------------------------------ the server
    def take(self, *, wait: bool) -> list[Request] | None:
        """All that have arrived meanwhile; ``wait``: for one at least; None: no more will come."""
        with self.changed:
            self._server_thread = threading.get_ident()
            while wait and not self._arrived and not self._is_closed:
                self.changed.wait()
            if self._end is not None or (wait and not self._arrived):
                return None
            arrived = list(self._arrived)
            self._arrived.clear()
        return [request for request in arrived if request.future.set_running_or_notify_cancel()]

    def close(self) -> None:
        """Takes no more requests."""
        with self.changed:
            self._is_closed = True
            self.changed.notify_all()

    def end(self, error: ServerError) -> None:
        """Nobody will be answered any more: tells all who wait, and whoever comes later."""
        with self.changed:
            self._is_closed, self._end = True, self._end or error
            left = list(self._unanswered)
            self._arrived.clear()
            self.changed.notify_all()
        for request in left:
            tell(request, error)

    def abandon(self) -> None:
        """In a forked child, which has no thread that would answer; no callback of the parent's runs here."""
        self.changed = threading.Condition()
        fact = "the server's thread runs in the process that made it, and this one was forked from that"
        self._end = ServerError(fact, cure="serve in the process that submits")
        self._is_closed = True
        for request in self._unanswered:
            request.future.abandon(self._end)
        self._unanswered, self._arrived = set(), {}


# ---------------------------------------------------------------- answers
def ended(error: BaseException | None) -> ServerError:
    """What is told of a server whose thread has ended."""
    why = "" if error is None else f" with {type(error).__name__}: {error}".rstrip(": ")
    told = ServerError(f"the server's thread has ended{why}", cure="close this server and make a new one")
    told.__cause__ = error
    return told


def answer(request: Request, result: Mapping[str, Tensor]) -> None:
    """Gives a result to whoever waits for it."""
    _fulfil(request, lambda: request.future.set_result(dict(result)))


def tell(request: Request, error: BaseException) -> None:
    """Gives an error to whoever waits; what would end the caller's program, or its thread, is the cause of one."""
    if not isinstance(error, Exception):
        fact = f"the function that is served raised {type(error).__name__}: {error}".rstrip(": ")
        told = ServerError(fact, cure="raise an Exception, which reaches its own graph as it is")
        told.__cause__ = error
        error = told
    _fulfil(request, lambda: request.future.set_exception(error))


def _fulfil(request: Request, settle: Callable[[], None]) -> None:
    """Callbacks run here: what they raise is logged, and ends nothing."""
    try:
        settle()
    except InvalidStateError:  # cancelled or told otherwise meanwhile
        pass
    except BaseException:
        logger.exception("a callback of a served graph's Future raised")


# ---------------------------------------------------------------- forks
_queues: WeakSet[RequestQueue] = WeakSet()
_registry = threading.Lock()
_held: list[RequestQueue] = []


def _before_fork() -> None:
    """No other thread is inside of a queue while the process is copied."""
    _registry.acquire()
    _held.extend(_queues)
    for queue in _held:
        queue.changed.acquire()


def _in_parent() -> None:
    for queue in _held:
        queue.changed.release()
    _held.clear()
    _registry.release()


def _in_child() -> None:
    for queue in _held:
        queue.abandon()
    _held.clear()
    _registry.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)
