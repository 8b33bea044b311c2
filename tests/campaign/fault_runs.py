"""What the campaign of faults runs in processes of its own: trainings that die where they are told, full disks.

Every function here is the whole life of one process, started by ``run_apart``; what it returns comes back.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import resource
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

import vgraph
from tests.apart import forking
from vgraph import atomic_file
from vgraph.cli import main, training, trees
from vgraph.cli.checkpoint import Progress, save_checkpoint
from vgraph.errors import VGraphError

TREES = (
    "(3 (2 It) (4 (2 is) (4 good)))",
    "(1 (2 It) (1 (2 is) (0 bad)))",
    "(4 (4 (4 very) (4 good)) (2 film))",
    "(0 (0 (0 very) (0 bad)) (2 film))",
    "(2 film)",
)
SMALL = ["--hidden", "6", "--embedding", "5", "--batch-size", "4", "--threads", "1", "--epochs", "2"]
SECONDS = 300


# ---------------------------------------------------------------- processes
def run_apart(target: Callable[..., Any], *given: Any, setting: dict[str, str | None] | None = None) -> tuple[int, Any]:
    """The exit code of a new process (below 0: the signal that ended it), and what the function returned there.

    Processes are forked from one that has imported everything and run nothing.
    """
    return wait_for(start_apart(target, *given, setting=setting))


def start_apart(target: Callable[..., Any], *given: Any, setting: dict[str, str | None] | None = None) -> Any:
    """The process, and where its answer comes from."""
    context = forking()
    answers, mine = context.Pipe(duplex=False)
    process = context.Process(target=_live, args=(mine, target, given, setting or {}))
    process.start()
    mine.close()
    return process, answers


def wait_for(started: Any) -> tuple[int, Any]:
    process, answers = started
    process.join(SECONDS)
    if process.exitcode is None:
        process.kill()
        process.join()
        return process.exitcode, f"no end after {SECONDS} seconds"
    with contextlib.suppress(EOFError):
        return process.exitcode, answers.recv() if answers.poll() else None
    return process.exitcode, None


def _live(answers: Any, target: Callable[..., Any], given: tuple[Any, ...], setting: dict[str, str | None]) -> None:
    """The life of a process: what it prints is its answer where it fails."""
    for name, value in setting.items():
        os.environ.pop(name, None) if value is None else os.environ.update({name: value})
    torch.set_num_threads(1)
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            answers.send(target(*given))
    except BaseException:
        answers.send(said.getvalue() + traceback.format_exc())
        sys.exit(1)


# ---------------------------------------------------------------- a training that dies
class Ticks:
    """Places where a training may be killed, counted: in steps, and around all that writes a file."""

    def __init__(self, die_at: int | None) -> None:
        self.die_at, self.count = die_at, 0

    def __call__(self) -> None:
        self.count += 1
        if self.count == self.die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, holder: Any, name: str) -> None:
        """Before and after every call of a function."""
        real = getattr(holder, name)

        def ticking(*given: Any, **named: Any) -> Any:
            self()
            found = real(*given, **named)
            self()
            return found

        setattr(holder, name, ticking)


def train(folder: Path, die_at: int | None) -> int:
    """Trains in a folder, from its checkpoint on where there is one; the number of places passed."""
    tqdm.set_lock(threading.RLock())  # its own is a semaphore, which a killed process would leave behind
    ticks, real_save = Ticks(die_at), torch.save

    def save_in_halves(content: Any, file: Any) -> None:
        buffer = io.BytesIO()
        real_save(content, buffer)
        whole = buffer.getvalue()
        for part in (whole[: len(whole) // 2], whole[len(whole) // 2 :]):
            ticks()
            file.write(part)
            file.flush()

    torch.save = save_in_halves
    ticks.around(trees, "descend")
    ticks.around(training.nn.utils, "clip_grad_norm_")
    for name in ("_finish", "_put", "_sync_folder", "_second_name"):
        ticks.around(atomic_file, name)
    training.SECONDS_BETWEEN_SAVES = -1.0  # after every step
    checkpoint, log = folder / "kept.pt", folder / "log.json"
    command = ["train", "tree-lstm", "--data", str(folder.parent / "sentences"), *SMALL]
    resume = ["--resume"] if checkpoint.exists() else []
    code = main([*command, "--checkpoint", str(checkpoint), "--log", str(log), *resume])
    if code:
        raise RuntimeError(f"vgraph train ended with {code}")
    return ticks.count


def terminated_training(folder: Path) -> int:
    """A training that gets SIGTERM in the midst of its second step: the exit code."""
    tqdm.set_lock(threading.RLock())
    calls, real = [0], trees.descend

    def descend(*given: Any) -> float:
        calls[0] += 1
        if calls[0] == 2:
            signal.raise_signal(signal.SIGTERM)
        return real(*given)

    trees.descend = descend
    command = ["train", "tree-lstm", "--data", str(folder.parent / "sentences"), *SMALL]
    return main([*command, "--checkpoint", str(folder / "kept.pt"), "--log", str(folder / "log.json")])


def what_was_learnt(folder: Path) -> str:
    """A hash of all weights, optimizer states, random states and losses, bit by bit; times are left out."""
    content = torch.load(folder / "kept.pt", weights_only=True)
    log = json.loads((folder / "log.json").read_text())
    for entry in (*content["progress"]["history"], *log["epochs"]):
        del entry["seconds"]
    del content["progress"]["seconds"], log["config"]["began"]
    found = hashlib.sha256()
    _feed(found, [content, log])
    return found.hexdigest()


def _feed(found: Any, tree: Any) -> None:
    if isinstance(tree, torch.Tensor):
        found.update(f"{tree.dtype} {tuple(tree.shape)}".encode() + tree.contiguous().numpy().tobytes())
    elif isinstance(tree, dict):
        for name, item in tree.items():
            found.update(repr(name).encode())
            _feed(found, item)
    elif isinstance(tree, (list, tuple)):
        for item in tree:
            _feed(found, item)
    else:
        found.update(repr(tree).encode())


def writes_on_a_full_disk(folder: Path, limit: int | None) -> list[str]:
    """What goes wrong where checkpoints and graphs meet a full disk; ``limit``: of a file; None: the disk is small."""
    wrong, model, ballast = list[str](), torch.nn.Linear(40, 40), folder / "ballast"
    checkpoint, graphs = folder / "kept.pt", folder / "graphs.bin"
    large = vgraph.graph(([0], [1]))
    large.ndata["x"] = torch.ones(2, 100_000)

    def save() -> None:
        save_checkpoint(checkpoint, {}, {"model": model}, Progress(0))

    save()
    save()
    vgraph.save_graphs(graphs, vgraph.graph(([0], [1])))
    before = {path: path.read_bytes() for path in (checkpoint, graphs)}
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    else:
        with contextlib.suppress(OSError), open(ballast, "wb", buffering=0) as file:
            while file.write(bytes(1000)):
                pass
    for name, write in (("checkpoint", save), ("graphs", lambda: vgraph.save_graphs(graphs, large))):
        try:
            write()
            wrong.append(f"the {name} were written to a full disk")
        except VGraphError as error:
            if "No space left" not in str(error) and "File too large" not in str(error):
                wrong.append(f"of the {name} is said: {error}")
    wrong += [f"{path.name} has changed" for path, content in before.items() if path.read_bytes() != content]
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    ballast.unlink(missing_ok=True)
    save()
    litter = set(os.listdir(folder)) - {"kept.pt", "kept.pt.previous", "graphs.bin", "cache"}
    return wrong + [f"left behind: {sorted(litter)}"] * bool(litter)
