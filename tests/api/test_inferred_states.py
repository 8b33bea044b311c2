"""States whose shape and dtype nobody gave: as a function scatters them, however it comes by them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vgraph
from vgraph.capture.capture import forget
from vgraph.errors import FunctionError

Step = Callable[[Any, Tensor, Any], dict[str, Tensor]]
GRAPH = vgraph.graph(([0, 1, 0], [1, 2, 2]))


class Stepping(vgraph.VertexFunction):
    def __init__(self, step: Step, layers: dict[str, nn.Module], **options: Any) -> None:
        super().__init__(**options)
        self.step, self.layers = step, nn.ModuleDict(layers)

    def forward(self, v: Any) -> None:
        found = self.step(self.layers, v.pull("x"), v)
        v.scatter(**found)
        v.push(**found)


def joined(layers: Any, x: Tensor, v: Any) -> dict[str, Tensor]:
    return {"h": torch.tanh(layers["a"](torch.cat([x, v.gather()["h"].sum()], -1)))}


def joined_twice(layers: Any, x: Tensor, v: Any) -> dict[str, Tensor]:
    k = v.gather()
    h, c = torch.tanh(layers["a"](torch.cat([x, k["h"].sum(), k["c"].sum()], -1))).split([5, 2], -1)
    return {"h": h, "c": c}


def heads(layers: Any, x: Tensor, v: Any) -> dict[str, Tensor]:
    q, k = layers["a"](x).view(-1, 2, 4), v.gather()["h"]
    return {"h": q + ((k * q).sum(-1, keepdim=True).softmax() * k).sum()}


def matrix(layers: Any, x: Tensor, v: Any) -> dict[str, Tensor]:
    m = v.gather()["m"].sum()
    y = torch.bmm(m, x.unsqueeze(-1)).squeeze(-1)
    return {"m": m * 0.5 + x.unsqueeze(-1) * (x + y).unsqueeze(-2)}


def numbers_and_rows(layers: Any, x: Tensor, v: Any) -> dict[str, Tensor]:
    k = v.gather()
    c = torch.tanh((k["h"] * 0.2 + 1).prod() + x)
    s = torch.tanh(x.sum(-1) + v.gather(0)["c"].sum(-1) + v.gather(0)["s"])
    return {"h": torch.tanh(x + k["h"].sum()), "c": c, "s": s}


def counted(layers: Any, x: Tensor, v: Any) -> dict[str, Tensor]:
    n = v.gather()["n"].sum() + 1 + 0 * v.in_degree
    return {"n": n, "h": torch.tanh(layers["a"](x) + v.gather()["h"].sum() / n.unsqueeze(-1))}


def stacked(layers: Any, x: Tensor, v: Any) -> dict[str, Tensor]:
    t = v.gather()["t"].sum()
    h = torch.tanh(x + t.mean(-2) + v.gather()["h"].sum())
    return {"h": h, "t": torch.stack([h, x], -2) + t.flip(-2)}


def normed(layers: Any, x: Tensor, v: Any) -> dict[str, Tensor]:
    return {"h": layers["a"](v.gather()["h"].sum()) + x.sum(-1, keepdim=True)}


def halves(layers: Any, x: Tensor, v: Any) -> dict[str, Tensor]:
    first, second = v.gather()["h"].chunk(2, -1)  # of one number a vertex: rows
    return {"h": layers["a"](x) + torch.stack([first.sum(), second.max()], -1).flatten(1)}


CASES: dict[str, tuple[Step, Callable[[], dict[str, nn.Module]], dict[str, Any]]] = {
    "joined": (joined, lambda: {"a": nn.Linear(8, 5)}, {"h": 5}),
    "joined twice": (joined_twice, lambda: {"a": nn.Linear(10, 7)}, {"h": 5, "c": 2}),
    "heads": (heads, lambda: {"a": nn.Linear(3, 8)}, {"h": (2, 4)}),
    "matrix": (matrix, dict, {"m": (3, 3)}),
    "numbers and rows": (numbers_and_rows, dict, {"h": 3, "c": 3, "s": ()}),
    "counted": (counted, lambda: {"a": nn.Linear(3, 4)}, {"h": 4, "n": ()}),
    "stacked": (stacked, dict, {"h": 3, "t": (2, 3)}),
    "halves": (halves, lambda: {"a": nn.Linear(3, 4)}, {"h": 4}),
    "normed": (normed, lambda: {"a": nn.LayerNorm(4)}, {"h": 4}),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CASES)
def test_as_if_they_were_given(name: str, dtype: torch.dtype) -> None:
    step, layers, states = CASES[name]
    x = torch.linspace(-1, 1, 9, dtype=dtype).view(3, 3)
    inferred = Stepping(step, layers()).to(dtype)
    given = Stepping(step, layers(), states=states).to(dtype)
    given.load_state_dict(inferred.state_dict())
    forget()
    found, wanted = inferred(GRAPH, x=x), given(GRAPH, x=x)
    for state, rows in wanted.items():
        torch.testing.assert_close(found[state], rows)
        assert rows.dtype == dtype


class Mapped(vgraph.VertexFunction):
    """A matrix of the edge times the child: what the state is like is pulled only behind it."""

    def forward(self, v: Any) -> None:
        h = (v.pull_edge("w") @ v.gather()["h"].unsqueeze(-1)).squeeze(-1).sum() + v.pull("x")
        v.scatter(h=h)
        v.push(h=h)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_matrix_tells_the_width_of_what_it_is_multiplied_with(dtype: torch.dtype) -> None:
    x, w = torch.randn(3, 4, dtype=dtype), torch.randn(3, 4, 4, dtype=dtype)
    found = Mapped()(GRAPH, x=x, w=w)["h"]
    second = w[0] @ x[0] + x[1]
    torch.testing.assert_close(found, torch.stack([x[0], second, w[1] @ second + w[2] @ x[0] + x[2]]))


def of_itself(layers: Any, x: Tensor, v: Any) -> dict[str, Tensor]:
    return {"h": (v.gather()["h"] * 0.2 + 1).prod()}


def of_features(layers: Any, x: Tensor, v: Any) -> dict[str, Tensor]:
    return {"h": x + v.gather()["h"].sum()}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_what_nothing_tells_is_like_features_and_is_told(dtype: torch.dtype, caplog: pytest.LogCaptureFixture) -> None:
    x = torch.ones(3, 3, dtype=dtype)
    with caplog.at_level(logging.INFO, "vgraph"):
        assert Stepping(of_itself, {})(GRAPH, x=x)["h"].dtype == dtype
    assert "nothing tells the shape of the state 'h' of Stepping: it is one number a vertex" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.INFO, "vgraph"):
        found = Stepping(of_itself, {}, states={"h": 4})(GRAPH, x=x)["h"]
        Stepping(numbers_and_rows, {})(GRAPH, x=x)
    assert (found.dtype, found.shape) == (dtype, (3, 4)) and "nothing tells" not in caplog.text


def test_who_listens_to_the_log_is_no_part_of_the_function() -> None:
    told: list[str] = []
    forget()  # what another test's call of this function has guessed

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(record.getMessage())

    logger, listener = logging.getLogger("vgraph"), Listener(logging.INFO)
    logger.addHandler(listener)
    level = logger.level
    logger.setLevel(logging.INFO)
    try:
        Stepping(of_itself, {})(GRAPH, x=torch.ones(3, 3))
    finally:
        logger.removeHandler(listener)
        logger.setLevel(level)
    assert told and all("nothing tells" in line for line in told), "recorded, and not looked up at every call"


def test_rows_without_numbers_are_captured(caplog: pytest.LogCaptureFixture) -> None:
    x = torch.ones(3, 0, requires_grad=True)
    with caplog.at_level(logging.INFO, "vgraph"):
        found = Stepping(of_features, {})(GRAPH, x=x)["h"]
    found.sum().backward()
    assert found.shape == (3, 0) and x.grad is not None and x.grad.shape == (3, 0) and not caplog.text


def test_whole_numbers_stay_whole() -> None:
    def count(layers: Any, x: Tensor, v: Any) -> dict[str, Tensor]:
        return {"n": v.gather()["n"].sum() + 1}

    found = Stepping(count, {})(GRAPH, x=torch.ones(3, 3, dtype=torch.float64))["n"]
    assert found.dtype == torch.int64 and found.flatten().tolist() == [1, 2, 4]


def test_refusals_that_hang_on_a_guess_say_so() -> None:
    def mean_of_all(layers: Any, x: Tensor, v: Any) -> dict[str, Tensor]:
        h, c = layers["a"](x, (v.gather()["h"].sum(), v.gather()["c"].sum()))
        return {"h": h / h.mean(0), "c": c}

    with pytest.raises(FunctionError, match=r"mean over the dim of rows mixes vertices(?s:.)*super.*states="):
        Stepping(mean_of_all, {"a": nn.LSTMCell(3, 6)})(GRAPH, x=torch.ones(3, 3))

    def plainly(layers: Any, x: Tensor, v: Any) -> dict[str, Tensor]:
        return {"h": x + x.mean(0) + v.gather()["h"].sum()}

    with pytest.raises(FunctionError, match="mixes vertices") as caught:
        Stepping(plainly, {})(GRAPH, x=torch.ones(3, 3))
    assert "states=" not in str(caught.value)


@pytest.mark.parametrize("mode", ["captured", "serial"])
def test_complex_layers_tell_states(mode: str) -> None:
    layer = nn.Linear(3, 3, dtype=torch.complex64)

    def step(layers: Any, x: Tensor, v: Any) -> dict[str, Tensor]:
        below = v.gather()["h"].sum()
        if mode == "serial" and bool(below.abs().sum() > 1e9):
            below = below * 2
        return {"h": x + layers["a"](below)}

    x = torch.randn(3, 3, dtype=torch.complex64)
    first = x[0] + layer(torch.zeros_like(x[0]))
    second = x[1] + layer(first)
    third = x[2] + layer(first + second)
    torch.testing.assert_close(Stepping(step, {"a": layer})(GRAPH, x=x)["h"], torch.stack([first, second, third]))


@pytest.mark.parametrize("shape", [(1, 3), (3, 1), (1, 1), (2, 1, 3)])
@pytest.mark.parametrize("looks", [False, True])
def test_a_dim_of_one_entry_is_none_of_rows(shape: tuple[int, ...], looks: bool) -> None:
    """A state that was begun as one column met rows there: 29 columns came out, as many as examples have rows."""

    def summed(x: Tensor, kids: Tensor) -> dict[str, Tensor]:
        h = torch.tanh(x + kids)
        return {"h": h * 2 if looks and float(h.detach().sum()) < -1e9 else h}

    def averaged(x: Tensor, kids: Tensor) -> dict[str, Tensor]:
        return {"h": x.mean(-1, keepdim=True) + kids}

    x = torch.randn(3, *shape)
    for step in (summed, averaged):
        found = Stepping(lambda layers, x, v, step=step: step(x, v.gather()["h"].sum()), {})(GRAPH, x=x)["h"]
        rows: list[Tensor] = []
        for children in ([], [0], [0, 1]):
            rows.append(step(x[len(rows)], sum((rows[i] for i in children), torch.zeros(())))["h"])
        torch.testing.assert_close(found, torch.stack(rows))
