"""update_all: the built-ins against plain loops, and what every reduction owes its user."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import Tensor

import vgraph
import vgraph.function as fn
from tests.api.agreement import DST, SRC, assert_agrees, random_frames, small_topology

NUM_NODES = 7
ENDS = {"u": SRC, "v": DST, "e": range(len(SRC))}
OPERATORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "dot": lambda a, b: (a * b).sum(-1, keepdim=True),
}
PAIRS = [(a, b) for a in "uve" for b in "uve" if a != b]
REDUCERS: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda m: m.sum(0),
    "mean": lambda m: m.mean(0),
    "max": lambda m: m.max(0).values,
    "min": lambda m: m.min(0).values,
    "prod": lambda m: m.prod(0),
}


def small_graph(idtype: torch.dtype = torch.int64) -> vgraph.Graph:
    ends = (torch.tensor(SRC, dtype=idtype), torch.tensor(DST, dtype=idtype))
    return vgraph.graph(ends, num_nodes=NUM_NODES)


def looped(messages: Tensor, reduce: Callable[[Tensor], Tensor]) -> Tensor:
    """One row a node: its messages in order of edge ids, reduced; zeros without any."""
    rows: list[Tensor] = []
    for node in range(NUM_NODES):
        mine = [messages[i] for i, end in enumerate(DST) if end == node]
        zero = torch.zeros(messages.shape[1:], dtype=messages.dtype)
        rows.append(reduce(torch.stack(mine)) if mine else zero)
    return torch.stack(rows)


def updated(message: Any, reduce: Any, x: Tensor, w: Tensor, graph: Any = None) -> Tensor:
    g = small_graph() if graph is None else graph
    g.ndata["x"], g.edata["w"] = x, w
    g.update_all(message, reduce)
    return g.ndata["out"]


def features(*shape: int) -> tuple[Tensor, Tensor]:
    x = torch.rand(NUM_NODES, *shape, dtype=torch.float64) + 0.5
    w = torch.rand(len(SRC), *shape, dtype=torch.float64) + 0.5
    return x.requires_grad_(), w.requires_grad_()


# ---------------------------------------------------------------- built-ins
@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_binary_messages(left: str, right: str, name: str) -> None:
    x, w = features(3)
    given = {"u": x, "v": x, "e": w}
    names = {"u": "x", "v": "x", "e": "w"}
    message = getattr(fn, f"{left}_{name}_{right}")(names[left], names[right], "m")
    a, b = (given[end][list(ENDS[end])] for end in (left, right))
    wanted = looped(OPERATORS[name](a, b), REDUCERS["sum"])
    found = updated(message, fn.sum("m", "out"), x, w)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    weights = torch.rand_like(wanted)
    pairs = zip(
        torch.autograd.grad((found * weights).sum(), (x, w), allow_unused=True),
        torch.autograd.grad((wanted * weights).sum(), (x, w), allow_unused=True),
        strict=True,
    )
    for mine, theirs in pairs:
        if theirs is not None:
            torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", REDUCERS)
@pytest.mark.parametrize("copied", ["copy_u", "copy_e"])
def test_reductions(copied: str, name: str) -> None:
    x, w = features(3)
    message = getattr(fn, copied)("x" if copied == "copy_u" else "w", "m")
    reduce = getattr(fn, name)("m", "out")
    rows = x[SRC] if copied == "copy_u" else w
    torch.testing.assert_close(updated(message, reduce, x, w), looped(rows, REDUCERS[name]))

    def run(x: Tensor, w: Tensor) -> Tensor:
        return updated(message, reduce, x, w)

    assert torch.autograd.gradcheck(run, (x, w))


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "prod"])
def test_second_derivatives(reduce: str) -> None:
    x, w = features(2)

    def run(x: Tensor, w: Tensor) -> Tensor:
        return updated(fn.u_mul_e("x", "w", "m"), getattr(fn, reduce)("m", "out"), x, w) ** 2

    assert torch.autograd.gradgradcheck(run, (x, w))


@pytest.mark.parametrize(
    ("left", "right", "out"),
    [((), (), ()), ((4,), (), (4,)), ((4,), (1,), (4,)), ((2, 4), (2, 1), (2, 4)),
     ((2, 4), (4,), (2, 4)), ((2, 1), (1, 4), (2, 4)), ((2, 4), (), (2, 4))],
)  # fmt: skip
def test_broadcasting(left: tuple[int, ...], right: tuple[int, ...], out: tuple[int, ...]) -> None:
    """Rows stay first: a feature of lower rank gets its missing dims right after them."""
    x, w = features(*left)[0], features(*right)[1]
    message = fn.u_mul_e("x", "w", "m")
    found = updated(message, fn.sum("m", "out"), x, w)
    assert found.shape == (NUM_NODES, *out)
    wide_x = x.reshape(NUM_NODES, *(1,) * (len(out) - len(left)), *left)
    wide_w = w.reshape(len(SRC), *(1,) * (len(out) - len(right)), *right)
    torch.testing.assert_close(found, looped(wide_x[SRC] * wide_w, REDUCERS["sum"]))
    assert torch.autograd.gradcheck(lambda x, w: updated(message, fn.sum("m", "out"), x, w), (x, w))


def test_agrees_with_scipy() -> None:
    x, w = (t.detach().requires_grad_() for t in (features(5)[0], features()[1]))
    matrix = scipy.sparse.coo_matrix((w.detach().numpy(), (DST, SRC)), shape=(NUM_NODES, NUM_NODES)).tocsr()
    found = updated(fn.u_mul_e("x", "w", "m"), fn.sum("m", "out"), x, w)
    np.testing.assert_allclose(found.detach().numpy(), matrix @ x.detach().numpy(), rtol=1e-12)
    (grad,) = torch.autograd.grad(found.sum(), x)
    ones = np.ones((NUM_NODES, 5))
    np.testing.assert_allclose(grad.numpy(), matrix.T @ ones, rtol=1e-12)


# ---------------------------------------------------------------- vertices without messages
HARSH = {
    "sqrt": lambda v: {"out": torch.sqrt(v.mailbox["m"].sum(1))},
    "log": lambda v: {"out": torch.log(v.mailbox["m"].sum(1))},
    "division": lambda v: {"out": v.mailbox["m"].sum(1) / v.mailbox["m"].abs().sum(1)},
    "softmax": lambda v: {"out": (v.mailbox["m"].softmax(1) * v.mailbox["m"]).sum(1)},
    "logsumexp": lambda v: {"out": v.mailbox["m"].logsumexp(1)},
    "offset": lambda v: {"out": v.mailbox["m"].sum(1) + 7},
    "prod": lambda v: {"out": v.mailbox["m"].prod(1)},
    "own feature": lambda v: {"out": torch.sqrt(v.data["x"]) * v.mailbox["m"].sum(1)},
    "first": lambda v: {"out": v.mailbox["m"][:, 0] + 1},
}


@pytest.mark.parametrize("name", HARSH)
def test_isolated_nodes_give_zero_and_no_gradient(name: str) -> None:
    x, w = features(3)
    x = x.detach().clone()
    isolated = [node for node in range(NUM_NODES) if node not in DST]
    silent = [node for node in range(NUM_NODES) if node not in SRC + DST]
    x[isolated] = 0.0  # where sqrt and log have no derivative
    x.requires_grad_()
    message = fn.copy_e("w", "m") if name != "own feature" else fn.copy_u("x", "m")
    found = updated(message, HARSH[name], x, w)
    assert isolated
    assert torch.equal(found[isolated], torch.zeros(len(isolated), 3, dtype=torch.float64))
    grads = torch.autograd.grad(found.sum(), (x, w), allow_unused=True)
    assert all(grad is None or bool(grad.isfinite().all()) for grad in grads)
    if grads[0] is not None:
        assert not grads[0][silent].any()


def test_sqrt_in_a_message_meets_no_node_without_edges() -> None:
    x = torch.zeros(NUM_NODES, 2, dtype=torch.float64)
    x[SRC] = 1.0
    x.requires_grad_()
    found = updated(lambda e: {"m": torch.sqrt(e.src["x"])}, fn.sum("m", "out"), x, features(1)[1])
    (grad,) = torch.autograd.grad(found.sum(), x)
    assert bool(grad.isfinite().all())
    assert not grad[[6]].any()


# ---------------------------------------------------------------- ties, NaN and infinity
def test_amax_splits_and_max_takes_the_first() -> None:
    g = vgraph.graph(([0, 1, 2], [3, 3, 3]))
    x = torch.tensor([[1.0], [1.0], [0.0], [0.0]], requires_grad=True)
    g.ndata["x"] = x
    g.update_all(fn.copy_u("x", "m"), lambda v: {"out": v.mailbox["m"].amax(1)})
    (shared,) = torch.autograd.grad(g.ndata["out"].sum(), x)
    assert shared.squeeze(1).tolist() == [0.5, 0.5, 0.0, 0.0]
    g.update_all(fn.copy_u("x", "m"), fn.max("m", "out"))
    (first,) = torch.autograd.grad(g.ndata["out"].sum(), x)
    assert first.squeeze(1).tolist() == [1.0, 0.0, 0.0, 0.0]
    g.update_all(fn.copy_u("x", "m"), lambda v: {"out": v.mailbox["m"].max(1).indices})
    assert g.ndata["out"].squeeze(1).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("name", REDUCERS)
def test_nan_and_infinity_propagate(name: str) -> None:
    x, w = (t.detach() for t in features(4))
    w[0, 0], w[3, 1], w[4, 2] = float("nan"), float("inf"), float("-inf")
    w[5, 3], w[7, 3] = float("inf"), float("-inf")
    found = updated(fn.copy_e("w", "m"), getattr(fn, name)("m", "out"), x, w)
    torch.testing.assert_close(found, looped(w, REDUCERS[name]), equal_nan=True)


# ---------------------------------------------------------------- graphs and features of all kinds
@pytest.mark.parametrize("idtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("name", REDUCERS)
def test_id_types(idtype: torch.dtype, name: str) -> None:
    x, w = features(2)
    reduce = getattr(fn, name)("m", "out")
    found = updated(fn.u_mul_e("x", "w", "m"), reduce, x, w, small_graph(idtype))
    torch.testing.assert_close(found, looped(x[SRC] * w, REDUCERS[name]))
    (grad,) = torch.autograd.grad(found.sum(), x)
    assert bool(grad.isfinite().all())


@pytest.mark.parametrize("mixes", [False, True], ids=["as segments", "by degree"])
def test_ids_that_functions_ask_for_have_the_dtype_of_the_graph(mixes: bool) -> None:
    """Kernels read them in 64 bits, whichever graph came before."""

    def message(edges: Any) -> dict[str, Tensor]:
        src, dst, number = edges.edges()
        return {"m": (100 * src.double() + 10 * dst.double() + number)[:, None] * edges.src["x"]}

    def reduce(nodes: Any) -> dict[str, Tensor]:
        box = nodes.mailbox["m"].sort(1).values if mixes else nodes.mailbox["m"]
        return {"out": box.sum(1) + nodes.nodes().double()[:, None], "ids": nodes.nodes()}

    x = torch.randn(NUM_NODES, 1, dtype=torch.float64)
    src, dst = torch.tensor(SRC), torch.tensor(DST)
    sent = (100 * src + 10 * dst + torch.arange(len(SRC)))[:, None] * x[src]
    wanted = torch.zeros_like(x).index_add(0, dst, sent)
    for idtype in (torch.int32, torch.int64, torch.int32):
        g = small_graph(idtype)
        g.ndata["x"] = x
        g.update_all(message, reduce)
        has_edges = g.in_degrees() > 0
        own = torch.arange(NUM_NODES)[:, None]
        torch.testing.assert_close(g.ndata["out"][has_edges], (wanted + own)[has_edges])
        assert g.ndata["ids"].dtype == idtype
        g.apply_edges(lambda edges: {"twice": 2 * edges.edges()[0], "wide": edges.edges()[1].double()})
        assert g.edata["twice"].dtype == idtype
        assert g.edata["twice"].tolist() == (2 * src).tolist() and g.edata["wide"].tolist() == dst.tolist()


@pytest.mark.parametrize("name", ["sum", "max", "prod"])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_whole_numbers(dtype: torch.dtype, name: str) -> None:
    x = torch.arange(2 * NUM_NODES, dtype=dtype).view(NUM_NODES, 2)
    w = torch.arange(len(SRC), dtype=dtype)
    found = updated(fn.copy_u("x", "m"), getattr(fn, name)("m", "out"), x, w)
    wanted = looped(x[SRC].long(), REDUCERS[name])
    assert torch.equal(found.long(), wanted)
    assert found.dtype == (dtype if name == "max" else torch.int64)  # as torch's own reductions


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_float_types(dtype: torch.dtype) -> None:
    x, w = (t.detach().to(dtype).requires_grad_() for t in features(4))
    found = updated(fn.u_mul_e("x", "w", "m"), fn.mean("m", "out"), x, w)
    assert found.dtype == dtype
    exact = looped((x[SRC] * w).double(), REDUCERS["mean"])
    tolerance = 2e-2 if dtype == torch.bfloat16 else 1e-6
    torch.testing.assert_close(found.double(), exact, rtol=tolerance, atol=tolerance)
    (grad,) = torch.autograd.grad(found.sum(), x)
    assert grad.dtype == dtype


def test_hub_of_many_edges() -> None:
    count = 70_000
    src, dst = torch.arange(1, count + 1), torch.zeros(count, dtype=torch.int64)
    g = vgraph.graph((torch.cat([src, dst[:1]]), torch.cat([dst, src[:1]])), num_nodes=count + 1)
    for dtype in (torch.float64, torch.bfloat16):
        x = torch.ones(count + 1, 2, dtype=dtype, requires_grad=True)
        g.ndata["x"] = x
        g.update_all(fn.copy_u("x", "m"), fn.sum("m", "out"))
        wanted = torch.tensor(float(count), dtype=dtype)  # not stuck where 1 is lost to rounding
        assert g.ndata["out"][0, 0] == wanted
        (grad,) = torch.autograd.grad(g.ndata["out"][0].sum(), x)
        assert bool((grad[1:] == 1).all())
    g.ndata["x"] = torch.randn(count + 1, 3, dtype=torch.float64)
    g.update_all(fn.copy_u("x", "m"), lambda v: {"out": v.mailbox["m"].softmax(1).sum(1)})
    torch.testing.assert_close(g.ndata["out"][0], torch.ones(3, dtype=torch.float64))


def test_what_float16_cannot_hold_on_the_way() -> None:
    """Counts, sums and squares beyond 65,504, where the result is far below that."""
    count = 70_000
    g = vgraph.graph((torch.arange(count), torch.zeros(count, dtype=torch.int64)))
    rows = torch.ones(count, 2, dtype=torch.float16)
    rows[::2, 1] = 0.5

    def reduce(m: torch.Tensor) -> dict[str, torch.Tensor]:
        of_spread = {"mean": m.mean(1), "std": m.std(1), "var": torch.var(m, 1, correction=0)}
        of_sizes = {"norm": m.norm(dim=1), "third": torch.linalg.vector_norm(m, 3, dim=1)}
        return {**of_spread, **of_sizes, "log": torch.log_softmax(m, 1).amax(1), "total": torch.logsumexp(m, 1)}

    given = g.ndata["x"] = rows.clone().requires_grad_()
    g.update_all(fn.copy_u("x", "m"), lambda v: reduce(v.mailbox["m"]))
    wide = rows.double().requires_grad_()
    for name, wanted in reduce(wide[None]).items():
        found = g.ndata[name][0]
        assert found.dtype == torch.float16
        torch.testing.assert_close(found.double(), wanted[0], rtol=2e-3, atol=1e-3)
        grads = [torch.autograd.grad(t.sum(), x, retain_graph=True)[0] for t, x in ((found, given), (wanted, wide))]
        torch.testing.assert_close(grads[0].double(), grads[1], rtol=1e-2, atol=1e-6)


def test_without_edges_warns_and_only_applies() -> None:
    g = vgraph.graph(([], []), num_nodes=3)
    g.ndata["x"] = torch.ones(3, 2)
    with pytest.warns(UserWarning, match="without edges"):
        g.update_all(fn.copy_u("x", "m"), fn.sum("m", "out"), lambda v: {"x": v.data["x"] + 1})
    assert "out" not in g.ndata
    assert torch.equal(g.ndata["x"], torch.full((3, 2), 2.0))


@pytest.mark.parametrize("reduce", [fn.sum, fn.mean, fn.max, fn.min])
@pytest.mark.parametrize("name", ["x", "out"])
def test_built_in_reductions_of_no_messages_are_zeros(reduce: Any, name: str) -> None:
    """A batch of single atoms goes through a model like any other, as under DGL."""
    g = vgraph.graph(([], []), num_nodes=3)
    g.ndata["x"] = torch.ones(3, 2)
    with pytest.warns(UserWarning, match="without edges"):
        g.update_all(lambda e: {"m": e.src["x"] * 2}, reduce("m", name))
    assert torch.equal(g.ndata[name], torch.zeros(3, 2))
    with pytest.warns(UserWarning, match="without edges"):
        g.update_all(fn.copy_u("x", "m"), reduce("m", "y"), lambda v: {"y": v.data["y"] + 1})
    assert torch.equal(g.ndata["y"], torch.ones(3, 2))


def test_without_nodes() -> None:
    g = vgraph.graph(([], []), num_nodes=0)
    g.ndata["x"] = torch.ones(0, 2)
    with pytest.warns(UserWarning, match="without edges"):
        g.update_all(fn.copy_u("x", "m"), fn.sum("m", "out"))


@pytest.mark.parametrize("kind", ["transposed", "expanded", "strided", "zero width"])
def test_memory_layouts(kind: str) -> None:
    base = torch.rand(NUM_NODES, 6, dtype=torch.float64)
    x = {
        "transposed": torch.rand(4, NUM_NODES, dtype=torch.float64).t(),
        "expanded": torch.rand(1, 4, dtype=torch.float64).expand(NUM_NODES, 4),
        "strided": base[:, ::2],
        "zero width": base[:, :0],
    }[kind].requires_grad_()
    w = features(1)[1]
    for name, reduce in REDUCERS.items():
        found = updated(fn.u_mul_e("x", "w", "m"), getattr(fn, name)("m", "out"), x, w)
        torch.testing.assert_close(found, looped(x[SRC] * w, reduce))
        (grad,) = torch.autograd.grad(found.sum(), x)
        assert grad.shape == x.shape


def test_apply_runs_for_every_node() -> None:
    x, w = features(2)
    g = small_graph()
    g.ndata["x"], g.edata["w"] = x, w
    g.update_all(fn.copy_u("x", "m"), fn.sum("m", "out"), lambda v: {"out": v.data["out"] * 2 + 1})
    torch.testing.assert_close(g.ndata["out"], looped(x[SRC], REDUCERS["sum"]) * 2 + 1)
    assert torch.equal(g.ndata["out"][[0, 6]][1], torch.ones(2, dtype=torch.float64))


def test_messages_lie_in_order_of_edge_ids() -> None:
    g = small_graph()
    g.edata["w"] = torch.arange(len(SRC))
    seen: dict[int, list[list[int]]] = {}

    def look(nodes: Any) -> dict[str, Tensor]:
        seen[nodes.mailbox["m"].shape[1]] = nodes.mailbox["m"].tolist()
        return {"out": nodes.mailbox["m"][:, 0]}

    g.update_all(fn.copy_e("w", "m"), look)
    wanted = [[i for i, end in enumerate(DST) if end == node] for node in range(NUM_NODES)]
    assert sorted(row for rows in seen.values() for row in rows) == sorted(filter(None, wanted))
    assert 0 not in seen  # not called for nodes without in-edges


def test_a_lambda_made_anew_is_not_captured_again() -> None:
    from vgraph.capture.capture import num_captures

    x, w = features(2)

    def step(scale: Tensor) -> Tensor:
        return updated(lambda e: {"m": e.src["x"] * scale}, lambda v: {"out": v.mailbox["m"].sum(1)}, x, w)

    first = step(torch.tensor(2.0, dtype=torch.float64))
    before = num_captures()
    second = step(torch.tensor(3.0, dtype=torch.float64))
    assert num_captures() == before
    torch.testing.assert_close(second, first * 1.5)


def test_a_product_of_two_slots_is_tried_once_on_all_degrees() -> None:
    """The matrix fits a mailbox of two: batches of other sizes, which torch refuses, are not tried at every call."""
    from vgraph.capture.capture import num_captures

    g, matrix = vgraph.graph(([0, 1, 2, 3], [4, 4, 5, 5])), torch.randn(6, 2)

    def step() -> Tensor:
        g.ndata["h"] = torch.randn(6, 3)
        g.update_all(fn.copy_u("h", "m"), lambda nodes: {"out": nodes.mailbox["m"].flatten(1) @ matrix})
        pairs = g.ndata["h"][:4].view(2, 6)
        torch.testing.assert_close(g.ndata["out"][4:], pairs @ matrix)
        return g.ndata["out"]

    step()
    before = num_captures()
    step()
    assert num_captures() == before


def test_one_call_of_both_built_ins_agrees_with_dgls_batches() -> None:
    topology = small_topology()
    frames = random_frames(topology, {"node:x": (2, 3), "edge:w": (2, 1)})
    assert_agrees(topology, frames, fn.u_mul_e("x", "w", "m"), fn.mean("m", "out"))


@pytest.mark.parametrize(
    "mix",
    [lambda t: t.cumsum(0), lambda t: t.flip(0), lambda t: torch.roll(t, 1, 0), lambda t: t.sort(0).values,
     lambda t: torch.cummax(t, 0).values, lambda t: t - t.mean(0)],
    ids=["cumsum", "flip", "roll", "sort", "cummax", "mean"],
)  # fmt: skip
def test_messages_that_mix_edges_see_all_in_order_of_ids(mix: Callable[[Tensor], Tensor]) -> None:
    g, x = small_graph(), features(1)[0].requires_grad_()
    g.ndata["x"] = x
    wanted = mix(x[SRC])
    g.apply_edges(lambda e: {"m": mix(e.src["x"])})
    torch.testing.assert_close(g.edata["m"], wanted)
    for name, reduce in (("sum", fn.sum("m", "out")), ("max", lambda v: {"out": v.mailbox["m"].sort(1).values[:, -1]})):
        g.update_all(lambda e: {"m": mix(e.src["x"])}, reduce)
        torch.testing.assert_close(g.ndata["out"], looped(wanted, REDUCERS[name]))
        (grad,) = torch.autograd.grad(g.ndata["out"].sum(), x, retain_graph=True)
        torch.testing.assert_close(
            grad, torch.autograd.grad(looped(wanted, REDUCERS[name]).sum(), x, retain_graph=True)[0]
        )
