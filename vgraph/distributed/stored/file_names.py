"""File names: which array of a partitioned graph lies in which file.

Takes: types and features by name. Gives: paths below the graph's folder. Runs once per file.
Names of users may hold any letter; in a file's name all but ASCII letters, digits, "_" and "-" are written as %XX.
"""

from __future__ import annotations

from vgraph.errors import GraphError
from vgraph.graphs.data import UNTYPED, EdgeType

MANIFEST = "graph.json"
LONGEST = 200  # letters of a file's name; file systems have 255 bytes
PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
OF_EDGES = ("ptr", "src", "eid", "outdeg", "out_ptr", "out_dst", "out_eid")
RESERVED = frozenset(("orig", *OF_EDGES))


def part_folder(part: int) -> str:
    """The folder of a part's files."""
    return f"part-{part:05}"


def orig_ids_file(ntype: str) -> str:
    """The file of the original ids of the nodes of a type."""
    return f"{encoded(ntype)}.orig.npy"


def edge_file(etype: EdgeType, what: str) -> str:
    """The file of an array (of ``OF_EDGES``) of the edges of a type."""
    return f"{_edge_prefix(etype)}.{what}.npy"


def node_feature_file(ntype: str, name: str) -> str:
    """The file of a feature of nodes."""
    return _short(f"{encoded(ntype)}.{_feature(name)}.npy", name)


def edge_feature_file(etype: EdgeType, name: str) -> str:
    """The file of a feature of edges."""
    return _short(f"{_edge_prefix(etype)}.{_feature(name)}.npy", name)


def new_ids_file(ntype: str) -> str:
    """The file that tells every original id's new one."""
    return f"new_ids/{encoded(ntype)}.npy"


def halo_file(ntype: str) -> str:
    """The file of halo rows for each pair of parts."""
    return f"halo/{encoded(ntype)}.npy"


def encoded(name: str) -> str:
    """A name in letters that every file system has; two names never become one.

    >>> encoded("user"), encoded("a/b.c"), encoded("")
    ('user', 'a%2Fb%2Ec', '%')
    """
    text = "".join(c if c in PLAIN else "".join(f"%{byte:02X}" for byte in c.encode()) for c in name)
    return _short(text or "%", name)


def _feature(name: str) -> str:
    """A feature called as an array of the structure is not taken for it: its first letter is written as %XX."""
    return f"%{ord(name[0]):02X}{name[1:]}" if name in RESERVED else encoded(name)


def _edge_prefix(etype: EdgeType) -> str:
    return "E" if etype == UNTYPED else "~".join(map(encoded, etype))


def _short(text: str, name: str) -> str:
    if len(text) > LONGEST:
        fact = f"the name {name[:40]!r}... makes a file's name of {len(text)} letters"
        raise GraphError(fact, cure=f"shorten it: a file's name has at most {LONGEST}")
    return text
