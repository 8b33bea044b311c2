"""Dot: what is written is read again; what others write is understood or refused with its line."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from benchmarks.placing.random_graphs import fork_join
from tests.partition.placing import op_graphs
from vgraph.errors import CycleError, DataError, GraphError
from vgraph.partition.placement.dot import format_dot, parse_dot
from vgraph.partition.placement.op_graph import OpGraph

HAND = """
// two branches
digraph "by hand" {
  rankdir=LR;
  node [shape=box];
  a [cost=0.5]; b [cost=1.0]
  "c d" [cost=2, resident=64];
  e [cost=1e-1];  # the end
  a -> b -> e [bytes=8];
  a -> "c d" [bytes=16];
  "c d" -> e [bytes=4];
}
"""


def edges_of(graph: OpGraph) -> set[tuple[str, str, float]]:
    source, target, size = graph.op_edges
    names = graph.names
    return {(names[a], names[b], s) for a, b, s in zip(source.tolist(), target.tolist(), size.tolist(), strict=True)}


@given(op_graphs(num_kinds=2))
def test_round_trip(graph: OpGraph) -> None:
    again = parse_dot(format_dot(graph))
    place = [again.names.index(name) for name in graph.names]
    assert edges_of(again) == edges_of(graph)
    assert again.kinds == graph.kinds
    np.testing.assert_array_equal(again.costs[:, place], graph.costs)
    np.testing.assert_array_equal(again.resident[place], graph.resident)
    np.testing.assert_array_equal(np.sort(again.op_bytes), np.sort(graph.op_bytes))
    assert again.tensor_kept.sum() == graph.tensor_kept.sum()
    assert len(again.members) == len(graph.members)


def test_a_file_written_by_hand() -> None:
    graph = parse_dot(HAND)
    assert graph.names == ("a", "b", "c d", "e")
    assert graph.costs.tolist() == [[0.5, 1.0, 2.0, 0.1]]
    assert graph.resident.tolist() == [0.0, 0.0, 64.0, 0.0]
    assert edges_of(graph) == {("a", "b", 16.0), ("a", "c d", 16.0), ("b", "e", 8.0), ("c d", "e", 4.0)}


def test_devices_have_colours() -> None:
    graph = fork_join(1, 2, 1)
    text = format_dot(graph, np.array([0, 0, 1, 0]))
    assert text.count(" device=0") == 3 and text.count(" device=1") == 1
    assert len({line.split("fillcolor=")[1] for line in text.splitlines() if " device=" in line}) == 2


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("digraph { a [cost=1]; b [cost=1]; a -> b -> a; }", CycleError, "operators wait for one another"),
        ("digraph { a [cost=1];\n a -> b; }", GraphError, r"operator .b., which is not declared\n  at f.dot:2"),
        ("digraph { a [cost=1]; b [cost=1];\nc [cost=1]; a -> b; }", GraphError, r"'c' is unreachable.*\n  at f.dot:2"),
        ("graph { a -- b; }", DataError, "'graph' where 'digraph' should stand\n  at f.dot:1"),
        ("digraph { a [cost=1] a [cost=1] }", DataError, "operator 'a' is declared twice"),
        ("digraph {\n\n a [cost=fast]; }", DataError, "'fast' is no number\n  at f.dot:3"),
        ("digraph { a [bytes=x]; b; a -> b [bytes=many]; }", DataError, "'many' is no number"),
        ("digraph { subgraph x { a } }", DataError, "'subgraph' where 'a name' should stand"),
        ("digraph { a [cost=1]; ", DataError, "'the end' where 'a name' should stand"),
        ("digraph { & }", DataError, "'&' is not understood"),
        ("digraph { }", DataError, "declares no operator"),
        ('digraph { a [cost="x=1 y=2"]; b [cost="x=1"]; a -> b; }', DataError, "costs on x where the first has"),
        ("digraph { a [cost=-1]; }", GraphError, "operator 'a' takes"),
    ],
)  # fmt: skip
def test_refusals(text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        parse_dot(text, "f.dot")
