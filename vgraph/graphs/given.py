"""What functions of graphs ask of the graph that they are given.

Takes: nothing. Gives: the bound that stands above them. Runs at every call.
"""

from vgraph.arguments import Bound
from vgraph.errors import FunctionError
from vgraph.graphs.graph_data import GraphData

GRAPH = Bound("a vgraph.Graph", lambda given: isinstance(given, GraphData), FunctionError)
