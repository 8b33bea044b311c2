"""Semi-supervised classification of papers by graph convolutions or by graph attention.

Takes: a graph with labels and a split. Gives: a Task. Runs once per seed (data: once per file).
Source: Kipf and Welling 2017, sections 3.1 and 5.2; Velickovic et al. 2018, section 3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import vgraph
from vgraph.cli.checkpoint import Identity, Parts
from vgraph.cli.metrics import Metrics, measured, of_classes
from vgraph.cli.settings import HEADS, AttentionSettings, CitationSettings
from vgraph.cli.training import descend
from vgraph.data import CitationGraph
from vgraph.errors import DataError
from vgraph.nn import GATConv, GraphConv


class GCN(nn.Module):
    """Two graph convolutions; dropout before each.

    >>> import torch, vgraph
    >>> g = vgraph.add_self_loop(vgraph.graph(([0, 1], [1, 2])))
    >>> GCN(5, 4, 2, dropout=0.5)(g, torch.ones(3, 5).to_sparse()).shape
    torch.Size([3, 2])
    """

    def __init__(self, in_size: int, hidden: int, num_classes: int, *, dropout: float) -> None:
        super().__init__()
        self.first = GraphConv(in_size, hidden)
        self.second = GraphConv(hidden, num_classes)
        self.dropout = nn.Dropout(dropout)
        self.is_narrowing = in_size > hidden

    def forward(self, graph: vgraph.Graph, feat: Tensor) -> Tensor:
        feat = _drop_sparse(feat, self.dropout)
        # where the layer widens it, the feature itself travels along the edges
        h = self.first(graph, feat if self.is_narrowing else feat.to_dense())
        return self.second(graph, self.dropout(torch.relu(h)))

    def groups(self, weight_decay: float) -> list[dict[str, object]]:
        """Parameters as an optimizer takes them: the first layer's decay."""
        first: dict[str, object] = {"params": self.first.parameters(), "weight_decay": weight_decay}
        return [first, {"params": self.second.parameters()}]


class GAT(nn.Module):
    """Eight heads of attention, then one; dropout of features and of attention before each.

    >>> import torch, vgraph
    >>> g = vgraph.add_self_loop(vgraph.graph(([0, 1], [1, 2])))
    >>> GAT(5, 4, 2, dropout=0.6)(g, torch.ones(3, 5).to_sparse()).shape
    torch.Size([3, 2])
    """

    def __init__(self, in_size: int, hidden: int, num_classes: int, *, dropout: float) -> None:
        super().__init__()
        self.first = GATConv(in_size, hidden, HEADS, attn_drop=dropout, activation=F.elu)
        self.second = GATConv(HEADS * hidden, num_classes, 1, dropout, dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(self, graph: vgraph.Graph, feat: Tensor) -> Tensor:
        h = self.first(graph, _drop_sparse(feat, self.dropout))
        return self.second(graph, h.flatten(1)).squeeze(1)


def _drop_sparse(feat: Tensor, dropout: nn.Module) -> Tensor:
    """Dropout of what is stored: a zero that is dropped is a zero."""
    values = dropout(feat.values())
    return torch.sparse_coo_tensor(feat.indices(), values, feat.shape, is_coalesced=True, check_invariants=False)


@dataclass(frozen=True, eq=False)
class CitationData:
    """A citation graph with self-loops, its features sparse: 1 to 2 % of them are not zero."""

    graph: vgraph.Graph
    feat: Tensor
    label: Tensor
    masks: dict[str, Tensor]
    num_classes: int

    def metrics(self, *, by_auc: bool) -> Metrics:
        """What it can be measured by; ``by_auc``: by ROC AUC first, where there is one."""
        parts = [self.label[self.masks[part]] for part in ("val", "test")]
        return of_classes(self.num_classes, parts, by_auc=by_auc)

    def identity(self) -> Identity:
        counts = (self.graph.num_nodes(), self.graph.num_edges(), self.feat.shape[1])
        return dict(zip(("vertices", "edges", "features"), counts, strict=True))


MakeNodeModel: TypeAlias = Callable[[CitationData, CitationSettings], nn.Module]


def built_in(data: CitationData, settings: CitationSettings) -> GCN | GAT:
    """A GCN or, with its settings, a GAT."""
    model = GAT if isinstance(settings, AttentionSettings) else GCN
    return model(data.feat.shape[1], settings.hidden, data.num_classes, dropout=settings.dropout)


class CitationTask:
    """A model that ``make`` gives, on one graph, whose whole is one sample."""

    num_samples = batch_size = 1

    def __init__(
        self,
        data: CitationData,
        settings: CitationSettings,
        seed: int,
        make: MakeNodeModel,
        metrics: Metrics,
    ) -> None:
        torch.manual_seed(seed)
        self.data, self.metrics = data, metrics
        self.model = make(data, settings)
        decaying = [{"params": self.model.parameters(), "weight_decay": settings.weight_decay}]
        groups = self.model.groups(settings.weight_decay) if isinstance(self.model, GCN) else decaying
        self.optimizer = torch.optim.Adam(groups, lr=settings.lr)

    @property
    def parts(self) -> Parts:
        return {"model": self.model, "optimizer": self.optimizer}

    def step(self, ids: list[int]) -> float:
        self.model.train()
        logits = self.model(self.data.graph, self.data.feat)
        mask = self.data.masks["train"]
        loss = F.cross_entropy(logits[mask], self.data.label[mask])
        return descend(self.model, self.optimizer, loss)

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        self.model.eval()
        logits = self.model(self.data.graph, self.data.feat)
        label, masks = self.data.label, self.data.masks
        val, test = (measured(self.metrics, part, logits[masks[part]], label[masks[part]]) for part in ("val", "test"))
        loss = F.cross_entropy(logits[masks["val"]], label[masks["val"]])
        return {**val, **test, "val_loss": float(loss)}


def with_self_loops(loaded: CitationGraph, path: Path) -> CitationData:
    """What is trained on.

    Raises:
        DataError: a part of the split is empty.
    """
    columns = loaded.graph.ndata
    masks = {name: columns[f"{name}_mask"] for name in ("train", "val", "test")}
    for name, mask in masks.items():
        if not bool(mask.any()):
            cure = "mark vertices for training, validation and test"
            raise DataError(f"{name}_mask marks no vertex", line=str(path), cure=cure)
    graph = vgraph.add_self_loop(vgraph.graph(loaded.graph.edges(), num_nodes=loaded.graph.num_nodes()))
    feat = columns["feat"].to_sparse().coalesce()
    return CitationData(graph, feat, columns["label"], masks, loaded.num_classes)
