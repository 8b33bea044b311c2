"""Molecules: atoms, bonds, junction trees, and what is told where RDKit is missing or reads none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from vgraph.data import Molecule, load_smiles, parse_smiles
from vgraph.errors import DataError, FunctionError

ASPIRIN = "CC(=O)Oc1ccccc1C(=O)O"
CAGES = {
    "phenalene, three rings around an atom": "C1=CC2=CC=CC3=C2C(=C1)C=CC3",
    "norbornane, a bridge": "C1CC2CCC1C2",
    "adamantane": "C1C2CC3CC1CC(C2)C3",
    "cubane": "C12C3C4C1C5C2C3C45",
    "a salt, in two parts": "[Na+].CC(=O)[O-]",
    "spiro": "C1CCC2(CC1)CCCC2",
    "coronene": "c1cc2ccc3ccc4ccc5ccc6ccc1c7c2c3c4c5c67",
}


def molecule(smiles: str) -> Molecule:
    pytest.importorskip("rdkit.Chem", reason="RDKit is not installed")
    return parse_smiles(smiles)


def test_atoms_and_bonds() -> None:
    g = molecule("C[NH+]=C").graph
    assert {name: rows.tolist() for name, rows in g.ndata.items()} == {
        "atom": [6, 7, 6], "charge": [0, 1, 0], "hydrogens": [3, 1, 2], "aromatic": [0, 0, 0],
    }  # fmt: skip
    assert [end.tolist() for end in g.edges()] == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert g.edata["bond"].tolist() == [0, 0, 1, 1]


def test_the_clusters_of_aspirin() -> None:
    found = molecule(ASPIRIN)
    assert sorted(found.clusters) == sorted(["CC", "C", "C=O", "CO", "cO", "c1ccccc1", "cC", "C", "C=O", "CO"])
    assert found.tree.num_edges() == found.tree.num_nodes() - 1


@pytest.mark.parametrize(
    "smiles", [*CAGES.values(), ASPIRIN, "[He]", "C"], ids=[*CAGES, "aspirin", "helium", "methane"]
)
def test_an_atoms_clusters_lie_side_by_side(smiles: str) -> None:
    found = molecule(smiles)
    tree, holding = found.tree, [set[int]() for _ in range(found.graph.num_nodes())]
    for atom, cluster in found.members.t().tolist():
        holding[atom].add(cluster)
    edges = list(zip(*(end.tolist() for end in tree.edges()), strict=True))
    assert all(child > parent for child, parent in edges) and len({child for child, _ in edges}) == len(edges)
    assert all(holding[u] & holding[v] for u, v in zip(*(end.tolist() for end in found.graph.edges()), strict=True))
    assert all(sum(child in own and parent in own for child, parent in edges) == len(own) - 1 for own in holding)
    assert tree.num_nodes() - len(edges) == smiles.count(".") + 1 and 0 in holding[0]


def test_a_file_and_a_table(tmp_path: Path) -> None:
    pytest.importorskip("rdkit.Chem", reason="RDKit is not installed")
    (tmp_path / "m.smi").write_text("CO methanol\n\nc1ccccc1O\tphenol\n")
    data = load_smiles(tmp_path / "m.smi")
    assert data.clusters == ("<unknown>", "CO", "c1ccccc1", "cO")
    assert [m.tree.ndata["cluster"].tolist() for m in data.molecules] == [[1], [2, 3]]
    (tmp_path / "m.csv").write_text("name,smiles,logp\na,CN,0.5\nb,CO,\n")
    data = load_smiles(tmp_path / "m.csv", value="logp", clusters=data.clusters)
    assert data.molecules[0].tree.ndata["cluster"].tolist() == [0]
    assert data.values[0] == 0.5 and data.values[1].isnan()


@pytest.mark.parametrize(
    ("name", "content", "place", "fact"),
    [
        ("m.smi", "CO\nC(C\n", "m.smi:2", "'C(C' is no molecule"),
        ("m.smi", "C(C)(C)(C)(C)C\n", "m.smi:1", "is no molecule"),
        ("m.smi", "C" * 6000, "m.smi:1", "a SMILES of 6000 letters"),
        ("m.smi", "\n", "m.smi:1", "there are no molecules"),
        ("m.csv", "smiles\n\n", "m.csv:1", "there are no molecules"),
        ("m.csv", 'smiles,y\n"C",1\n"",2\n', "m.csv:3", "'' is no molecule"),
        ("m.csv", "smile\nC\n", "m.csv:1", "no column 'smiles'"),
        ("m.csv", "smiles,y\nC,low\n", "m.csv:2", "'low' is not a value"),
    ],
)
def test_what_is_no_molecule(name: str, content: str, place: str, fact: str, tmp_path: Path) -> None:
    pytest.importorskip("rdkit.Chem", reason="RDKit is not installed")
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError) as caught:
        load_smiles(tmp_path / name, value="y" if "y" in content else None)
    assert fact in caught.value.fact
    assert caught.value.line == str(tmp_path / place) and caught.value.cure


def test_without_rdkit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rdkit.Chem", None)
    with pytest.raises(FunctionError, match="which is not installed") as caught:
        parse_smiles("C")
    assert caught.value.cure == "pip install 'vgraph[chem]'"
