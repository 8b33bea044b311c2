"""Faults of ranks, links, files and machines, each tried in processes: an error everywhere, in time."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import vgraph.distributed as vd
from tests import forked_python
from tests.distributed import link
from tests.distributed.fault_program import TIMEOUT
from tests.distributed.launch import PROJECT, on_machines, on_ranks
from tests.distributed.sampled_graphs import homogeneous
from tests.tables import thorough
from vgraph.errors import DataError
from vgraph.runtime.distributed.waits import find_slow

PROGRAM = "tests.distributed.fault_program"
OWN_STORES = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}  # docs/guides/processes.md
NO_KERNELS = {"VGRAPH_KERNELS": "0"}  # the compiler would take most of the time


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faults")
    vd.partition_graph(homogeneous(), folder / "homogeneous", num_parts=4, method="hash", both=True)
    return folder


@pytest.fixture
def folder(built: Path, tmp_path: Path) -> Path:
    shutil.copytree(built / "homogeneous", tmp_path / "homogeneous")
    return tmp_path


def errors(folder: Path) -> dict[int, list[str]]:
    """By rank: the kind of error, when it came, after how many seconds, what it says."""
    return {int(path.name[6:]): path.read_text().split("|", 3) for path in folder.glob("error-*")}


# ------------------------------------------------------------------ links, in network namespaces
def linked(what: str, folder: Path, program: str) -> list[int]:
    """The exit statuses of both ranks."""
    path = os.pathsep.join([str(PROJECT), str(PROJECT / "kernels")])
    env = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"} | NO_KERNELS
    command = [
        *link.OWN,
        sys.executable,
        "-m",
        "tests.distributed.link",
        what,
        str(folder),
        PROGRAM,
        program,
        str(folder),
    ]
    done = subprocess.run(command, cwd=PROJECT, env=env, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return json.loads((folder / "ended").read_text())


@pytest.mark.parametrize("program", ["full", pytest.param("sampled", marks=thorough)])
def test_a_silent_link_is_an_error_on_both_sides_within_the_timeout(program: str, folder: Path) -> None:
    if reason := link.why_not():
        pytest.skip(reason)
    assert linked("cut", folder, program) == [3, 3]
    told, down = errors(folder), float((folder / "down").read_text())
    assert set(told) == {0, 1}
    for kind, when, _, text in told.values():
        assert kind == "WorkerError" and "a worker was lost" in text
        assert -1 < float(when) - down < TIMEOUT + 5


def test_what_goes_over_a_link_is_what_is_counted(folder: Path) -> None:
    if reason := link.why_not():
        pytest.skip(reason)
    assert linked("count", folder, "wide") == [0, 0]
    counted, moved = (int((folder / name).read_text()) for name in ("sent-0", "over-the-link"))
    stored = vd.PartitionedGraph.open(folder / "homogeneous")
    bounds = stored.bounds("_N")[[0, 2, 4]]
    sources = torch.cat([stored.part(p).src(stored.canonical_etypes[0]) for p in (2, 3)]).unique()
    halo = int((sources < bounds[1]).sum())
    assert counted == 20 * halo * 4096 * 4, "as the cost model has it"
    assert counted <= moved <= 1.1 * counted


# ------------------------------------------------------------------ ranks
def test_a_killed_rank_is_started_again_and_training_goes_on_from_the_checkpoint(folder: Path) -> None:
    on_ranks(PROGRAM, 2, "restarted", str(folder), "calm", "lives", **NO_KERNELS)
    command = [forked_python.command(), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    path = os.pathsep.join([str(PROJECT), str(PROJECT / "kernels")])
    done = subprocess.run(
        [*command, "--max-restarts", "1", "-m", PROGRAM, "restarted", str(folder), "hit", "dies"],
        cwd=PROJECT,
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"} | NO_KERNELS | OWN_STORES,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    for rank in range(2):
        begun, losses, weights = torch.load(folder / f"hit-end-{rank}.pt")
        calm_begun, wanted, calm_weights = torch.load(folder / f"calm-end-{rank}.pt")
        assert (begun, calm_begun) == (4, 0) and losses == wanted[4:], "nothing is lost beyond the checkpoint"
        assert all(torch.equal(a, b) for a, b in zip(weights, calm_weights, strict=True))


def test_a_slow_rank_is_named_once(folder: Path) -> None:
    said = on_ranks(PROGRAM, 3, "slow", str(folder))
    assert said.count("is slower than the others") == 1 and "rank 1 is slower than the others" in said, said


def test_who_is_slow() -> None:
    assert find_slow([5.0, 0.5, 6.0], 10.0) == (1, pytest.approx(0.45))
    assert find_slow([1.0, 0.5, 1.2], 10.0)[0] is None, "a little"
    assert find_slow([6.0, 0.5, 0.6], 10.0)[0] is None, "two of three: they have as much to do as most"
    assert find_slow([6.0], 10.0) == find_slow([1.0, 2.0], 0.0) == (None, 0.0)


# ------------------------------------------------------------------ what machines have on their disks
def test_different_partitions_on_two_machines(folder: Path) -> None:
    for seed in range(2):
        vd.partition_graph(homogeneous(), folder / f"build-{seed}", num_parts=4, method="hash", seed=seed)
    on_machines(PROGRAM, [1, 1], "builds", str(folder), fails=True)
    told = errors(folder)
    assert told and all(kind == "WorkerError" and "different partitions" in text for kind, _, _, text in told.values())


def test_a_damaged_part_of_one_rank_ends_all(folder: Path) -> None:
    shutil.copytree(folder / "homogeneous", folder / "damaged")
    path = folder / "damaged" / "part-00003" / "E.src.npy"
    path.write_bytes(path.read_bytes()[:-8])
    on_ranks(PROGRAM, 2, "damaged", str(folder), fails=True)
    told = errors(folder)
    kind, _, _, text = told[1]
    assert kind == "DataError" and "E.src.npy" in text
    assert 0 not in told or (told[0][0] == "WorkerError" and float(told[0][2]) < TIMEOUT + 30)


def test_every_file_that_is_cut_is_told_where_it_is_read(built: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(built / "homogeneous", tmp_path / "g"))
    for path in sorted(path for path in copy.rglob("*") if path.is_file()):
        data = path.read_bytes()
        for length in (0, len(data) // 2, len(data) - 1):
            path.write_bytes(data[:length])
            with pytest.raises(DataError) as caught:
                read_all(copy)
            assert path.name in str(caught.value), (path, length)
        path.write_bytes(data)
    read_all(copy)


def read_all(folder: Path) -> None:
    g = vd.DistGraph(folder)
    g.new_ids([0])
    stored = vd.PartitionedGraph.open(folder)
    vd.plan_graph(stored, 4)
    for number in range(stored.num_parts):
        part, etype = stored.part(number), stored.canonical_etypes[0]
        _ = part.out_ptr(etype), part.out_dst(etype), part.out_eid(etype)


def test_a_rank_that_never_comes(folder: Path) -> None:
    path = os.pathsep.join([str(PROJECT), str(PROJECT / "kernels")])
    told = {"PYTHONPATH": path, "RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    command = [forked_python.command(), "-m", PROGRAM, "full", str(folder)]
    done = subprocess.run(command, cwd=PROJECT, env=os.environ | told, capture_output=True, timeout=120, check=False)
    kind, _, seconds, text = errors(folder)[0]
    assert done.returncode == 3 and kind == "WorkerError" and "a worker was lost" in text
    assert float(seconds) < TIMEOUT + 10
