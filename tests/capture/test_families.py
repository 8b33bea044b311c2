"""Families: which functions are alike, which of their numbers become inputs, and when recording ends."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import vgraph
import vgraph.function as fn
from vgraph.capture.capture import num_captures
from vgraph.capture.capture_cache import Family, function_key, name_of

X = torch.arange(6.0, dtype=torch.float64).view(3, 2) / 4


def _graph() -> vgraph.Graph:
    g = vgraph.graph(([0, 1, 1], [1, 2, 2]))
    g.ndata["h"] = X
    return g


def _source(edges: Any) -> dict[str, Tensor]:
    return {"m": edges.src["h"]}


@pytest.mark.guards
def test_a_number_that_both_functions_close_over_becomes_an_input() -> None:
    g, counts = _graph(), list[int]()

    def update(rate: float) -> None:
        g.update_all(lambda e: {"m": e.src["h"] * rate}, lambda v: {"o": v.mailbox["m"].sum(1) + rate})

    for step in range(8):
        rate = 0.5**step
        update(rate)
        wanted = torch.stack([X[0] * 0, X[0] * rate + rate, 2 * X[1] * rate + rate])
        torch.testing.assert_close(g.ndata["o"], wanted, rtol=0, atol=1e-12)
        counts.append(num_captures())
    assert counts[3] == counts[-1]


def test_numbers_of_two_variables_are_told_apart_again() -> None:
    """Two paths that led to one variable lead to two: the recording of one input must not serve."""
    g = _graph()

    def message(own: float) -> Any:
        return lambda e: {"m": e.src["h"] * own}

    def reduce(own: float) -> Any:
        return lambda v: {"o": v.mailbox["m"].sum(1) + own}

    def update(own: float) -> None:
        g.update_all(lambda e: {"m": e.src["h"] * own}, lambda v: {"o": v.mailbox["m"].sum(1) + own})

    for step in range(5):
        update(0.5 + step)
        g.update_all(message(0.5 + step), reduce(7.0 * step))
        torch.testing.assert_close(g.ndata["o"][1], X[0] * (0.5 + step) + 7.0 * step)


@pytest.mark.guards
@pytest.mark.parametrize(
    ("compute", "numbers"),
    [
        (lambda h, number: h.long() * number, (0.5, 1.5, 2.5, 3.5)),
        (lambda h, number: (h > 0.5) * number, (0.5, 1.5, 2.5, 3.5)),
        (lambda h, number: torch.where(h > 0.5, number, 0.0), (0.5, 1.5, 2.5, 3.5)),
        (lambda h, number: h * 2**-number, (1, 2, 3, 4)),
        (lambda h, number: h * (number * 0.1), (1, 2, 3, 4)),
        (lambda h, number: h.float() * number, (0.1, 0.2, 0.3, 0.4)),
    ],
    ids=["whole rows", "truth values", "a choice", "a power", "a quotient", "short rows"],
)
def test_what_moving_numbers_give_has_their_dtype_and_digits(compute: Any, numbers: tuple[float, ...]) -> None:
    """As an input a number is a tensor of float64 or int64, which gives other results in some places."""
    g = _graph()
    for number in numbers:
        g.apply_edges(lambda e: {"m": compute(e.src["h"], number)})  # noqa: B023
        wanted = compute(X[g.edges()[0]], number)
        assert g.edata["m"].dtype == wanted.dtype and torch.equal(g.edata["m"], wanted)


class _Schedule:
    """A model's numbers: one that is only computed with, one that a branch needs."""

    def __init__(self) -> None:
        self.step, self.rate = 0, 1.0

    def message(self, edges: Any) -> dict[str, Tensor]:
        return {"m": edges.src["h"] * self.rate * min(self.step, 3)}


def test_one_number_that_must_stay_a_number_leaves_the_others_inputs(caplog: pytest.LogCaptureFixture) -> None:
    g, own, counts = _graph(), _Schedule(), list[int]()
    with caplog.at_level(logging.INFO, "vgraph"):
        for step in range(30):
            own.step, own.rate = min(step, 6), 1 + 0.1 * step
            g.update_all(own.message, fn.sum("m", "o"))
            torch.testing.assert_close(g.ndata["o"][1], X[0] * own.rate * min(own.step, 3))
            counts.append(num_captures())
    assert counts[-1] == counts[8] and not caplog.records


@pytest.mark.guards
def test_a_function_whose_number_never_rests_is_no_longer_recorded(caplog: pytest.LogCaptureFixture) -> None:
    g, own, counts = _graph(), _Schedule(), list[int]()
    with caplog.at_level(logging.INFO, "vgraph"):
        for step in range(40):
            own.step = step
            g.update_all(own.message, fn.sum("m", "o"))
            torch.testing.assert_close(g.ndata["o"][1], X[0] * min(step, 3))
            counts.append(num_captures())
    assert counts[-1] == counts[25]
    (said,) = (r.getMessage() for r in caplog.records)
    assert "the number 'step' changes from call to call" in said


class _Powers:
    """Raises rows to the power that its class has; who asks for types must be given numbers."""

    power = 1

    def of(self, x: torch.Tensor) -> torch.Tensor:
        return x ** min(self.power, 8) if isinstance(self.power, int) else x


class _Raised:
    def __init__(self, power: int) -> None:
        self.powers = type("Powers", (_Powers,), {"power": power})()

    def message(self, edges: Any) -> dict[str, torch.Tensor]:
        return {"m": self.powers.of(edges.src["h"])}


def test_numbers_of_different_classes_are_different_numbers(caplog: pytest.LogCaptureFixture) -> None:
    g = _graph()
    with caplog.at_level(logging.INFO, "vgraph"):
        for power in range(30):
            g.update_all(_Raised(power).message, fn.sum("m", "o"))
            torch.testing.assert_close(g.ndata["o"][1], X[0] ** min(power, 8))
    assert not caplog.records


def test_a_vertex_function_is_recorded_rather_than_run_vertex_by_vertex(caplog: pytest.LogCaptureFixture) -> None:
    class Clipped(vgraph.VertexFunction):
        step = 0

        def forward(self, v: vgraph.Vertex) -> None:
            h = v.pull("x") * min(self.step, 3) + v.gather()["h"].sum()
            v.scatter(h=h)
            v.push(h=h)

    model, g = Clipped(), _graph()
    with caplog.at_level(logging.INFO, "vgraph"):
        for step in range(20):
            model.step = step
            torch.testing.assert_close(model(g, x=X)["h"][0], X[0] * min(step, 3))
    assert not caplog.records


# ---------------------------------------------------------------- which functions are alike
def _decorated(reduce: Callable[[Tensor], Tensor]) -> Callable[[Any], dict[str, Tensor]]:
    @functools.wraps(reduce)
    def wrapper(nodes: Any) -> dict[str, Tensor]:
        return {"o": reduce(nodes.mailbox["m"])}

    return wrapper


def _by_value(m: Tensor) -> Tensor:
    return m.sum(1) * (1 if m.sum().item() > -1 else 2)


def test_functions_in_one_wrapper_are_recorded_apart(caplog: pytest.LogCaptureFixture) -> None:
    """Some that cannot be captured do not keep others of the same wrapper from it."""
    g = _graph()
    others = [lambda m: m.max(1)[0], lambda m: m.mean(1), lambda m: m.sum(1)]  # fmt: skip
    for _ in range(4):
        g.update_all(_source, _decorated(_by_value))
    with caplog.at_level(logging.INFO, "vgraph"):
        for function in others:
            g.update_all(_source, _decorated(function))
            torch.testing.assert_close(g.ndata["o"][2], function(X[[1, 1]].unsqueeze(0))[0])
    assert not caplog.records


def test_keys_of_functions() -> None:
    def plain(edges: Any) -> dict[str, Tensor]:
        return {"m": edges.src["h"]}

    def again() -> Any:
        return lambda edges: plain(edges)

    assert function_key(plain) is plain.__code__
    assert function_key(again()) == function_key(again()) and name_of(function_key(again())) == "<lambda>"
    assert function_key(fn.copy_u("h", "m")) == function_key(fn.copy_u("h", "m"))
    assert len({function_key(fn.copy_u(f"h{i}", "m")) for i in range(20)}) == 20
    assert len({function_key(make("h", "w", "m")) for make in (fn.u_mul_e, fn.u_add_e, fn.v_mul_e)}) == 3
    assert name_of(function_key(functools.partial(plain))) == "plain"
    assert function_key(functools.partial(_source)) != function_key(functools.partial(plain))


class _Attributes(dict[str, Any]):
    """Items as attributes, as many programs have it: what is not there is a KeyError."""

    __getattr__ = dict.__getitem__


def test_a_closure_over_what_answers_for_its_attributes() -> None:
    table = _Attributes(scale=2.0)
    message = lambda edges: {"m": edges.src["h"] * table.scale}  # noqa: E731
    assert function_key(message) is message.__code__


class _Slotted:
    __slots__ = ()

    def message(self, edges: Any) -> None: ...


class _Pair(NamedTuple):
    first: list[int]

    def message(self, edges: Any) -> None: ...


class _Untrue:
    def __bool__(self) -> bool:
        raise ValueError("neither")

    def message(self, edges: Any) -> None: ...


@pytest.mark.parametrize("owner", [_Slotted(), _Pair([1]), _Untrue()])
def test_methods_of_what_has_no_hash_weak_reference_or_truth_are_looked_up(owner: Any) -> None:
    """A look-up that fails is tried less often; no object can keep it from being counted."""
    family = Family[object]()
    family.look_up([owner.message], "it reads the clock")
    assert family.why_looked_up([owner.message]) == "it reads the clock"
    assert family.patience_with([owner.message]) is family.patience_with([owner.message])


def test_many_relations_by_name_are_recorded_once_each() -> None:
    """A model of many relations sends a feature of its own along each of them."""
    g, counts = _graph(), list[int]()
    for _ in range(3):
        for relation in range(24):
            g.ndata[f"W{relation}"] = X * relation
            g.update_all(fn.copy_u(f"W{relation}", "m"), fn.mean("m", f"o{relation}"))
            torch.testing.assert_close(g.ndata[f"o{relation}"][1], X[0] * relation)
        counts.append(num_captures())
    assert counts[0] == counts[-1]


_CELL = """
scale = 1.0

class Sending:
    def message(self, edges):
        return {"m": edges.src["h"] * scale}
"""


def test_a_cell_of_a_notebook_that_is_run_again_has_numbers_of_its_own() -> None:
    """Its code is equal to what ran before, and its class is another one, through which paths lead to other numbers."""
    g = _graph()
    for _ in range(2):
        space: dict[str, Any] = {"__name__": "a notebook"}
        exec(compile(_CELL, "a cell", "exec"), space)
        sending = space["Sending"]()
        for scale in (1.0, 2.0, 3.0, 4.0, 5.0):
            space["scale"] = scale
            for _ in range(2):
                g.update_all(sending.message, fn.sum("m", "o"))
                torch.testing.assert_close(g.ndata["o"][1], scale * X[0])
