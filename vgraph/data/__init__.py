"""Data: loaders for trees, circuits and graphs, and the trees that every machine has.

Takes: paths. Gives: graphs and datasets of graphs. Runs once per file.
"""

from vgraph.data.aiger import AIG, Circuit, load_aiger, parse_aiger
from vgraph.data.conllu import load_conllu, parse_conllu
from vgraph.data.dags import DagDataset, load_dags
from vgraph.data.edge_list import EdgeList, load_edge_list, parse_edge_list
from vgraph.data.heterophilous import load_heterophilous
from vgraph.data.listops import load_listops, parse_listops
from vgraph.data.matrix import load_matrix
from vgraph.data.musae import load_musae
from vgraph.data.planetoid import CitationArrays, CitationGraph, load_planetoid, parse_planetoid
from vgraph.data.rdf import RdfGraph, RdfTask, load_rdf, load_rdf_task, parse_ntriples
from vgraph.data.sick import PairDataset, PairSample, PairSplits, load_pairs, load_sick
from vgraph.data.smiles import Molecule, MoleculeDataset, load_smiles, parse_smiles
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
    split_trees,
)
from vgraph.data.syntax import FunctionTree, load_syntax, parse_functions
from vgraph.data.tu import LabelledGraphs, load_tu, parse_tu

__all__ = [
    "AIG",
    "Circuit",
    "CitationArrays",
    "CitationGraph",
    "DagDataset",
    "EdgeList",
    "Forest",
    "FunctionTree",
    "LabelledGraphs",
    "Molecule",
    "MoleculeDataset",
    "PairDataset",
    "PairSample",
    "PairSplits",
    "RdfGraph",
    "RdfTask",
    "TreeDataset",
    "TreeSample",
    "TreeSplits",
    "build_vocabulary",
    "load_aiger",
    "load_conllu",
    "load_dags",
    "load_edge_list",
    "load_heterophilous",
    "load_listops",
    "load_matrix",
    "load_musae",
    "load_pairs",
    "load_planetoid",
    "load_ptb",
    "load_rdf",
    "load_rdf_task",
    "load_sick",
    "load_smiles",
    "load_sst",
    "load_syntax",
    "load_tu",
    "parse_aiger",
    "parse_conllu",
    "parse_edge_list",
    "parse_functions",
    "parse_listops",
    "parse_ntriples",
    "parse_planetoid",
    "parse_ptb",
    "parse_smiles",
    "parse_tu",
    "renumber_words",
    "split_trees",
]
