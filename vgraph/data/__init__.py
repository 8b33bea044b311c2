"""Data: loaders for trees, circuits and graphs, and the trees that every machine has.

Takes: paths. Gives: graphs and datasets of graphs. Runs once per file.
"""

from vgraph.data.aiger import AIG, Circuit, load_aiger, parse_aiger
from vgraph.data.edge_list import EdgeList, load_edge_list, parse_edge_list
from vgraph.data.heterophilous import load_heterophilous
from vgraph.data.planetoid import CitationArrays, CitationGraph, load_planetoid, parse_planetoid
from vgraph.data.rdf import RdfGraph, RdfTask, load_rdf, load_rdf_task, parse_ntriples
from vgraph.data.sst import (
    Forest,
    TreeDataset,
    TreeSample,
    TreeSplits,
    build_vocabulary,
    load_ptb,
    load_sst,
    parse_ptb,
    renumber_words,
)
from vgraph.data.syntax import FunctionTree, load_syntax, parse_functions
from vgraph.data.tu import LabelledGraphs, load_tu, parse_tu

__all__ = [
    "AIG",
    "Circuit",
    "CitationArrays",
    "CitationGraph",
    "EdgeList",
    "Forest",
    "FunctionTree",
    "LabelledGraphs",
    "RdfGraph",
    "RdfTask",
    "TreeDataset",
    "TreeSample",
    "TreeSplits",
    "build_vocabulary",
    "load_aiger",
    "load_edge_list",
    "load_heterophilous",
    "load_planetoid",
    "load_ptb",
    "load_rdf",
    "load_rdf_task",
    "load_sst",
    "load_syntax",
    "load_tu",
    "parse_aiger",
    "parse_edge_list",
    "parse_functions",
    "parse_ntriples",
    "parse_planetoid",
    "parse_ptb",
    "parse_tu",
    "renumber_words",
]
