"""Workers in processes of their own, over gloo."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

import vgraph
from tests import apart
from tests.distributed.launch import environments
from tests.tables import thorough
from vgraph.ir.program import Value
from vgraph.ir.sharding import Replicate, ShardingPlan, Split
from vgraph.ir.space import SHARED
from vgraph.partition.rewrite.layout import Workers, build_exchange, placed
from vgraph.runtime.distributed import process_group


def processes(count: int, folder: Path, *tasks: str, ends: tuple[int, ...] = ()) -> tuple[int, ...]:
    """How each of some processes ended that did one task after the other: well, unless ``ends`` says otherwise."""
    program = ["-m", "tests.runtime.worker_process", str(folder), *tasks]
    with tempfile.TemporaryDirectory() as scratch:
        said = Path(scratch) / "said"
        started = [apart.Forked(program, said, env) for env in environments([count])]
        try:
            stays = [end == -9 for end in ends] or [False] * count  # until it is killed
            for process, stay in zip(started, stays, strict=True):
                if not stay:
                    process.wait(900)
        finally:
            for process in started:
                process.kill()
        codes = tuple(process.wait(0) for process in started)
        assert codes == (ends or (0,) * count), said.read_text()
    return codes


def test_two_and_four_processes(tmp_path: Path) -> None:
    """Training, meta models, replicas, DTensors, gradients in common; and 4 go on from a checkpoint of 2."""
    by_two = ("seeds:mlp:2", "train:block:2", "train:lstm:2", "train:attention:2", "update:attention:2",
              "accumulate:mlp:2", "meta:lstm:2", "dropout:attention:2", "autocast:attention:2", "habits:tied:2",
              "evaluation:classifier:2", "save:attention:2", "added:weights:2", "dtensor_train:block:2",
              "dtensor_habits:tied:2", "dtensor_scaler:mlp:2", "dtensor_meta:mlp:2", "cut:mlp:2", "kept:mlp:2",
              "complex_numbers:mlp:2", "dtensor_refusals:mlp:2", "engine_named:mlp:2",
              "engine_named:gpt:2")  # fmt: skip
    assert processes(2, tmp_path, *by_two) == (0, 0)
    by_four = ("train:block:4", "update:lstm:4", "train:mlp:2", "update:mlp:2", "load:attention:4",
               "dtensor_resume:block:4", "dtensor_replicas:mlp:2", "evaluation:classifier:2",
               "routine:classifier:4", "engine_named:gpt:4", "engine_named:block:4")  # fmt: skip
    assert processes(4, tmp_path, *by_four) == (0, 0, 0, 0)


def test_the_only_checkpoint_stays_until_the_next_is_in_its_place(tmp_path: Path, monkeypatch: Any) -> None:
    """A process was lost between two renames, which left the one before; then another one at the same place."""
    place, partial, previous = (tmp_path / name for name in ("saved", "saved.partial", "saved.previous"))
    partial.mkdir()
    previous.mkdir()

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Path, "rename", killed)
        process_group._replace(partial, place, previous)
    assert previous.exists() and not place.exists()
    process_group._replace(partial, place, previous)
    assert place.exists() and not previous.exists()


def test_a_worker_that_is_lost_while_state_moves(monkeypatch: Any) -> None:
    """What a checkpoint moves is no part of a step, and ends with the same error."""
    group = process_group.WorkerGroup(0, None, None, torch.device("cpu"))

    def start(*_: object) -> None:
        raise RuntimeError("[gloo/transport/tcp/pair.cc] Connection closed by peer")

    monkeypatch.setattr(group, "start", start)
    value, workers = Value(0, SHARED, torch.float32, (4,)), Workers(ShardingPlan((2,), (), {}))
    lies, wanted = (placed(value.row_shape, (at,), workers) for at in (Split(0), Replicate()))
    exchange = build_exchange(0, value.dtype, lies, wanted.regions, frozenset(), workers)
    with pytest.raises(vgraph.VGraphError, match="a worker was lost"):
        group.exchange(exchange, torch.zeros(2))


def test_compiled(tmp_path: Path) -> None:
    """Two processes compile divided models, with all exchanges and BatchNorm's buffers, in whole graphs."""
    tasks = ("compiled:mlp", "compiled:block", "compiled_nests:described")
    assert processes(2, tmp_path, *(f"dtensor_{task}:2" for task in tasks)) == (0, 0)


@thorough
def test_more_networks(tmp_path: Path) -> None:
    by_two = ("train:wresnet:2", "dtensor_compiled:wresnet:2", "dtensor_compiled:attention:2",
              "dtensor_compiled_dropout:attention:2", "dtensor_compiled_by_inductor:mlp:2")  # fmt: skip
    assert processes(2, tmp_path, *by_two) == (0, 0)
    assert processes(4, tmp_path, "train:wresnet:4") == (0, 0, 0, 0)


@pytest.mark.parametrize(("task", "end"), [("die", 7), ("hang", -9), ("die_saving", 7)])
def test_a_worker_that_is_lost(task: str, end: int, tmp_path: Path) -> None:
    """The others end with an error within the timeout, and the checkpoint of before is whole."""
    processes(2, tmp_path, f"{task}:mlp:2", ends=(0, end))
    assert (tmp_path / "error0").read_text().startswith("WorkerError: a worker was lost")
    assert (tmp_path / "checkpoint" / ".metadata").exists()
    if task == "die_saving":
        assert processes(2, tmp_path, "resume:mlp:2") == (0, 0)
