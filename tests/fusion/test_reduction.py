"""Reductions over any modes: loops against torch in double precision, and against torch's own operators."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import vgraph
from tests.fusion.fuzz import compile_fast
from tests.tables import table, thorough
from vgraph.errors import DimError, DTypeError, FeatureError, FunctionError
from vgraph.fusion.cpu import build
from vgraph.runtime.cpu.kernels import pool_address
from vgraph.runtime.reductions import reduction
from vgraph.runtime.reductions.reduction import torch_reduce

pytestmark = pytest.mark.skipif(build.find_compiler() is None, reason="there is no C++ compiler")
NAMES = ("sum", "prod", "max", "min")
SHAPES = [
    (), (1,), (5,), (70000,), (7, 5), (64, 64), (300, 1), (4000, 3), (3, 4000), (33, 17, 9),
    (17, 16, 130), (4, 1, 6, 1, 5, 3), (3, 4, 3, 4, 3, 4), (2, 3, 40000), (1100, 70),
]  # fmt: skip
EPSILON = {torch.float32: 2.0**-23, torch.float64: 2.0**-52, torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10}


@pytest.fixture(autouse=True)
def launches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Loops are on; the list grows with each one that runs."""
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    seen: list[int] = []
    launch = reduction._CpuReduction.__call__

    def count(self: Any, tensors: Any) -> Tensor:
        seen.append(1)
        return launch(self, tensors)

    monkeypatch.setattr(reduction._CpuReduction, "__call__", count)
    return seen


def subsets(rank: int) -> Iterator[tuple[int, ...]]:
    return itertools.chain.from_iterable(itertools.combinations(range(rank), n) for n in range(rank + 1))


def layouts(x: Tensor) -> Iterator[Tensor]:
    """The same values in row-major order, turned round, with gaps, and repeated."""
    yield x
    if x.dim() > 1:
        yield x.permute(*reversed(range(x.dim()))).contiguous().permute(*reversed(range(x.dim())))
        yield torch.stack([x, -x], -1)[..., 0]
        yield x[:1].expand(x.shape)


def numbers(shape: tuple[int, ...], name: str, dtype: torch.dtype) -> Tensor:
    """Products stay within range."""
    x = torch.randn(shape, dtype=torch.float64)
    return (1 + x / (10 * math.prod(shape) ** 0.5) if name == "prod" else x).to(dtype)


def agrees(got: Tensor, x: Tensor, dims: tuple[int, ...], name: str) -> None:
    exact = torch_reduce(x.double(), dims, name, None)
    assert got.dtype == x.dtype and got.shape == exact.shape
    count = math.prod(x.shape[d] for d in dims)
    scale = torch_reduce(x.double().abs(), dims, "sum", None) if name == "sum" else exact.abs() * count**0.5
    if name in ("max", "min"):
        scale = torch.zeros_like(exact)
    accumulated = EPSILON[torch.float32 if x.dtype.itemsize == 2 else x.dtype]
    bound = 8 * accumulated * (1 + math.log2(max(count, 1))) * scale + EPSILON[x.dtype] * exact.abs()
    assert ((got.double() - exact).abs() <= bound).all(), (tuple(x.shape), x.stride(), dims)


@pytest.mark.parametrize(("name", "shape"), table(NAMES, SHAPES))
def test_every_subset_of_modes(name: str, shape: tuple[int, ...]) -> None:
    for x in layouts(numbers(shape, name, torch.float32)):
        for dims in subsets(len(shape)):
            agrees(vgraph.reduce(x, dims, name), x, dims, name)


@pytest.mark.parametrize(("name", "dtype"), table(["sum", "max"], [torch.float64, torch.bfloat16, torch.float16]))
def test_dtypes(name: str, dtype: torch.dtype) -> None:
    for shape in [(33, 17, 9), (4000, 3), (2, 3, 40000)]:
        x = numbers(shape, name, dtype)
        for dims in list(subsets(len(shape)))[1:]:
            agrees(vgraph.reduce(x, dims, name), x, dims, name)


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("dtype", [torch.int32, torch.bool, torch.float16], ids=str)
def test_no_dims_give_the_dtype_that_others_give(name: str, dtype: torch.dtype) -> None:
    x = torch.ones(2, 1, dtype=dtype)
    assert vgraph.reduce(x, (), name).dtype == vgraph.reduce(x, 1, name).dtype
    assert torch.equal(vgraph.reduce(x, (), name), vgraph.reduce(x, 1, name, keepdim=True))


def test_one_launch_however_many_modes(launches: list[int]) -> None:
    x = torch.randn(6, 5, 4, 3, 2, 7)
    vgraph.reduce(x, (0, 2, 4), "max")
    assert len(launches) == 1


def test_torch_adds_plain_rows_itself(launches: list[int]) -> None:
    """Long rows of one tensor: what a loop of ours would do no faster."""
    x = torch.randn(50, 200)
    assert vgraph.reduce(x, 1).equal(x.sum(1)) and not launches
    vgraph.reduce(x[:, :20], 1)
    assert launches


def test_a_million_positive_numbers_keep_their_digits() -> None:
    """One sum after the other would lose three digits of float32."""
    for shape, dims in (
        ((64, 1 << 14, 3), (0, 1)),
        ((3, 1 << 20), (1,)),
        ((1 << 20, 3), (0,)),
        ((1 << 10, 3, 1 << 10), (0, 2)),
    ):
        x = torch.rand(shape)
        agrees(vgraph.reduce((x,), dims, of=lambda x: x * 1.0), x, dims, "sum")


def test_nan_and_infinity() -> None:
    x = 1 + torch.randn(9, 40, 11) / 100  # whose products do not become 0
    x[2, 3, 4], x[5, 20, 6], x[7, 0, 0], x[7, 1, 0] = math.nan, math.inf, -math.inf, math.inf
    for name, dims in itertools.product(NAMES, [(0, 2), (1,), (0, 1), (2,), (0, 1, 2)]):
        torch.testing.assert_close(
            vgraph.reduce(x, dims, name), torch_reduce(x, dims, name, None), equal_nan=True, rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize("threads", [1, 2])
def test_two_runs_and_any_number_of_threads_give_the_same_bits(threads: int) -> None:
    x = torch.randn(40, 200, 50)
    shapes = [(0, 2), (0, 1, 2), (1,)]
    torch.set_num_threads(1)
    try:
        alone = [vgraph.reduce((x,), dims, of=torch.exp) for dims in shapes]
        torch.set_num_threads(threads)
        for dims, before in zip(shapes, alone, strict=True):
            assert vgraph.reduce((x,), dims, of=torch.exp).equal(before)
    finally:
        torch.set_num_threads(1)
    assert pool_address()


# ------------------------------------------------------------------ functions


def last(a: Tensor, b: Tensor) -> Tensor:
    """Associative, and not commutative: row-major order shows."""
    return b + 0.0 * a


FUNCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"last": last, "either": lambda a, b: a + b - a * b}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str, launches: list[int]) -> None:
    function = FUNCTIONS[name]
    for shape in [(3001,), (33, 17, 9), (17, 16, 130), (2, 3, 40000)]:
        given = torch.rand(shape) / 1000
        for x, dims in itertools.product(layouts(given), list(subsets(len(shape)))[1:]):
            got = vgraph.reduce(x, dims, function)
            want = torch_reduce(x.double(), dims, "", function)
            torch.testing.assert_close(got.double(), want, rtol=2e-4, atol=1e-30)
    assert launches


def test_functions_of_functions(launches: list[int]) -> None:
    def logaddexp(a: Tensor, b: Tensor) -> Tensor:
        return torch.maximum(a, b) + torch.log(1 + torch.exp(-torch.abs(a - b)))

    x = torch.randn(6, 500, 7)
    torch.testing.assert_close(vgraph.reduce(x, (0, 1), logaddexp), x.logsumexp((0, 1)))
    assert launches


def test_a_function_of_two_scalars_that_reads_a_tensor_runs_on_torchs_operators(launches: list[int]) -> None:
    bias = torch.tensor(2.0)
    x = torch.rand(4, 5, 6)
    got = vgraph.reduce(x, (0, 2), lambda a, b: a + b - bias)
    torch.testing.assert_close(got, (x - 2).sum((0, 2)) + 2)
    assert not launches


# ------------------------------------------------------------------ fused producers

PRODUCERS: dict[str, tuple[Callable[..., Tensor], tuple[tuple[int, ...], ...]]] = {
    "product": (lambda a, b: a * b, ((6, 5, 70), (70,))),
    "norm": (lambda a, b: (a - b) ** 2, ((6, 5, 70), (5, 1))),
    "gated": (lambda a, b: torch.sigmoid(a) * torch.tanh(b) + 1, ((6, 1, 70), (1, 5, 1))),
    "masked": (lambda a, b: torch.where(a > b, a, torch.zeros_like(a)), ((6, 5, 70), (6, 1, 1))),
}


@pytest.mark.parametrize(("name", "op"), [*((name, "sum") for name in PRODUCERS), ("gated", "max")])
def test_producers_are_computed_inside(name: str, op: str, launches: list[int]) -> None:
    function, shapes = PRODUCERS[name]
    tensors = tuple(torch.randn(shape) for shape in shapes)
    some = [(0, 2), (1,), (0, 1, 2)]
    for dims in some:
        got = vgraph.reduce(tensors, dims, op, of=function)
        want = torch_reduce(function(*(t.double() for t in tensors)), dims, op, None)
        torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=1e-4)
    assert len(launches) == len(some)


def test_a_function_that_is_not_pointwise_is_stored_first(launches: list[int]) -> None:
    x = torch.randn(4, 5, 6)
    got = vgraph.reduce((x,), (0, 2), of=lambda x: torch.softmax(x, -1))
    torch.testing.assert_close(got, torch.full((5,), 4.0))
    assert len(launches) == 1  # the reduction of what was stored


@pytest.mark.parametrize("with_grad", [True, False])
@pytest.mark.parametrize("op", ["sum", "max"])
def test_functions_find_the_grad_mode_of_the_call(op: str, with_grad: bool, launches: list[int]) -> None:
    """Also in the derivative, and where the sums are made that it needs."""
    x = torch.rand(3, 4, 5, dtype=torch.float64, requires_grad=True)
    factor = 2.0 if with_grad else 7.0

    def scaled(t: Tensor) -> Tensor:
        return t * (2.0 if torch.is_grad_enabled() else 7.0)

    with torch.set_grad_enabled(with_grad):
        found = vgraph.reduce(x, (0, 2), op, of=scaled)
        then = vgraph.reduce(x.detach(), (0, 2), op, then=scaled)
    wanted = torch_reduce(x * factor, (0, 2), op, None)
    torch.testing.assert_close(found, wanted if with_grad else wanted.detach())
    torch.testing.assert_close(then, factor * torch_reduce(x.detach(), (0, 2), op, None))
    assert len(launches) >= 2
    if with_grad:
        (mine,), (theirs,) = (torch.autograd.grad(out.sum(), x) for out in (found, wanted))
        torch.testing.assert_close(mine, theirs)


def test_numbers_and_branches_are_read_anew_at_every_call() -> None:
    x, scale = torch.rand(4, 5, 6), 1.0

    def scaled(x: Tensor) -> Tensor:
        return x * scale

    for scale in (1.0, 2.0):
        torch.testing.assert_close(vgraph.reduce((x,), (0, 2), of=scaled), scale * x.sum((0, 2)))


# ------------------------------------------------------------------ gradients


@pytest.fixture
def compiled_fast() -> Iterator[None]:
    """Which reductions a derivative is made of is tested, and compiling them takes most of the time."""
    with compile_fast():
        yield


@pytest.mark.usefixtures("compiled_fast")
@pytest.mark.parametrize("op", ["sum", "prod", "max", "last"])
def test_gradients(op: str) -> None:
    x = torch.rand(3, 4, 5, dtype=torch.float64) + 0.3
    x[0, 0, 0] = x[1, 1, 1] = 0.0
    x[2, :, :2] = 0.0 if op == "prod" else x[2, :, :2]
    if op in ("max", "min"):
        x = torch.randperm(60).reshape(3, 4, 5).double()
    x.requires_grad_()
    for dims in [(0, 2), (1,), (0, 1, 2)]:

        def run(x: Tensor, dims: tuple[int, ...] = dims) -> Tensor:
            return vgraph.reduce(x, dims, FUNCTIONS.get(op, op))

        assert torch.autograd.gradcheck(run, (x,))
        assert torch.autograd.gradgradcheck(run, (x,))


@pytest.mark.usefixtures("compiled_fast")
@pytest.mark.parametrize("op", ["prod", "max"])
def test_gradients_of_broadcast_operands_are_reductions(op: str, launches: list[int]) -> None:
    a, b = torch.randn(3, 4, 5, dtype=torch.float64), torch.randn(4, 1, dtype=torch.float64)

    def run(a: Tensor, b: Tensor) -> Tensor:
        return vgraph.reduce((a, b), (0, 2), op, of=lambda a, b: torch.tanh(a) * b + b)

    inputs = (a.requires_grad_(), b.requires_grad_())
    assert torch.autograd.gradcheck(run, inputs)
    assert torch.autograd.gradgradcheck(run, inputs)
    before = len(launches)
    run(*inputs).sum().backward()
    assert len(launches) > before + 1


@pytest.mark.usefixtures("compiled_fast")
@pytest.mark.parametrize("again", [False, True], ids=["first", "second"])
@pytest.mark.parametrize("op", ["sum", pytest.param("prod", marks=thorough), "max", "last"])
def test_what_has_no_derivative_by_an_operand_gives_it_nothing(op: str, again: bool) -> None:
    a = torch.randn(3, 4, 5, dtype=torch.float64, requires_grad=True)
    b = torch.randn(4, 1, dtype=torch.float64, requires_grad=True)
    functions: list[tuple[Callable[..., Tensor], bool]] = [
        (lambda a, b: (a > b).double(), False),
        (lambda a, b: a.detach() * b, True),
        (lambda a, b: torch.where(a > 0, b, 2 * b), True),
    ]
    for of, reaches_b in functions:
        reduced = vgraph.reduce((a, b), (0, 2), FUNCTIONS.get(op, op), of=of)
        by_a, by_b = torch.autograd.grad(reduced.sum(), [a, b], create_graph=again, allow_unused=True)
        assert by_a is None or not by_a.any()
        assert reaches_b == (by_b is not None and bool(by_b.any()))


def test_equal_elements_share_the_gradient() -> None:
    x = torch.tensor([[1.0, 3.0, 3.0], [0.0, 3.0, 2.0]], requires_grad=True)
    vgraph.reduce(x, (0, 1), "max").backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, torch.tensor([[0, 1 / 3, 1 / 3], [0, 1 / 3, 0]]))


# ------------------------------------------------------------------ edges of the case table


@pytest.mark.parametrize("kernels", ["0", "1"])
def test_slices_without_elements(kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGRAPH_KERNELS", kernels)
    x = torch.ones(3, 0, 4, requires_grad=True)
    assert vgraph.reduce(x, 1).equal(torch.zeros(3, 4))
    assert vgraph.reduce(x, (0, 1), "prod").equal(torch.ones(4))
    assert vgraph.reduce(x, (0, 1), "max", identity=-math.inf).equal(torch.full((4,), -math.inf))
    assert vgraph.reduce(x, 1, lambda a, b: a * b, identity=1.0).equal(torch.ones(3, 4))
    assert vgraph.reduce(x, (0,), "max").shape == (0, 4)
    assert vgraph.reduce(x, (), "max").equal(x)
    vgraph.reduce(x, 1).sum().backward()
    assert x.grad is not None and x.grad.shape == x.shape
    with pytest.raises(FeatureError, match="hold no elements") as caught:
        vgraph.reduce(x, 1, "max")
    assert "identity=" in caught.value.cure


@pytest.mark.parametrize("kernels", ["0", "1"])
def test_whatever_torch_reduces(kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGRAPH_KERNELS", kernels)
    whole = torch.randint(9, (3, 4, 5))
    assert vgraph.reduce(whole, (0, 2)).equal(whole.sum((0, 2)))
    assert vgraph.reduce(whole.int(), (0, 2), "max").equal(whole.int().amax((0, 2)))
    assert vgraph.reduce(whole > 4, 1).equal((whole > 4).sum(1))
    assert vgraph.reduce(torch.tensor(3.0)).item() == 3.0
    assert vgraph.reduce(torch.randn(2, 3, 4), (0, -1), keepdim=True).shape == (1, 3, 1)
    total = vgraph.reduce(torch.randn(2, 3, dtype=torch.complex64), None)
    assert total.dtype == torch.complex64 and total.shape == ()


def fails(a: Tensor, b: Tensor) -> Tensor:
    return a if a > b else b


@pytest.mark.parametrize(
    ("error", "words", "call"),
    [
        (DimError, "dim 3 of a tensor of 3 dims", lambda x: vgraph.reduce(x, 3)),
        (DimError, "dim 1 is named twice", lambda x: vgraph.reduce(x, (1, -2))),
        (FunctionError, "no operation 'mean'", lambda x: vgraph.reduce(x, 0, "mean")),
        (FunctionError, "op is a int", lambda x: vgraph.reduce(x, 0, 7)),
        (FunctionError, "two scalars fails", lambda x: vgraph.reduce(x, 0, fails)),
        (FunctionError, "two scalars gives", lambda x: vgraph.reduce(x, 0, lambda a, b: a.sum())),
        (FunctionError, "2 tensors and no function", lambda x: vgraph.reduce((x, x), 0)),
        (FunctionError, "of gives", lambda x: vgraph.reduce((x,), 0, of=lambda x: x.sum())),
        (FeatureError, "do not broadcast", lambda x: vgraph.reduce((x, x[:, :1, :2]), 0, of=torch.mul)),
        (FeatureError, "lies on cpu", lambda x: vgraph.reduce((x, x.to("meta")), 0, of=torch.mul)),
        (DTypeError, "given a list", lambda x: vgraph.reduce([x.tolist()], 0)),
        (DTypeError, "given a int", lambda x: vgraph.reduce(5)),
    ],
)
def test_refusals(error: type[vgraph.VGraphError], words: str, call: Callable[[Tensor], Any]) -> None:
    with pytest.raises(error, match=words) as caught:
        call(torch.randn(3, 4, 5))
    assert caught.value.cure and caught.value.line and __file__.rpartition("/")[2] in caught.value.line


@settings(max_examples=60)
@given(data=st.data())
def test_any_shape_any_strides(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 6))
    shape = data.draw(st.lists(st.sampled_from([1, 2, 3, 5, 8, 17]), min_size=rank, max_size=rank))
    while math.prod(shape) > 60000:
        shape[shape.index(max(shape))] = 2
    order = data.draw(st.permutations(range(rank)))
    gaps = data.draw(st.lists(st.sampled_from([1, 1, 2]), min_size=rank, max_size=rank))
    x = torch.randn([n * g for n, g in zip(shape, gaps, strict=True)])[tuple(slice(None, None, g) for g in gaps)]
    x = x.permute(*order)
    dims = tuple(data.draw(st.lists(st.integers(0, rank - 1), unique=True)))
    name = data.draw(st.sampled_from(["sum", "max"]))
    agrees(vgraph.reduce(x, dims, name), x, dims, name)


# ------------------------------------------------------------------ what follows

FOLLOWING: dict[str, Callable[[Tensor], Tensor]] = {
    "root": lambda r: torch.sqrt(r + 1.0), "mean": lambda r: r / 7, "both": lambda r: torch.tanh(r) * r,
}  # fmt: skip


@pytest.mark.parametrize(("name", "dtype"), table([*FOLLOWING], [torch.float32, torch.float64, torch.bfloat16]))
def test_what_follows_is_computed_before_it_is_stored(name: str, dtype: torch.dtype, launches: list[int]) -> None:
    then, cases = FOLLOWING[name], [((17, 16, 130), (0, 2)), ((4000, 3), (0,)), ((3, 40000), (1,)), ((300, 4), (1,))]
    for shape, dims in cases:
        x = torch.rand(shape, dtype=torch.float64).to(dtype) / 50
        got = vgraph.reduce((x,), dims, of=lambda x: x * x, then=then)
        want = then((x.double() ** 2).sum(dims))
        tolerance = 4 * EPSILON[dtype] if dtype == torch.bfloat16 else 64 * EPSILON[dtype]
        torch.testing.assert_close(got.double(), want, rtol=tolerance, atol=tolerance)
        assert got.dtype == dtype
    assert len(launches) == len(cases)


def test_gradients_and_whatever_follows() -> None:
    x = torch.rand(3, 4, 5, dtype=torch.float64, requires_grad=True)

    def norm(x: Tensor) -> Tensor:
        return vgraph.reduce((x,), (0, 2), of=lambda x: x * x, then=torch.sqrt, keepdim=True)

    assert torch.autograd.gradcheck(norm, (x,)) and torch.autograd.gradgradcheck(norm, (x,))
    given = x.detach()
    torch.testing.assert_close(norm(given), (given * given).sum((0, 2), keepdim=True).sqrt())
    by_library = vgraph.reduce(given, (0, 2), then=lambda r: r.softmax(0))  # not pointwise
    torch.testing.assert_close(by_library, given.sum((0, 2)).softmax(0))
    assert vgraph.reduce(given, 2, then=lambda r: r > 2).equal(given.sum(2) > 2)
    assert vgraph.reduce(torch.ones(3, 0), 1, then=torch.exp).equal(torch.ones(3))
    with pytest.raises(FunctionError, match="then gives") as caught:
        vgraph.reduce(given, 2, then=lambda r: r.sum())
    assert caught.value.cure and caught.value.line
