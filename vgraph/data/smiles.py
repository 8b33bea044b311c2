"""Molecules from SMILES: graphs of atoms and bonds, and junction trees of their rings and bonds. Needs RDKit.

Takes: text, or a file of it. Gives: graphs and trees. Runs once per file.
Source: Weininger 1988 (SMILES); Jin, Barzilay and Jaakkola 2018, section 2.1 (junction trees of molecules).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import combinations
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

import vgraph
from vgraph.arguments import NAME, PATH, POSITIVE, checked
from vgraph.data.given import TEXT, WORDS
from vgraph.data.lines import SHOWN, Line, lines_of, records_of
from vgraph.data.sst import UNKNOWN
from vgraph.errors import FunctionError
from vgraph.files import read_text

BONDS = ("SINGLE", "DOUBLE", "TRIPLE", "AROMATIC")  # others count as the first
LONGEST = 5000  # letters of a SMILES: rings of far larger ones take minutes to find
MOST_SHARED = 2  # atoms of two rings that are clusters of their own


class Molecule(NamedTuple):
    """A molecule as a graph, and as a tree of its rings and bonds.

    Attributes:
        smiles: the text it was read from.
        graph: a vertex for each atom but hydrogens that SMILES leaves out, an edge in each direction for each bond;
            ``ndata`` are atom (the atomic number), charge, hydrogens (how many it binds beside its neighbours) and
            aromatic (0 or 1), int64 (atoms,), and ``edata["bond"]`` is 0 to 3 for a single, double, triple or aromatic
            bond, int64 (edges,).
        tree: the junction tree, a vertex for each cluster, its edges from child to parent, roots before children;
            vertex 0 holds atom 0. A molecule of several parts has a tree for each.
        clusters: the SMILES of each cluster, by vertex of the tree.
        members: which atoms are in which cluster, int64 (2, memberships): atoms above clusters.

    Source: Jin, Barzilay and Jaakkola 2018, section 2.1.

    Example:
        >>> parse_smiles("c1ccccc1O").clusters  # doctest: +SKIP
        ('c1ccccc1', 'cO')
    """

    smiles: str
    graph: vgraph.Graph
    tree: vgraph.Graph
    clusters: tuple[str, ...]
    members: Tensor


@dataclass(frozen=True, eq=False)
class MoleculeDataset:
    """Molecules with a number each, as properties are given.

    Attributes:
        molecules: the molecules; each ``tree`` has ``ndata["cluster"]``, int64 (clusters,), an index into ``clusters``.
        clusters: the SMILES of clusters by id; 0 is the unknown cluster.
        values: float32 (molecules,); NaN where a molecule has none.

    Source: Jin, Barzilay and Jaakkola 2018, section 2.1.

    Example:
        >>> data = load_smiles("zinc.smi")  # doctest: +SKIP
        >>> [molecule.graph for molecule in data.molecules]  # doctest: +SKIP
    """

    molecules: list[Molecule]
    clusters: tuple[str, ...]
    values: Tensor


@checked(smiles=TEXT, line=POSITIVE)
def parse_smiles(smiles: str, *, path: str | Path = "<text>", line: int = 1) -> Molecule:
    """The molecule that a SMILES says.

    Clusters are rings, of which those with more than two atoms in common are one, and bonds that are in no ring; where
    three or more clusters meet in an atom, it is a cluster, too. The junction tree joins clusters that share atoms, by
    a spanning tree of those that share most, and rings of which no tree can be made are one cluster.

    Args:
        smiles: the text, up to 5,000 letters.
        path: what errors call the text.
        line: the line that they name.

    Returns:
        A Molecule.

    Raises:
        ArgumentError: ``line`` is no whole number from 1 up.
        DataError: RDKit reads no molecule there, or one without atoms.
        FunctionError: RDKit is not installed.

    Source: Weininger 1988; Jin, Barzilay and Jaakkola 2018, section 2.1.

    Example:
        >>> molecule = parse_smiles("CO")  # doctest: +SKIP
        >>> molecule.graph.ndata["atom"].tolist(), molecule.tree.num_nodes()  # doctest: +SKIP
        ([6, 8], 1)
    """
    return _parse(smiles, Line("", path, line), _rdkit())


@checked(path=PATH, column=NAME, value=NAME.or_none(), clusters=WORDS.or_none())
def load_smiles(
    path: str | Path, *, column: str = "smiles", value: str | None = None, clusters: Sequence[str] | None = None
) -> MoleculeDataset:
    """The molecules of a file: one a line, or a column of a ``.csv`` with a header.

    A line begins with the SMILES; what follows a blank or a tab is a name, and is not read.

    Args:
        path: the file.
        column: the column of a ``.csv`` that has the SMILES.
        value: the column of a ``.csv`` that has a number for each molecule; None: there are no values.
        clusters: the clusters by id, as of the training set; None: those of the file, sorted.

    Returns:
        A MoleculeDataset.

    Raises:
        DataError: the file is missing, has no such column, or a line that RDKit reads no molecule from.
        FunctionError: RDKit is not installed.

    Source: Weininger 1988; Jin, Barzilay and Jaakkola 2018, section 2.1.

    Example:
        >>> data = load_smiles("esol.csv", value="solubility")  # doctest: +SKIP
        >>> data.molecules[0].graph.num_nodes(), data.values[0].item()  # doctest: +SKIP
    """
    chem = _rdkit()
    rows = list(_table(path, column, value) if Path(path).suffix.lower() == ".csv" else _lines(path))
    if not rows:
        raise Line("", path, 1).wrong("there are no molecules", "write a SMILES a line")
    molecules = [_parse(smiles, line, chem) for line, smiles, _ in rows]
    if clusters is None:
        clusters = (UNKNOWN, *sorted({name for molecule in molecules for name in molecule.clusters}))
    number = {name: i for i, name in enumerate(clusters)}
    for molecule in molecules:
        molecule.tree.ndata["cluster"] = torch.tensor([number.get(name, 0) for name in molecule.clusters])
    return MoleculeDataset(molecules, tuple(clusters), torch.tensor([number for _, _, number in rows]))


def _lines(path: str | Path) -> Iterator[tuple[Line, str, float]]:
    for line in lines_of(read_text(path), path):
        if line.text.strip():
            yield line, line.text.split()[0], torch.nan


def _table(path: str | Path, column: str, value: str | None) -> Iterator[tuple[Line, str, float]]:
    for line, fields in records_of(read_text(path), path, (column, *([value] if value else []))):
        given = fields[value].strip() if value else ""
        yield line, fields[column].strip(), line.real(given, "value") if given else torch.nan


def _rdkit() -> ModuleType:
    try:
        chem = import_module("rdkit.Chem")
    except ImportError as error:
        raise FunctionError(
            "molecules are read by RDKit, which is not installed", cure="pip install 'vgraph[chem]'"
        ) from error
    import_module("rdkit.RDLogger").DisableLog("rdApp.*")  # what it would print is told as an error
    return chem


# ---------------------------------------------------------------- a molecule
def _parse(smiles: str, line: Line, chem: ModuleType) -> Molecule:
    if len(smiles) > LONGEST:
        raise line.wrong(f"a SMILES of {len(smiles)} letters", f"give molecules of up to {LONGEST}")
    found = None if "\0" in smiles else chem.MolFromSmiles(smiles)
    if found is None or not found.GetNumAtoms():
        raise line.wrong(f"{smiles[:SHOWN]!r} is no molecule", "write SMILES that RDKit reads")
    atoms, bonds = list(found.GetAtoms()), list(found.GetBonds())
    ends = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in bonds]
    kinds = [str(bond.GetBondType()) for bond in bonds]
    graph = _graph(len(atoms), [end for pair in ends for end in (pair, pair[::-1])])
    columns = {
        "atom": [atom.GetAtomicNum() for atom in atoms],
        "charge": [atom.GetFormalCharge() for atom in atoms],
        "hydrogens": [atom.GetTotalNumHs() for atom in atoms],
        "aromatic": [int(atom.GetIsAromatic()) for atom in atoms],
    }
    for name, numbers in columns.items():
        graph.ndata[name] = torch.tensor(numbers)
    types = [BONDS.index(kind) if kind in BONDS else 0 for kind in kinds for _ in range(2)]
    graph.edata["bond"] = torch.tensor(types, dtype=torch.int64)
    rings = [frozenset(ring) for ring in chem.GetSymmSSSR(found)]
    clusters, tree = _junction_tree(len(atoms), ends, rings)
    names = tuple(chem.MolFragmentToSmiles(found, sorted(cluster)) for cluster in clusters)
    members = [(atom, number) for number, cluster in enumerate(clusters) for atom in sorted(cluster)]
    return Molecule(smiles, graph, _graph(len(clusters), tree), names, torch.tensor(members).t().contiguous())


def _graph(count: int, edges: Sequence[tuple[int, int]]) -> vgraph.Graph:
    ends = [torch.tensor([edge[side] for edge in edges], dtype=torch.int64) for side in (0, 1)]
    return vgraph.graph((ends[0], ends[1]), num_nodes=count)


Cluster = frozenset[int]


def _junction_tree(
    num_atoms: int, bonds: Sequence[tuple[int, int]], rings: Sequence[Cluster]
) -> tuple[list[Cluster], list[tuple[int, int]]]:
    """Clusters of atoms, and the edges (child, parent) of a tree in which an atom's clusters lie side by side."""
    found = _merged(rings)
    found += [frozenset(pair) for pair in bonds if not any(ring.issuperset(pair) for ring in found)]
    while True:
        clusters = _with_meetings(found, num_atoms)
        pairs = list(_spanning_tree(clusters, num_atoms))
        torn = _torn_atom(clusters, pairs, num_atoms)
        if torn is None:
            return _numbered(clusters, pairs)
        # rings around rings, of which no tree can be made, are one cluster
        together = frozenset[int]().union(*(cluster for cluster in found if torn in cluster))
        found = [cluster for cluster in found if torn not in cluster] + [together]


def _with_meetings(found: Sequence[Cluster], num_atoms: int) -> list[Cluster]:
    """The clusters, and each atom in which three or more of them meet, or which is in none."""
    count = [0] * num_atoms
    for cluster in found:
        for atom in cluster:
            count[atom] += 1
    meetings = [frozenset([atom]) for atom, number in enumerate(count) if number == 0 or number > 2]
    return sorted([*found, *meetings], key=lambda cluster: (min(cluster), -len(cluster), sorted(cluster)))


def _torn_atom(clusters: Sequence[Cluster], pairs: Sequence[tuple[int, int]], num_atoms: int) -> int | None:
    """An atom whose clusters are not joined with each other."""
    parts = [0] * num_atoms
    for cluster in clusters:
        for atom in cluster:
            parts[atom] += 1
    for one, other in pairs:
        for atom in clusters[one] & clusters[other]:
            parts[atom] -= 1
    return next((atom for atom, number in enumerate(parts) if number > 1), None)


def _numbered(
    clusters: Sequence[Cluster], pairs: Sequence[tuple[int, int]]
) -> tuple[list[Cluster], list[tuple[int, int]]]:
    """Parents before children."""
    neighbors: list[list[int]] = [[] for _ in clusters]
    for one, other in pairs:
        neighbors[one].append(other)
        neighbors[other].append(one)
    order, parent = _from_roots(neighbors)
    number = {cluster: i for i, cluster in enumerate(order)}
    edges = [(number[cluster], number[parent[cluster]]) for cluster in order if cluster in parent]
    return [clusters[cluster] for cluster in order], edges


def _merged(rings: Sequence[Cluster]) -> list[Cluster]:
    """Rings with more than two atoms in common are one cluster: of bridges no tree could be made."""
    found: list[Cluster] = []
    for ring in rings:
        whole = ring
        while bridged := [other for other in found if len(other & whole) > MOST_SHARED]:
            found = [other for other in found if other not in bridged]
            whole = whole.union(*bridged)
        found.append(whole)
    return found


def _spanning_tree(clusters: Sequence[Cluster], num_atoms: int) -> Iterator[tuple[int, int]]:
    """Pairs of clusters that share most atoms, as many as make a tree. Source: Kruskal 1956."""
    holding: list[list[int]] = [[] for _ in range(num_atoms)]
    for number, cluster in enumerate(clusters):
        for atom in cluster:
            holding[atom].append(number)
    pairs = {pair for numbers in holding for pair in combinations(numbers, 2)}

    def rank(pair: tuple[int, int]) -> tuple[int, bool, tuple[int, int]]:
        one, other = clusters[pair[0]], clusters[pair[1]]
        return -len(one & other), min(len(one), len(other)) > 1, pair  # clusters of one atom join the others there

    above = list(range(len(clusters)))
    for pair in sorted(pairs, key=rank):
        one, other = (_top(above, cluster) for cluster in pair)
        if one != other:
            above[one] = other
            yield pair


def _top(above: list[int], cluster: int) -> int:
    while above[cluster] != cluster:
        above[cluster] = above[above[cluster]]
        cluster = above[cluster]
    return cluster


def _from_roots(neighbors: Sequence[Sequence[int]]) -> tuple[list[int], dict[int, int]]:
    """Clusters in an order in which parents come first, the first cluster before all, and each one's parent."""
    order, parent, seen = list[int](), dict[int, int](), set[int]()
    for root in range(len(neighbors)):
        stack = [] if root in seen else [root]
        seen.add(root)
        while stack:
            cluster = stack.pop()
            order.append(cluster)
            fresh = [other for other in neighbors[cluster] if other not in seen]
            seen.update(fresh)
            parent.update(dict.fromkeys(fresh, cluster))
            stack += fresh[::-1]
    return order, parent
