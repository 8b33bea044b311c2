"""What functions of graphs ask of the graph that they are given.

Takes: nothing. Gives: the bound that stands above them. Runs at every call.
"""

from collections.abc import Sequence

from torch import Tensor

from vgraph.arguments import Bound, is_iterable
from vgraph.errors import DTypeError, FunctionError
from vgraph.graphs.graph_data import GraphData

GRAPH = Bound("a vgraph.Graph", lambda given: isinstance(given, GraphData), FunctionError)
GRAPHS = Bound("a list of graphs", is_iterable, FunctionError)
ONE_OR_MORE = Bound(
    "a graph, or a list of them", lambda given: GRAPH.accepts(given) or is_iterable(given), FunctionError
)
TENSOR = Bound("a tensor", lambda given: isinstance(given, Tensor), DTypeError)


def refuse_others(items: Sequence[object]) -> None:
    """FunctionError: one of several graphs is none."""
    for index, item in enumerate(items):
        if not isinstance(item, GraphData):
            fact = f"item {index} of the graphs is a {type(item).__name__}, not a graph"
            cure = "pass the graphs alone, as in batch([sample.graph for sample in samples])"
            raise FunctionError(fact, cure=cure)
