"""DistDGL on two machines, each with a server and a trainer: sampled minibatches beside those of vgraph.

Takes: a Python that has DGL 1.1, a graph. Gives: seeds a second. Runs for benchmarks/distributed_sampling.py, once
more in namespaces of its own (``dist_dgl.py PYTHON FOLDER BATCH FANOUT...``). No ssh and no tools/launch.py of DGL:
variables tell its processes what they are. DGL's parts have one name in /dev/shm (dgl #3621), so machines have their
own.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from distributing import machines
from distributing.start import results, settings

RANK = Path(__file__).with_name("dist_dgl_rank.py")
PORT, SECONDS = 30050, 1800


def why_not(python: str) -> str | None:
    """Why DistDGL cannot run here; None: it can."""
    asked = [python, "-c", "import dgl; assert dgl.__version__.startswith('1.1'), dgl.__version__"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    if done.returncode:
        return f"{python} has no DGL 1.1 ({done.stderr.strip().rpartition(chr(10))[2]})"
    return machines.why_not()


def prepare(python: str, folder: Path, arrays: dict[str, np.ndarray]) -> None:
    """The graph of ``src``, ``dst`` and ``feat`` in two parts as DGL keeps them."""
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    subprocess.run([python, str(RANK), "partition", str(folder), "0"], env=settings(), check=True, stdout=sys.stderr)
    (folder / "machines.txt").write_text("".join(f"{address} {PORT}\n" for address in machines.ADDRESSES))


def run(python: str, folder: Path, batch: int, fanouts: Sequence[int]) -> dict[str, float]:
    """Seeds a second of both trainers together."""
    command = [*machines.OWN, sys.executable, __file__, python, str(folder), str(batch), *map(str, fanouts)]
    done = subprocess.run(command, env=settings(), stdout=subprocess.PIPE, text=True, check=False, timeout=SECONDS)
    found = results(done.stdout)
    if done.returncode or len(found) != 2:
        raise SystemExit(f"DistDGL failed\n{done.stdout[-3000:]}")
    return {"rate": sum(one["seeds"] for one in found) / max(one["seconds"] for one in found), "sent_bytes": 0.0}


# ---------------------------------------------------------------- inside
def start(where: list[str], machine: int, role: str, command: list[str], folder: Path) -> subprocess.Popen[bytes]:
    """A server, or a trainer that samples by itself."""
    told = {"ROLE": role, "DIST_MODE": "distributed", "NUM_SAMPLER": "0", "NUM_SERVER": "1", "NUM_CLIENT": "2"}
    told |= {"GRAPH_FORMAT": "csc", "SERVER_ID": str(machine), "KEEP_ALIVE": "0", "GROUP_ID": "0"}
    told |= {"CONF_PATH": str(folder / "dgl" / "g.json"), "IP_CONFIG": str(folder / "machines.txt")}
    env = settings() | {"DGLBACKEND": "pytorch"} | {f"DGL_{name}": value for name, value in told.items()}
    return subprocess.Popen([*where, *command], env=env, stdin=subprocess.DEVNULL)


def main(python: str, folder: str, *given: str) -> None:
    command = [python, str(RANK), "rank", folder, *given]
    with machines.second_machine() as places:
        begun = [(role, place, machine) for role in ("server", "client") for machine, place in enumerate(places)]
        processes = [start(place, machine, role, command, Path(folder)) for role, place, machine in begun]
        trainers = processes[2:]
        try:
            while any(one.poll() is None for one in trainers) and not any(one.poll() for one in processes):
                time.sleep(0.2)
        finally:
            for process in processes:
                process.kill()
    if any(trainer.wait() for trainer in trainers):
        raise SystemExit("a trainer of DistDGL has failed")


if __name__ == "__main__":
    main(*sys.argv[1:])
