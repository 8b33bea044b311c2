"""What is measured once: which way is taken, what is kept on disk, and what is read of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import vgraph
import vgraph.function as fn
from vgraph import config, native_part
from vgraph.cli import info
from vgraph.runtime.cpu import choices, products
from vgraph.runtime.cpu.choices import MOST_SECONDS, ROUNDS, Choice, Choices, of_machine
from vgraph.runtime.cpu.native import Native
from vgraph.runtime.cpu.products import FEW_OPERATIONS, ChosenProducts
from vgraph.runtime.distributed.groups import is_alone

explain_module = import_module("vgraph.api.explain")
IDENTITY = ("processor of a test", "threads 3")
WAY = Choice("way", ("one", "two"), default=lambda: "one", how="by a clock of the test")


class Clock:
    """Stands still, but for what ways take; ``shares``: of each turn to come, how much of it this process runs."""

    now = own = 0.0

    def __init__(self) -> None:
        self.shares = list[float]()

    def __call__(self) -> float:
        return self.now

    def of_processor(self) -> float:
        return self.own

    def run(self, seconds: float) -> None:
        self.now += seconds
        self.own += seconds * (self.shares.pop(0) if self.shares else 1.0)

    def ways(self, **seconds: float | list[float]) -> Callable[[], dict[str, Callable[[], None]]]:
        """Functions that take so long, each time or by turns."""
        left = {name: [took] * (ROUNDS + 1) if isinstance(took, float) else took for name, took in seconds.items()}
        return lambda: {name: lambda name=name: self.run(left[name].pop(0)) for name in seconds}


def made(folder: Path, *identity: str) -> tuple[Choices, Clock]:
    clock = Clock()
    return Choices(folder, identity or IDENTITY, clock, clock.of_processor), clock


@pytest.mark.parametrize(("two", "taken"), [(0.5, "two"), (0.89, "two"), (0.95, "one"), (2.0, "one")])
def test_the_default_stays_unless_another_way_is_clearly_faster(tmp_path: Path, two: float, taken: str) -> None:
    found, clock = made(tmp_path)
    assert found.decide(WAY, "here", clock.ways(one=0.01, two=0.01 * two)) == taken
    decision = found.known(WAY, "here")
    assert decision is not None
    assert dict(decision.seconds) == pytest.approx({"one": 0.01, "two": 0.01 * two})


def test_the_best_of_several_turns_counts(tmp_path: Path) -> None:
    """The first is left out: it may load what later ones have."""
    found, clock = made(tmp_path)
    slow = [9e-2] * (ROUNDS - 1)
    assert found.decide(WAY, "here", clock.ways(one=[1e-9, *slow, 2e-3], two=[9.0, 1e-3, *slow])) == "two"


def test_nothing_is_decided_while_other_work_has_the_processor(tmp_path: Path) -> None:
    """The default is taken and not kept: a later process measures."""
    found, clock = made(tmp_path)
    clock.shares = [0.4, 1.0] * (ROUNDS + 1)
    assert found.decide(WAY, "here", clock.ways(one=0.02, two=0.01)) == "one"
    assert found.known(WAY, "here") is None
    assert not found.path.exists()
    later, its_clock = made(tmp_path)
    its_clock.shares = [1.7, 1.0] * (ROUNDS + 1)  # two threads, and one
    assert later.decide(WAY, "here", its_clock.ways(one=0.02, two=0.01)) == "two"


def test_turns_in_which_other_work_had_the_processor_do_not_count(tmp_path: Path) -> None:
    found, clock = made(tmp_path)
    clock.shares = [1.0, 1.0, 1.0, 0.5, 1.0, 1.0] * (ROUNDS // 2)  # every third turn of the second way
    slow_and_met = [0.03, 0.01, 0.03] * (ROUNDS // 2)
    assert found.decide(WAY, "here", clock.ways(one=0.02, two=[*slow_and_met, 0.03])) == "one"
    decision = found.known(WAY, "here")
    assert decision is not None
    assert dict(decision.seconds) == pytest.approx({"one": 0.02, "two": 0.03})


def test_what_was_decided_is_read_and_not_measured_again(tmp_path: Path) -> None:
    found, clock = made(tmp_path)
    assert found.decide(WAY, "here", clock.ways(one=0.02, two=0.01)) == "two"
    assert found.decide(WAY, "here", None) == "two"
    later, _ = made(tmp_path)
    assert later.decide(WAY, "here", lambda: pytest.fail("it was measured again")) == "two"
    assert list(later.lines()) == ["way, here: two (one 20 ms, two 10 ms)"]
    elsewhere, _ = made(tmp_path, "another processor", "threads 3")
    assert elsewhere.known(WAY, "here") is None


def test_what_another_process_decided_meanwhile_holds(tmp_path: Path) -> None:
    found, clock = made(tmp_path)
    assert found.known(WAY, "here") is None
    other, its_clock = made(tmp_path)
    other.decide(WAY, "here", its_clock.ways(one=0.01, two=0.02))
    other.decide(WAY, "there", its_clock.ways(one=0.01, two=0.02))
    assert found.decide(WAY, "here", clock.ways(one=0.02, two=0.01)) == "one"
    assert found.known(WAY, "there") is not None


@pytest.mark.parametrize("damage", [b"", b"cut", b"flip", b"long", b"other"])
def test_a_damaged_file_is_measured_anew(tmp_path: Path, damage: bytes) -> None:
    found, clock = made(tmp_path)
    found.decide(WAY, "here", clock.ways(one=0.02, two=0.01))
    whole = found.path.read_bytes()
    unknown = whole.replace(b"\ttwo\tone", b"\tsix\tone").rpartition(b"\n")[0]
    texts = {
        b"": b"",
        b"cut": whole[:-70],
        b"flip": whole.replace(b"\ttwo\tone", b"\tone\tone"),
        b"long": whole * 20_000,
        b"other": unknown + b"\n" + choices._digest(unknown),
    }
    assert texts[damage] != whole
    found.path.write_bytes(texts[damage])
    later, its_clock = made(tmp_path)
    assert later.known(WAY, "here") is None
    assert later.decide(WAY, "here", its_clock.ways(one=0.01, two=0.02)) == "one"
    assert found.path.read_bytes() != texts[damage]


def test_a_process_measures_for_a_limited_time(tmp_path: Path) -> None:
    found, clock = made(tmp_path)
    assert found.decide(WAY, "slow", clock.ways(one=MOST_SECONDS, two=0.1)) == "two"
    assert found.decide(WAY, "next", lambda: pytest.fail("the time is spent")) == "one"
    assert found.known(WAY, "next") is None


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found, clock = made(tmp_path / "file" / "below")
    assert found.decide(WAY, "here", clock.ways(one=0.02, two=0.01)) == "two"
    assert found.decide(WAY, "here", None) == "two"


def test_what_holds_for_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGRAPH_CACHE_DIR", str(tmp_path))
    found = of_machine("0")
    assert found is of_machine("0")
    assert found.path.parent == tmp_path / "choices"
    assert f"threads {torch.get_num_threads()}" in found.identity
    monkeypatch.setattr(torch, "get_num_threads", lambda: 77)
    assert of_machine("0").path != found.path != of_machine("1").path


# ---------------------------------------------------------------- products
@pytest.fixture
def native(with_kernels: None) -> Native:
    found = native_part.load_native()
    if found is None:
        pytest.skip("no compiler")
    return found


class Measured:
    """Chosen products on a clock by which one way is the faster; ``runs``: those that were timed."""

    def __init__(self, folder: Path, native: Native, monkeypatch: pytest.MonkeyPatch, faster: str = "own") -> None:
        self.choices, clock = made(folder)
        self.runs, self.own = list[str](), list[int]()
        real, multiply = products._ways, Native.multiply

        def ways(*given: Any) -> dict[str, Callable[[], None]]:
            def run(name: str) -> None:
                real(*given)[name]()
                self.runs.append(name)
                clock.run(0.001 if name == faster else 0.01)

            return {name: lambda name=name: run(name) for name in products.PRODUCTS.candidates}

        def noted(self_: Native, *given: Any) -> Tensor:
            self.own.append(1)
            return multiply(self_, *given)

        monkeypatch.setattr(products, "_ways", ways)
        monkeypatch.setattr(Native, "multiply", noted)
        self.is_alone = True
        self.native = replace(native, choose=ChosenProducts(lambda: self.is_alone, lambda: self.choices))

    def is_own(self, m: int = 300, k: int = 64, n: int = 64) -> bool:
        """Whether a product is made by native code, and what it is."""
        a, b = torch.randn(m, k).double(), torch.randn(k, n).double()
        found = self.native.choose
        assert found is not None
        measured = found(self.native, a, b, None)
        before = len(self.own)
        torch.testing.assert_close(self.native.mm(a, b), a @ b)
        assert measured == (len(self.own) > before)
        return measured


@pytest.mark.parametrize("faster", ["own", "library"])
def test_a_product_is_made_where_it_is_faster(
    tmp_path: Path, native: Native, monkeypatch: pytest.MonkeyPatch, faster: str
) -> None:
    found = Measured(tmp_path, native, monkeypatch, faster)
    assert found.is_own() == (faster == "own")
    assert found.runs == ["own", "library"] * (ROUNDS + 1)
    assert found.is_own(400) == (faster == "own")  # with as many digits
    assert len(found.runs) == 2 * (ROUNDS + 1)
    assert list(found.choices.lines()) == [f"products, float64 256+ x 64 by 64: {faster} {TIMES[faster]}"]
    rows, ids = torch.randn(90, 32).double(), torch.randint(0, 90, (400,), dtype=torch.int32)
    left, before = torch.randn(64, 400).double(), len(found.own)
    torch.testing.assert_close(found.native.mm_of_rows(left, (rows, ids)), left @ rows[ids.long()])
    assert len(found.runs) == 4 * (ROUNDS + 1)
    assert len(found.own) - before == ROUNDS + 1 + (faster == "own")
    bias = torch.randn(64).double()
    found.native.addmm(bias, left, torch.randn(400, 64).double())
    assert len(found.runs) == 6 * (ROUNDS + 1)


TIMES = {"own": "(own 1 ms, library 10 ms)", "library": "(own 10 ms, library 1 ms)"}


@pytest.mark.parametrize("fixed", ["0", "1"])
def test_what_is_fixed_is_not_measured(
    tmp_path: Path, native: Native, monkeypatch: pytest.MonkeyPatch, fixed: str
) -> None:
    """Small products, those of ranks that must choose alike, and those under deterministic algorithms."""
    monkeypatch.setenv("VGRAPH_PRODUCTS", fixed)
    found = Measured(tmp_path, native, monkeypatch, "library" if fixed == "1" else "own")
    rows = FEW_OPERATIONS // (2 * 64 * 64) - 1
    assert found.is_own(rows) == (fixed == "1")
    found.is_alone = False
    assert found.is_own() == (fixed == "1")
    assert not found.runs
    found.is_alone = True
    assert found.is_own(1000) != (fixed == "1")
    found.is_alone = False
    assert found.is_own(900) != (fixed == "1")  # what the file says holds for ranks
    assert len(found.runs) == 2 * (ROUNDS + 1)
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    assert found.is_own(1000) == (fixed == "1")


@pytest.mark.parametrize("sizes", [(10, 20, 30), (10**6, 128, 64), (5000, 5000, 5000), (64, 10**6, 128), (3, 10**9, 1)])
def test_what_is_measured_does_not_take_long(sizes: tuple[int, int, int]) -> None:
    found = products._measured_sizes(*sizes)
    m, k, n = found
    is_deep = products.is_tall(*(sizes[i] for i in (0, 2, 1)))
    most = max(products.MOST_OPERATIONS * torch.get_num_threads(), 2 * m * n * products.TALL if is_deep else 0)
    assert all(0 < one <= given for one, given in zip(found, sizes, strict=True))
    assert 2 * m * k * n <= 2 * most
    assert products.is_tall(m, n, k) == is_deep


@pytest.mark.guards
def test_explain_and_info_tell(tmp_path: Path, native: Native, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Measured(tmp_path, native, monkeypatch)
    g, weight = vgraph.rand_graph(300, 400), torch.randn(64, 64).double()
    g.ndata["h"] = torch.randn(300, 64).double()

    def message(edges: vgraph.EdgeBatch) -> dict[str, Tensor]:
        return {"m": edges.src["h"] @ weight}

    assert found.is_own()
    monkeypatch.setattr(explain_module, "load_native", lambda: found.native)
    assert f"[a product of matrices: own {TIMES['own']}]" in str(vgraph.explain(g, message, fn.sum("m", "s")))
    monkeypatch.setattr(info, "choices_of_machine", lambda: found.choices)
    assert list(info._describe_choices()) == ["fixed by VGRAPH_TUNE=0: nothing is measured"]
    monkeypatch.setenv("VGRAPH_TUNE", "1")
    monkeypatch.setenv("VGRAPH_PRODUCTS", "0")
    table, *lines = info._describe_choices()
    assert table.startswith("products: own or library, library if not measured; on the operands")
    assert lines == [f"products, float64 256+ x 64 by 64: own {TIMES['own']}"]


def test_native_code_measures_unless_told_otherwise(native: Native, monkeypatch: pytest.MonkeyPatch) -> None:
    ways = {("0", ""): None, ("1", ""): True, ("1", "1"): None, ("1", "0"): None}
    for (tune, asked), measures in ways.items():
        monkeypatch.setenv("VGRAPH_TUNE", tune)
        monkeypatch.setenv("VGRAPH_PRODUCTS", asked)
        native_part.begin_native.cache_clear()
        found = native_part.load_native()
        assert found is not None
        assert (found.choose is not None) == bool(measures)
        assert found.multiplies == (measures or (config.own_products()))


def test_who_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert is_alone()
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert not is_alone()
