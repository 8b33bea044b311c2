"""Files of others: bytes, text, arrays and tensors, of which no size is believed before it is checked.

Takes: paths. Gives: what the files hold, or a DataError. Runs once per file. Loaders read files through here alone.
"""

from vgraph.files.archive import read_archive
from vgraph.files.arrays import extract_arrays, read_array, read_arrays
from vgraph.files.content import (
    Pickled,
    check_vertices,
    damage_told,
    most_dense,
    most_vertices,
    read_bytes,
    read_json,
    read_lines,
    read_text,
    refuse_expansion,
    unreadable,
)
from vgraph.files.json_items import read_json_items
from vgraph.files.mapped import map_array
from vgraph.files.matlab import read_matlab, read_matlab_matrices
from vgraph.files.packed import unpack
from vgraph.files.pickled import read_pickle
from vgraph.files.sparse_arrays import SparseMatrix, dense_rows, read_sparse, sparse_of

__all__ = [
    "Pickled",
    "SparseMatrix",
    "check_vertices",
    "damage_told",
    "dense_rows",
    "extract_arrays",
    "map_array",
    "most_dense",
    "most_vertices",
    "read_archive",
    "read_array",
    "read_arrays",
    "read_bytes",
    "read_json",
    "read_json_items",
    "read_lines",
    "read_matlab",
    "read_matlab_matrices",
    "read_pickle",
    "read_sparse",
    "read_text",
    "refuse_expansion",
    "sparse_of",
    "unpack",
    "unreadable",
]
