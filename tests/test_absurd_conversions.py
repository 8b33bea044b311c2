"""What nobody can mean, for all that takes and gives graphs of other libraries, and for what these hold."""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import vgraph
from tests.test_absurd_calls import failures, of_types
from tests.test_absurd_values import graph, state_of

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyG's import uses what torch has deprecated
        from torch_geometric.data import Data, HeteroData
        from torch_geometric.nn import GCNConv
except ImportError:
    pytest.skip("torch_geometric is not installed", allow_module_level=True)

ENDS = torch.tensor([[0, 1], [1, 2]])


def data() -> Any:
    return Data(x=torch.ones(3, 2), edge_index=ENDS)


def hetero() -> Any:
    made = HeteroData()
    made["a"].x, made["a", "to", "a"].edge_index = torch.ones(3, 2), ENDS
    return made


CALLS: dict[str, tuple[Callable[..., object], dict[str, Any]]] = {
    "from_pyg": (vgraph.from_pyg, {"data": data(), "idtype": None, "device": None}),
    "from_pyg of types": (vgraph.from_pyg, {"data": hetero(), "idtype": None, "device": None}),
    "to_pyg": (vgraph.to_pyg, {"g": graph()}),
    "from_dgl": (vgraph.from_dgl, {"g": of_types(), "idtype": None, "device": None}),
    "accelerate": (vgraph.accelerate, {"model": GCNConv(2, 2)}),
}


@pytest.mark.parametrize("name", CALLS)
def test_arguments(name: str) -> None:
    call, valid = CALLS[name]
    call(**valid)
    assert list(failures(call, valid, list(valid))) == []


def test_tables() -> None:
    g = graph()
    assert list(failures(vgraph.to_pandas, {"g": g}, ["g", "edge_attrs"], lambda: state_of(g))) == []


OF_DATA = ("edge_index", "num_nodes", "batch", "ptr", "edge_attr", "y")


@pytest.mark.parametrize("name", OF_DATA)
@pytest.mark.parametrize("kind", ["Data", "HeteroData", "anything"])
def test_what_data_holds(kind: str, name: str) -> None:
    def convert(**given: Any) -> object:
        if kind == "anything":
            return vgraph.from_pyg(types.SimpleNamespace(**{**data().to_dict(), "num_nodes": 3, **given}))
        made = data() if kind == "Data" else hetero()
        store = made if kind == "Data" else made["a", "to", "a"] if name.startswith("edge") else made["a"]
        store[name] = given[name]
        return vgraph.from_pyg(made)

    assert list(failures(convert, {}, [name])) == []
