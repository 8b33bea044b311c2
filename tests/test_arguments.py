"""Numbers that layers, samplers and functions of graphs take: each has bounds, and what is outside is told by name."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

import vgraph
from tests.public_names import GIVEN, MADE_BY, public_things
from vgraph import nn, sampling
from vgraph.arguments import COUNT, FLAG, NUMBER, PART, POSITIVE, checked, whole
from vgraph.errors import ArgumentError, FunctionError

GRAPHS = re.compile(r"GraphData|Graph|AnyGraph|vgraph\.Graph")
FLAGS = re.compile(r"bool( \| None)?")
NUMBERS = re.compile(r"(int|float)( \| (tuple\[(int|float), (int|float)\]|None|int|float))*|Mapping\[str, int\]")


# a number that is compared with ids, one that torch takes, one that may also be several
WITHOUT = {"vgraph.graph", "vgraph.from_pandas", "vgraph.distributed.BatchNorm1d", "vgraph.reduce"}
NOT_CALLED = {*MADE_BY, *(place.replace(":", ".") for place in GIVEN)}
TELL_OF_GRAPHS = ("ops.", "nn.")  # in words of their own
OF_ANYTHING = "sampling.DataLoader(graph)"  # of which the program's own sampler may draw
OTHERS = ("vgraph.sparse.", "vgraph.tdl.", "vgraph.errors.")  # a DimError tells of dims; sizes by name


def callables() -> Iterator[tuple[str, Callable[..., object]]]:
    """Every public function and class that users call; records are made of what has been checked."""
    for public in public_things():
        is_record = dataclasses.is_dataclass(public.thing) or hasattr(public.thing, "_fields")
        is_called = public.owner is None and public.name not in NOT_CALLED and not is_record
        if is_called and public.name not in WITHOUT and not public.name.startswith(OTHERS):
            yield public.name.removeprefix("vgraph."), public.thing


def test_every_number_has_bounds_that_refuse_a_word_before_anything_is_done() -> None:
    missing, accepted = list[str](), list[str]()
    for name, function in callables():
        called = function.__init__ if inspect.isclass(function) else function
        for parameter in inspect.signature(function).parameters.values():
            if not NUMBERS.fullmatch(str(parameter.annotation)):
                continue
            if parameter.name not in getattr(called, "bounds", {}):
                missing.append(f"{name}({parameter.name})")
                continue
            try:
                function(**{parameter.name: "three"})
            except ArgumentError as error:
                assert f"{parameter.name}='three'" in error.fact
            else:
                accepted.append(f"{name}({parameter.name})")
    assert (missing, accepted) == ([], [])


def test_every_flag_and_graph_has_a_bound_that_refuses_another_thing() -> None:
    missing = list[str]()
    for name, function in callables():
        called = function.__init__ if inspect.isclass(function) else function
        for parameter in inspect.signature(function).parameters.values():
            is_flag, is_graph = (bool(kind.fullmatch(str(parameter.annotation))) for kind in (FLAGS, GRAPHS))
            if not (is_flag or is_graph) or (is_graph and name.startswith(TELL_OF_GRAPHS)):
                continue
            if parameter.name not in getattr(called, "bounds", {}):
                missing.append(f"{name}({parameter.name})")
                continue
            for wrong in ("False", torch.ones(2, dtype=torch.bool), [True], object()):
                with pytest.raises((ArgumentError, FunctionError)) as caught:
                    function(**{parameter.name: wrong})
                assert f"({parameter.name}=" in caught.value.fact
                assert ("True or False" if is_flag else "vgraph.Graph") in caught.value.cure
    assert missing == [OF_ANYTHING]


def test_every_layer_says_that_it_is_called_on_no_graph() -> None:
    tried = 0
    for name, layer in callables():
        if not (name.startswith("nn.") and inspect.isclass(layer) and hasattr(layer, "forward")):
            continue
        parameters = inspect.signature(layer.forward).parameters.values()
        if not any(GRAPHS.fullmatch(str(one.annotation)) for one in parameters):
            continue
        given = [object() for one in parameters if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD]
        with pytest.raises(FunctionError, match="is called on a object, not on a graph"):
            layer.forward(layer.__new__(layer), *given[1:])
        tried += 1
    assert tried > 40


@pytest.mark.parametrize(
    ("call", "fact", "cure"),
    [
        (lambda: nn.GATConv(3, 2, 0), "GATConv(num_heads=0)", "give a whole number, 1 or more"),
        (lambda: nn.GATConv(3, 0, 1), "GATConv(out_feats=0)", "1 or more"),
        (lambda: nn.TypedLinear(0, 1, 1), "TypedLinear(in_size=0)", "1 or more"),
        (lambda: nn.TWIRLSConv(2, 2, 2, 1, lam=-1), "TWIRLSConv(lam=-1)", "0 or more"),
        (lambda: vgraph.random_walk_pe(RING, 2**70), f"random_walk_pe(k={2**70})", "1 or more, of 64 bits"),
        (lambda: nn.GATConv((3, -1), 2, 1), "GATConv(in_feats=(3, -1))", "give a whole number, 0 or more, or a pair"),
        (lambda: nn.ChebConv(3, 2, 0), "ChebConv(k=0)", "1 or more"),
        (lambda: nn.SGConv(3, 2, k=-1), "SGConv(k=-1)", "0 or more"),
        (lambda: nn.APPNPConv(3, alpha=7.0), "APPNPConv(alpha=7.0)", "give a number from 0 to 1"),
        (lambda: nn.GraphConv(3, 2.0), "GraphConv(out_feats=2.0)", "whole number"),
        (lambda: nn.RelGraphConv(3, 2, 2, "basis", 0), "RelGraphConv(num_bases=0)", "1 or more, or None"),
        (lambda: nn.HeteroLinear({"user": -3}, 2), "HeteroLinear(in_size={'user': -3})", "for every name"),
        (
            lambda: nn.PNAConv(3, 2, [], ["identity"], 1.0),
            "PNAConv(aggregators=[])",
            "give a list of one or more names",
        ),
        (lambda: nn.PNAConv(3, 2, ["sum"], [], 1.0), "PNAConv(scalers=[])", "give a list of one or more names"),
        (lambda: nn.DGNConv(3, 2, "sum", ["identity"], 1.0), "DGNConv(aggregators='sum')", "one or more names"),
        (lambda: sampling.Uniform(1.5), "Uniform(k=1.5)", "0 or more"),
        (lambda: sampling.GlobalUniform(True), "GlobalUniform(k=True)", "0 or more"),
        (lambda: sampling.random_walk(RING, [0], length=2.5), "random_walk(length=2.5)", "0 or more"),
        (lambda: vgraph.lap_pe(RING, -1), "lap_pe(k=-1)", "0 or more"),
        (lambda: vgraph.radius_graph(torch.ones(2, 2), float("nan")), "radius_graph(r=nan)", "0 or more"),
    ],
)
def test_what_is_outside_is_told_with_the_users_line(call: Callable[[], object], fact: str, cure: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        call()
    error = caught.value
    assert error.fact == fact and cure in error.cure and __file__ in error.line
    assert isinstance(error, ValueError)


RING = vgraph.graph(([0, 1, 2], [1, 2, 0]))


def test_flags_of_other_libraries_are_flags() -> None:
    for flag in (True, False, None, 0, 1, np.bool_(True), torch.tensor(False), torch.ones(1, dtype=torch.bool)):
        assert FLAG.accepts(flag)
    for other in ("False", "", [], 2, 0.5, torch.ones(2), np.zeros(2, bool), float("nan")):
        assert not FLAG.accepts(other)


def test_numbers_of_other_libraries_are_numbers() -> None:
    for three in (3, np.int32(3), torch.tensor(3)):
        assert COUNT.accepts(three) and POSITIVE.accepts(three) and whole().accepts(three)
    for half in (0.5, np.float32(0.5), torch.tensor(0.5)):
        assert PART.accepts(half) and NUMBER.accepts(half) and not COUNT.accepts(half)
    for other in (None, "1", True, torch.ones(2), [1], float("nan")):
        assert not COUNT.accepts(other)
    assert not any(map(PART.accepts, (None, "1", torch.ones(2), [1], float("nan"), 10**400)))


def test_defaults_and_positions() -> None:
    @checked(k=POSITIVE, most=COUNT.or_none())
    def taken(k: int = 0, most: int | None = None) -> tuple[int, int | None]:
        """Gives them back."""
        return k, most

    assert taken() == (0, None) and taken(2) == (2, None) and taken(1, most=0) == (1, 0)
    assert str(inspect.signature(taken)) == "(k: 'int' = 0, most: 'int | None' = None) -> 'tuple[int, int | None]'"
    for wrong in (lambda: taken(0), lambda: taken(1, -1), lambda: taken(most=-1)):
        with pytest.raises(ArgumentError):
            wrong()


@pytest.mark.parametrize("mode", ["cat", "max"])
def test_no_results_to_join(mode: str) -> None:
    with pytest.raises(FunctionError, match="no layer's result to join"):
        nn.JumpingKnowledge(mode)([])


def test_whole_numbers_of_other_libraries_reach_a_function_as_an_int() -> None:
    @checked(k=POSITIVE, most=POSITIVE.or_none())
    def halved(k: int, *, most: int | None = None) -> tuple[int, int | None]:
        k //= 2  # which would write to a tensor
        return k, most

    given = torch.tensor([9])
    assert halved(given, most=given) == (4, 9) and halved(k=np.int64(9)) == (4, None)  # pyright: ignore
    assert halved(9, most=None) == (4, None) and given.tolist() == [9]


def test_arguments_by_name_alone_stand_behind_any_number_of_others() -> None:
    @checked(seed=POSITIVE.or_none())
    def given(*inputs: object, seed: int | None = None) -> tuple[object, ...]:
        return (*inputs, seed)

    assert given("a", "b", seed=3) == ("a", "b", 3)
    with pytest.raises(ArgumentError):
        given("a", seed=-1)
