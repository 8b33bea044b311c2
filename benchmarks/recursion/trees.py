"""Tree-LSTM: child-sum cells over trees of sentences, words at the leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import tree_lstm

from recursion.division import stopwatch
from recursion.workload import INDUCTOR, Step, Workload, dynet_with_batches, optional
from vgraph.data import load_sst
from vgraph.scheduler.frontiers import levels


def sst_task(folder: Path, count: int, hidden: int) -> tree_lstm.Task:
    """The first trees of SST's training set, vertices numbered from the leaves up."""
    data = load_sst(folder).train
    trees, words, labels = [], [], []
    for number in range(count):
        g = data[number % len(data)].graph
        last = g.num_nodes() - 1
        tree: list[Any] = [None] * (last + 1)
        for kid, vertex in zip(*(ids.tolist() for ids in g.edges()), strict=True):
            tree[last - vertex] = (*(tree[last - vertex] or ()), last - kid)
        trees.append(tree)
        words.append(g.ndata["word"].flip(0).clamp(min=0))
        labels.append(g.ndata["label"].flip(0))
    return tree_lstm.Task(trees, hidden, words, labels, data.num_tokens, sparse=True)


def tree_lstm_workload(
    batch: int, hidden: int, *, trains: bool = True, sst: Path | None = None, backend: str = INDUCTOR
) -> Workload:
    """One step over ``batch`` trees: forward, backward and Adagrad, or forward alone."""
    made = sst_task(sst, batch, hidden) if sst else tree_lstm.Task(tree_lstm.make_trees(batch), hidden)
    return workload_of(made, batch, trains=trains, where="on SST " if sst else "", backend=backend)


def workload_of(
    task: tree_lstm.Task, batch: int, *, trains: bool = True, where: str = "", backend: str = INDUCTOR
) -> Workload:
    hidden = task.hidden
    forwards: dict[str, Any] = {
        "vgraph": tree_lstm.vgraph_step,
        "level loop by hand": tree_lstm.by_hand_step,
        "level loop, torch.compile": tree_lstm.compiled_step(backend),
    }
    dgl = optional("dgl")
    if dgl is not None:
        forwards[f"DGL {dgl.__version__}"] = tree_lstm.dgl_step(task, dgl)
    sides = {name: _step(task, forward, batch, trains) for name, forward in forwards.items()}
    dynet = by_dynet(task, trains)
    if dynet is not None:
        sides["DyNet"] = dynet
    leaves = sum(kids is None for tree in task.trees for kids in tree)
    inner = leaves - len(task.trees)
    flops = 2 * hidden * (3 * tree_lstm.INPUTS * leaves + 3 * hidden * inner + hidden * 2 * inner)
    depth = max(int(levels(g.topology).max()) for g in task.graphs) + 1
    kind = "training" if trains else "inference"
    return Workload(
        f"Tree-LSTM {kind} {where}hidden {hidden} batch {batch}", sides, flops * (3 if trains else 1), depth
    )


def _step(task: tree_lstm.Task, forward: Any, batch: int, trains: bool) -> Step:
    def train() -> float:
        task.optimizer.zero_grad()
        loss = forward(task, range(batch))
        loss.backward()
        task.optimizer.step()
        return float(loss.detach())

    def infer() -> float:
        with torch.no_grad():
            return float(forward(task, range(batch)))

    step = train if trains else infer
    step.construction = getattr(forward, "construction", [0.0])  # type: ignore[attr-defined]
    return step


def by_dynet(task: tree_lstm.Task, trains: bool) -> Step | None:
    dy = dynet_with_batches()
    if dy is None:
        return None
    hidden, inputs, model = task.hidden, tree_lstm.INPUTS, dy.Model()
    trainer = dy.AdagradTrainer(model, 0.05)
    E = model.add_lookup_parameters((task.num_words, inputs))
    W, U = model.add_parameters((3 * hidden, inputs)), model.add_parameters((3 * hidden, hidden))
    Uf, O = model.add_parameters((hidden, hidden)), model.add_parameters((tree_lstm.CLASSES, hidden))  # noqa: E741
    b, bf = model.add_parameters(3 * hidden), model.add_parameters(hidden)

    def losses(number: int) -> list[Any]:
        states, found = [], []
        for j, kids in enumerate(task.trees[number]):
            if kids is None:
                iou, carried = dy.affine_transform([b, W, E[int(task.words[number][j])]]), None
            else:
                below = [states[k] for k in kids]
                iou = dy.affine_transform([b, U, dy.esum([h for h, _ in below])])
                carried = dy.esum([dy.cmult(dy.logistic(dy.affine_transform([bf, Uf, h])), c) for h, c in below])
            i, o, u = (dy.pick_range(iou, k * hidden, (k + 1) * hidden) for k in range(3))
            c = dy.cmult(dy.logistic(i), dy.tanh(u))
            c = c if carried is None else c + carried
            states.append((dy.cmult(dy.logistic(o), dy.tanh(c)), c))
            found.append(dy.pickneglogsoftmax(O * states[-1][0], int(task.labels[number][j])))
        return found

    construction = [0.0]

    def step() -> float:
        with stopwatch(construction):
            dy.renew_cg()
            total = dy.esum([loss for number in range(len(task.trees)) for loss in losses(number)])
        value = total.value()
        if trains:
            total.backward()
            trainer.update()
        return float(value)

    step.model = model  # type: ignore[attr-defined]  (the trainer does not keep it alive)
    step.construction = construction  # type: ignore[attr-defined]
    return step
