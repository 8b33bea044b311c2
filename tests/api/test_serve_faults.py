"""Servers that are overrun, interrupted, forked, cut off: whoever waits is told, and nobody's tensors are read late."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, wait
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn

import vgraph
from tests.conftest import PROJECT
from tests.runtime.engine_models import chain
from vgraph.errors import (
    ArgumentError,
    DTypeError,
    FeatureError,
    FunctionError,
    ServerError,
    ServerFullError,
    VGraphError,
)

SECONDS = 240


class Longest(vgraph.VertexFunction):
    """The length of the path below."""

    def forward(self, v: vgraph.Vertex) -> None:
        depth = v.pull("x") + v.gather()["depth"].max()
        v.scatter(depth=depth)
        v.push(depth=depth)


class Told(BaseException):
    """What is no Exception."""


ERRORS = [MemoryError("no room"), SystemExit(3), KeyboardInterrupt(), Told("enough"), RecursionError("deep")]
by_type = [type(error).__name__ for error in ERRORS]


def submit(server: vgraph.Server, n: int = 3) -> Future[Any]:
    return server.submit(chain(n), x=torch.ones(n))


def lengths(future: Future[Any]) -> list[int]:
    return future.result(SECONDS)["depth"].int().tolist()


@contextmanager
def held(server: Any, first: Callable[[], object] | None = None) -> Iterator[None]:
    """Keeps the server at its first graph while the block lasts: what is submitted there waits."""
    gate, entered, turn = threading.Event(), threading.Event(), server._turn

    def held_turn(joining: Any) -> None:
        entered.set()
        assert gate.wait(SECONDS)
        turn(joining)

    server._turn = held_turn
    (first or (lambda: submit(server)))()
    assert entered.wait(SECONDS)
    try:
        yield
    finally:
        server._turn = turn
        gate.set()


# ------------------------------------------------------------------ errors


@pytest.mark.guards
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("whole", [0, 128])
@pytest.mark.parametrize("error", ERRORS, ids=by_type)
@pytest.mark.parametrize("step", ["_admit", "_make_room", "_alike", "_next", "_evaluate", "_run_whole", "_leave"])
def test_whatever_fails_in_the_server_is_told(
    step: str, error: BaseException, whole: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of its methods raises what: nobody waits for ever, and the server ends or goes on."""
    server, called = vgraph.serve(Longest(), whole=whole), threading.Event()
    not_for_this_depth = step in (("_make_room", "_evaluate") if whole else ("_run_whole",))

    def fail(*_: Any) -> Any:
        called.set()
        raise error

    monkeypatch.setattr(server, step, fail)
    futures = []
    for n in (3, 5):
        try:
            futures.append(submit(server, n))
        except ServerError as refused:  # it has ended already
            assert type(error).__name__ in str(refused) and refused.__cause__ is error
    assert len(wait(futures, SECONDS).not_done) == 0
    if not_for_this_depth:
        assert not called.is_set()
    else:  # results of what runs whole may be there before the step that follows it
        assert called.wait(SECONDS)
    for told in (future.exception() for future in futures):
        if told is not None and told is not error:
            assert isinstance(told, ServerError) and told.__cause__ is error and type(error).__name__ in str(told)
    monkeypatch.undo()
    if isinstance(error, Exception):
        assert lengths(submit(server)) == [1, 2, 3]
    server.close()
    with pytest.raises(VGraphError, match=r"closed|has ended"):
        submit(server)


@pytest.mark.parametrize("error", ERRORS, ids=by_type)
def test_whatever_the_function_raises_reaches_its_graph_alone(error: BaseException) -> None:
    class Picky(vgraph.VertexFunction):
        def forward(self, v: vgraph.Vertex) -> None:
            h = v.pull("x") + v.gather()["h"].sum()
            if bool((h < 0).any()):  # known at run time alone: one vertex at a time
                raise error
            v.scatter(h=h)
            v.push(h=h)

    with vgraph.serve(Picky()) as server:
        with held(server, lambda: server.submit(chain(3), x=torch.ones(3))):
            futures = [server.submit(chain(3), x=x) for x in (torch.ones(3), -torch.ones(3), torch.ones(3))]
        assert [future.exception(SECONDS) is None for future in futures] == [True, False, True]
        told = futures[1].exception()
        assert isinstance(told, Exception)  # it ends nobody's program
        assert told is error or (isinstance(told, VGraphError) and error in (told.__cause__, told.__context__))
        assert server.submit(chain(2), x=torch.ones(2)).result(SECONDS)["h"].tolist() == [1, 2]


@pytest.mark.parametrize("error", ERRORS, ids=by_type)
def test_a_callback_that_raises(error: BaseException) -> None:
    def fail(_: object) -> None:
        raise error

    with vgraph.serve(Longest()) as server:
        with held(server):
            future = submit(server)
            future.add_done_callback(fail)
        assert lengths(future) == [1, 2, 3]
        assert lengths(submit(server)) == [1, 2, 3]


def test_a_callback_that_closes() -> None:
    server, done = vgraph.serve(Longest()), threading.Event()
    with held(server):
        first, last = submit(server), submit(server)
        first.add_done_callback(lambda _: (server.close(), done.set()))
    assert done.wait(SECONDS) and lengths(last) == [1, 2, 3]
    server.close()


# ------------------------------------------------------------------ too many


def test_one_graph_too_many_is_refused() -> None:
    with vgraph.serve(Longest(), max_waiting=3, when_full="raise") as server:
        with held(server):
            futures = [submit(server), submit(server)]
            with pytest.raises(ServerFullError, match="3 graphs wait for their results") as told:
                submit(server)
            assert told.value.line is not None and __file__ in told.value.line
            assert futures[0].cancel()  # its place is free at once
            futures.append(submit(server))
        with pytest.raises(CancelledError):
            futures[0].result(SECONDS)
        assert [lengths(future) for future in futures[1:]] == [[1, 2, 3]] * 2
        assert lengths(submit(server)) == [1, 2, 3]


def test_one_graph_too_many_waits() -> None:
    with vgraph.serve(Longest(), max_waiting=1) as server:
        late = list[Future[Any]]()
        with held(server):
            thread = threading.Thread(target=lambda: late.append(submit(server, 5)))
            thread.start()
            assert thread.is_alive() and not late
        thread.join(SECONDS)
        assert lengths(late[0]) == [1, 2, 3, 4, 5]


def test_one_graph_too_many_waits_no_longer_than_asked_for() -> None:
    with vgraph.serve(Longest(), max_waiting=1, timeout=0.01) as server:
        first = list[Future[Any]]()
        with held(server, lambda: first.append(submit(server))), pytest.raises(ServerFullError, match="1 graphs wait"):
            submit(server)
        assert lengths(first[0]) == lengths(submit(server)) == [1, 2, 3]


def test_deep_graphs_count_until_they_are_done() -> None:
    """What runs a frontier at a time has left the queue, and takes memory all the same."""
    with vgraph.serve(Longest(), whole=0, max_waiting=3, when_full="raise") as server:
        futures = list[Future[Any]]()
        with pytest.raises(ServerFullError):
            for _ in range(100):
                futures.append(submit(server, 300))
        assert all(lengths(future)[-1] == 300 for future in futures)


def test_who_waits_for_room_is_told_of_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    server, told = vgraph.serve(Longest(), max_waiting=1), list[BaseException]()
    with held(server):

        def late() -> None:
            try:
                submit(server)
            except VGraphError as error:
                told.append(error)

        thread = threading.Thread(target=late)
        thread.start()
        closing = threading.Thread(target=server.close)
        closing.start()
        thread.join(SECONDS)
    closing.join(SECONDS)
    assert len(told) == 1 and "the server is closed" in str(told[0])


def test_the_servers_own_thread_never_waits_for_itself() -> None:
    told, over = list[BaseException](), threading.Event()

    def again(_: object) -> None:
        try:
            submit(server), submit(server), submit(server)
        except ServerFullError as error:
            told.append(error)
        finally:
            over.set()

    with vgraph.serve(Longest(), max_waiting=2) as server:
        with held(server):
            submit(server).add_done_callback(again)
        assert over.wait(SECONDS)
    assert len(told) == 1


def test_cancelled_graphs_are_told_to_who_waits_for_several() -> None:
    with vgraph.serve(Longest()) as server, held(server):
        futures = [submit(server) for _ in range(3)]
        assert all(future.cancel() for future in futures)
        assert not wait(futures, SECONDS).not_done


# ------------------------------------------------------------------ tensors that change, bad submissions


class Plain(vgraph.VertexFunction):
    def forward(self, v: vgraph.Vertex) -> None:
        s = v.pull("x") + (v.gather()["s"] * v.pull_edge("w")).sum() + v.pull_graph("bias")
        v.scatter(s=s)
        v.push(s=s)


class Uncaptured(Plain):
    def forward(self, v: vgraph.Vertex) -> None:
        if bool((v.pull("x") > -1e9).all()):
            super().forward(v)


@pytest.mark.parametrize("whole", [0, 128])
@pytest.mark.parametrize("kind", [Plain, Uncaptured])
@pytest.mark.parametrize("place", ["keywords", "frames", "at"])
def test_what_is_changed_after_submit_is_not_read(whole: int, kind: Any, place: str) -> None:
    model = kind()
    with vgraph.serve(model, whole=whole) as server:
        g, x, w, bias = chain(4), torch.rand(4, 1), torch.rand(3, 1), torch.rand(1, 1)
        ids = torch.tensor([2, 0])
        given = {"x": x, "w": w, "bias": bias}
        if place == "frames":
            g.ndata["x"], g.edata["w"], g.gdata["bias"] = x, w, bias
            given = {}
        elif place == "at":
            given["x"] = vgraph.at(x[:2], ids)
        wanted = model(g, **given)["s"].clone()
        futures = list[Future[Any]]()
        with held(server, lambda: futures.append(server.submit(g, **given))):
            futures += [server.submit(g, **given) for _ in range(3)]
            for tensor in (x, w, bias):
                tensor.fill_(100)
            ids.copy_(torch.tensor([1, 3]))
            g.ndata["x"] = torch.zeros(4, 1)
            g.add_edges([0], [3])
        for future in futures:
            torch.testing.assert_close(future.result(SECONDS)["s"], wanted)


def test_features_of_a_wrong_width_are_refused_at_submit() -> None:
    class Linear(vgraph.VertexFunction):
        def __init__(self) -> None:
            super().__init__()
            self.W = nn.Linear(3, 2)

        def forward(self, v: vgraph.Vertex) -> None:
            h = torch.tanh(self.W(v.pull("x")) + v.gather()["h"].sum())
            v.scatter(h=h)
            v.push(h=h)

    with vgraph.serve(Linear()) as server:
        future = server.submit(chain(3), x=torch.ones(3, 3))
        for wrong in (torch.ones(3, 4), torch.ones(3, 3, dtype=torch.float64), torch.ones(3)):
            with pytest.raises((RuntimeError, DTypeError)):
                server.submit(chain(3), x=wrong)
        for rows in (torch.ones(2, 3), [[1.0] * 3] * 3, torch.ones(())):
            with pytest.raises(FeatureError) as told:
                server.submit(chain(3), x=rows)
            assert told.value.line is not None and __file__ in told.value.line
        assert future.result(SECONDS)["h"].shape == (3, 2)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.uint8, torch.int64])
@pytest.mark.parametrize("whole", [0, 128])
def test_ids_of_any_width(dtype: torch.dtype, whole: int) -> None:
    rows, ids = torch.rand(2, 1), torch.tensor([0, 2])
    with vgraph.serve(Longest(), whole=whole) as server:
        found = [server.submit(chain(3), x=vgraph.at(rows, i)).result(SECONDS) for i in (ids, ids.to(dtype))]
        assert torch.equal(found[0]["depth"], found[1]["depth"])
    called = [Longest()(chain(3), x=vgraph.at(rows, i))["depth"] for i in (ids, ids.to(dtype))]
    assert torch.equal(called[0], called[1])
    assert torch.equal(vgraph.rows_at(called[0], ids.to(dtype)), called[0][ids])


@pytest.mark.parametrize(
    "given",
    [{"max_waiting": 0}, {"max_waiting": 1.5}, {"most_vertices": 0}, {"most_vertices": True}, {"whole": "1"},
     {"whole": -1}, {"timeout": -1}, {"timeout": "3"}],
    ids=str,
)  # fmt: skip
def test_numbers_that_mean_nothing(given: dict[str, Any]) -> None:
    ((name, number),) = given.items()
    with pytest.raises(ArgumentError, match=rf"serve\({name}={number!r}\)"):
        vgraph.serve(Longest(), **given)
    with pytest.raises(FunctionError, match="says not what to do"):
        vgraph.serve(Longest(), when_full="drop")


def test_whoever_waits_for_ever_may_say_so_in_seconds() -> None:
    with vgraph.serve(Longest(), max_waiting=1, timeout=float("inf")) as server:
        futures = [server.submit(chain(3), x=torch.ones(3, 1)) for _ in range(3)]
        assert all(future.result(SECONDS)["depth"].shape == (3, 1) for future in futures)


@pytest.mark.parametrize("function", [Longest, nn.Linear(2, 2), lambda v: None])
def test_what_is_no_vertex_function(function: Any) -> None:
    with pytest.raises(FunctionError, match="which is no vertex function"):
        vgraph.serve(function)


# ------------------------------------------------------------------ processes


def run(program: str) -> str:
    search = os.pathsep.join([str(PROJECT), str(PROJECT / "kernels")])
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=SECONDS, check=False,
        env={**os.environ, "PYTHONPATH": search},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_is_told() -> None:
    server = vgraph.serve(Longest())
    checks: list[Callable[[], object]] = []
    with held(server):
        future, called = submit(server), list[int]()
        future.add_done_callback(lambda _: called.append(os.getpid()))
        checks += [lambda: future.result(SECONDS), lambda: submit(server)]
        child = os.fork()
        if not child:
            told = 0
            for check in checks:
                try:
                    check()
                except ServerError as error:
                    told += "forked" in str(error)
            server.close()
            os._exit(0 if told == 2 and not called else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert lengths(future) == [1, 2, 3] and lengths(submit(server)) == [1, 2, 3]
    server.close()
    assert called == [os.getpid()]


def test_an_interpreter_that_shuts_down() -> None:
    """The server is never closed: the run under way ends, all others are told, and the process ends well."""
    said = run(
        "import time, torch, vgraph\n"
        "class Sum(vgraph.VertexFunction):\n"
        "    def forward(self, v):\n"
        "        s = v.pull('x') + v.gather()['s'].sum()\n"
        "        v.scatter(s=s)\n"
        "        v.push(s=s)\n"
        "server = vgraph.serve(Sum())\n"
        "turn = server._turn\n"
        "server._turn = lambda joining: (time.sleep(1), turn(joining))\n"
        "chain = vgraph.graph((torch.arange(2), torch.arange(1, 3)))\n"
        "futures = [server.submit(chain, x=torch.ones(3, 1)) for _ in range(20)]\n"
        "futures[-1].add_done_callback(lambda f: print(f.exception()))\n"
    )
    assert "the interpreter shut down before the server was closed" in said
