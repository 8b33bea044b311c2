"""Files of others: bytes, text, arrays and tensors, of which no size is believed before it is checked.

Takes: paths. Gives: what the files hold, or a DataError. Runs once per file. Loaders read files through here alone.
"""

from vgraph.files.archive import read_archive
from vgraph.files.arrays import check_header, extract_arrays, read_array, read_arrays
from vgraph.files.content import (
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
from vgraph.files.mapped import map_array
from vgraph.files.packed import unpack

__all__ = [
    "check_header",
    "check_vertices",
    "damage_told",
    "extract_arrays",
    "map_array",
    "most_dense",
    "most_vertices",
    "read_archive",
    "read_array",
    "read_arrays",
    "read_bytes",
    "read_json",
    "read_lines",
    "read_text",
    "refuse_expansion",
    "unpack",
    "unreadable",
]
