"""Faults: processes that are killed, disks that are full, caches that are damaged, memory that ends, Ctrl-C.

Most cases kill a training at a random place (between two steps, within one, while a checkpoint is half written, synced
or renamed), resume it, sometimes more than once, and ask for the very weights, optimizer states, random states and
losses of a training that nobody killed. The others try one fault each. Every fault is met by a process of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import random
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch

from tests.campaign import fault_calls as calls
from tests.campaign import fault_runs as runs

KILLS = 100
_KILLS_FIRST = 3  # before the other faults, so that a short form has both
_TOGETHER = 20  # processes


def run(count: int, seed: int) -> list[str]:
    """Tries some cases; those from the last kind of fault on are kills."""
    failures = list[str]()
    atexit.register(forget)
    for case in range(seed, seed + count):
        name, fault = _case(case)
        with tempfile.TemporaryDirectory(prefix="vgraph-faults-") as folder:
            try:
                failures += [f"seed {case}, {name}: {wrong}" for wrong in fault(Path(folder), case)]
            except Exception as error:
                failures.append(f"seed {case}, {name}: {type(error).__name__}: {error}")
    return failures


def _case(case: int) -> tuple[str, Callable[[Path, int], list[str]]]:
    index = case - _KILLS_FIRST
    return list(FAULTS.items())[index] if 0 <= index < len(FAULTS) else ("a kill", killed_training)


# ---------------------------------------------------------------- kills
_folders: list[Path] = []


@cache
def _whole(kernels: str) -> tuple[Path, str, int]:
    """A folder with data, what a training learns from it that nobody kills, and at how many places it might die."""
    folder = Path(tempfile.mkdtemp(prefix="vgraph-faults-"))
    _folders.append(folder)
    (folder / "sentences").mkdir()
    rng = random.Random(0)
    for name, lines in (("train", 11), ("dev", 5), ("test", 5)):
        text = "".join(f"{rng.choice(runs.TREES)}\n" for _ in range(lines))
        (folder / "sentences" / f"{name}.txt").write_text(text)
    (folder / "whole").mkdir()
    places = _answer(runs.run_apart(runs.train, folder / "whole", None, setting=_setting(folder / "cache", kernels)))
    return folder, runs.what_was_learnt(folder / "whole"), places


def forget() -> None:
    """Removes what all kills share."""
    for folder in _folders:
        shutil.rmtree(folder, ignore_errors=True)
    _folders.clear()
    _whole.cache_clear()


def killed_training(folder: Path, seed: int) -> list[str]:
    """Killed once to three times, and resumed; with kernels and without."""
    kernels = str(seed % 2) if seed >= SHORT_COUNT else "0"
    shared, wanted, places = _whole(kernels)
    rng, own, wrong = random.Random(seed), shared / f"killed-{seed}", list[str]()
    own.mkdir()
    setting = _setting(shared / "cache", kernels)
    deaths = [rng.randint(1, places)] + [rng.randint(1, places) for _ in range(rng.choice((0, 0, 0, 1, 2)))]
    for death in deaths:
        code, told = runs.run_apart(runs.train, own, death, setting=setting)
        if code not in (-signal.SIGKILL, 0):  # 0: it was done before the place was reached
            wrong.append(f"killed at {death} of {places}, it ended with {code}: {told}")
    _answer(runs.run_apart(runs.train, own, None, setting=setting))
    if runs.what_was_learnt(own) != wanted:
        wrong.append(f"killed at {deaths} of {places}, the resumed training differs from one that nobody killed")
    litter = set(os.listdir(own)) - {"kept.pt", "kept.pt.previous", "log.json"}
    shutil.rmtree(own)
    return wrong + [f"killed at {deaths}, it left {sorted(litter)}"] * bool(litter)


def _setting(cache_folder: Path, kernels: str = "1") -> dict[str, str | None]:
    """Kernels, but not the native code that all loops share, which takes long to compile."""
    return {"VGRAPH_KERNELS": kernels, "VGRAPH_NATIVE": "0", "VGRAPH_CACHE_DIR": str(cache_folder)}


def _answer(ended: tuple[int, Any]) -> Any:
    code, told = ended
    if code:
        raise RuntimeError(f"a process ended with {code}: {told}")
    return told


# ---------------------------------------------------------------- disks and caches
@contextmanager
def _small_disk(folder: Path, kilobytes: int) -> Iterator[bool]:
    """Whether a disk of this size could be put at the folder."""
    options = f"size={kilobytes}k"
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, check=False
    )
    try:
        yield not done.returncode
    finally:
        if not done.returncode:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def full_disk(folder: Path, seed: int) -> list[str]:
    """Checkpoints and graphs on a disk that fills up; the same where a file may not grow."""
    wrong = list[str]()
    for name in ("small", "limited"):
        (folder / name).mkdir()
    with _small_disk(folder / "small", 200) as is_small:
        if is_small:
            wrong += _answer(runs.run_apart(runs.writes_on_a_full_disk, folder / "small", None))
    return wrong + _answer(runs.run_apart(runs.writes_on_a_full_disk, folder / "limited", 2000))


def full_cache(folder: Path, seed: int) -> list[str]:
    """Kernels that find no room in the cache are compiled all the same."""
    with _small_disk(folder, 100) as is_small:
        if not is_small:
            return []
        (folder / "kernels").mkdir(mode=0o700)
        with contextlib.suppress(OSError), open(folder / "ballast", "wb", buffering=0) as file:
            while file.write(bytes(1000)):
                pass
        return _wrong_calls(folder)


def read_only_cache(folder: Path, seed: int) -> list[str]:
    """Empty, and one that holds damaged kernels."""
    wrong = list[str]()
    with _small_disk(folder, 20_000) as is_disk:
        for damage in (None, b"", b"no kernel"):
            if damage is not None:
                wrong += _wrong_calls(folder)
                for kept in _kernels(folder):
                    kept.write_bytes(damage)
            else:
                (folder / "kernels").mkdir(mode=0o700)
            _set_writable(folder, is_disk, "ro")
            wrong += [f"kernels {damage}: {one}" for one in _wrong_calls(folder)]
            _set_writable(folder, is_disk, "rw")
    return wrong


def _set_writable(folder: Path, is_disk: bool, how: str) -> None:
    if is_disk:  # root writes into any folder
        subprocess.run(["mount", "-o", f"remount,{how}", str(folder)], check=True)
    else:
        (folder / "kernels").chmod(0o500 if how == "ro" else 0o700)


def damaged_caches(folder: Path, seed: int) -> list[str]:
    """Kernels that are cut or have a flipped bit; a folder or a dead link in their place; litter of killed writers."""
    wrong, rng = _wrong_calls(folder), random.Random(seed)
    whole = {path: path.read_bytes() for path in _kernels(folder)}
    if not whole:
        return [*wrong, "nothing was kept"]
    for damage in _DAMAGES:
        for path, content in whole.items():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
            damage(path, content, rng)
        wrong += [f"{damage.__name__}: {one}" for one in _wrong_calls(folder)]
    return wrong


def _cut(path: Path, content: bytes, rng: random.Random) -> None:
    path.write_bytes(content[: rng.randrange(len(content))])


def _flip(path: Path, content: bytes, rng: random.Random) -> None:
    at = rng.randrange(len(content))
    path.write_bytes(content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :])


def _put_folder(path: Path, content: bytes, rng: random.Random) -> None:
    path.mkdir()


def _put_dead_link(path: Path, content: bytes, rng: random.Random) -> None:
    path.symlink_to(path.with_suffix(".nowhere"))


def _put_litter(path: Path, content: bytes, rng: random.Random) -> None:
    for number in range(3):
        path.with_name(f".{path.name}.{number}.tmp").write_bytes(content[:100])


_DAMAGES = (_cut, _flip, _put_litter, _put_dead_link, _put_folder)


def no_home(folder: Path, seed: int) -> list[str]:
    """A home that does not exist and cannot, a file in the cache's place, none of the variables."""
    (folder / "file").write_text("")
    wrong = list[str]()
    for place in (folder / "file", folder / "file" / "below"):
        setting = _setting(folder) | {"VGRAPH_CACHE_DIR": None, "XDG_CACHE_HOME": None, "HOME": str(place)}
        found = runs.run_apart(calls.compiled_calls, setting=setting)
        wrong += [f"HOME={place.name}: {one}" for one in _wrong_numbers(found)]
        wrong += [f"the cache at {place.name}: {one}" for one in _wrong_calls(place)]
    return wrong


def vanishing_cache(folder: Path, seed: int) -> list[str]:
    """The cache is removed while a process uses it."""
    ended = runs.run_apart(calls.calls_while_the_cache_goes, folder / "cache", setting=_setting(folder / "cache"))
    return _wrong_numbers(ended)


def twenty_at_once(folder: Path, seed: int) -> list[str]:
    """Processes that find an empty cache together: the same numbers everywhere, whole kernels, no litter."""
    started = [runs.start_apart(calls.compiled_calls, setting=_setting(folder)) for _ in range(_TOGETHER)]
    wrong = [one for found in started for one in _wrong_numbers(runs.wait_for(found))]
    litter = [path.name for path in folder.rglob("*.tmp")]
    return wrong + [f"left behind: {litter}"] * bool(litter) + _wrong_calls(folder)


def no_compiler(folder: Path, seed: int) -> list[str]:
    """Nothing on the path, and the wheel hidden: torch's operators compute the same."""
    setting = _setting(folder) | {"PATH": str(folder), "CXX": None}
    ended = runs.run_apart(calls.calls_without_compiler, setting=setting)
    return _wrong_numbers(ended, is_compiled=False)


def _kernels(folder: Path) -> list[Path]:
    return sorted((folder / "kernels").glob("*.so"))


def _wrong_calls(folder: Path) -> list[str]:
    """What is wrong with calls in a new process that has its cache there."""
    return _wrong_numbers(runs.run_apart(calls.compiled_calls, setting=_setting(folder)))


@cache
def _numbers() -> torch.Tensor:
    return torch.tensor(_answer(runs.run_apart(calls.tanh_sum, setting={"VGRAPH_KERNELS": "0"})))


def _wrong_numbers(ended: tuple[int, Any], *, is_compiled: bool = True) -> list[str]:
    numbers, was_compiled = _answer(ended)
    wrong = [] if torch.allclose(torch.tensor(numbers), _numbers(), atol=1e-5) else [f"the numbers are {numbers}"]
    return wrong + [f"kernels were compiled: {was_compiled}"] * (was_compiled != is_compiled)


# ---------------------------------------------------------------- memory, signals, threads
def out_of_memory(folder: Path, seed: int) -> list[str]:
    """In the midst of a call; kernels on and off."""
    return [
        f"kernels {on}: {wrong}"
        for on in ("0", "1")
        for wrong in _answer(
            runs.run_apart(calls.calls_out_of_memory, setting=_setting(folder) | {"VGRAPH_KERNELS": on})
        )
    ]


def keyboard_interrupt(folder: Path, seed: int) -> list[str]:
    """At random lines of captures and calls: graphs, modules and torch's modes as they were, the next call right."""
    return _answer(runs.run_apart(calls.interrupted_calls, seed, 60, setting={"VGRAPH_KERNELS": "0"}))


def terminated(folder: Path, seed: int) -> list[str]:
    """SIGTERM within a step: the step is finished, everything is kept, and the resumed training is the same."""
    shared, wanted, _ = _whole("0")
    own = shared / "terminated"
    own.mkdir()
    code = _answer(runs.run_apart(runs.terminated_training, own, setting=_setting(shared / "cache", "0")))
    _answer(runs.run_apart(runs.train, own, None, setting=_setting(shared / "cache", "0")))
    found = runs.what_was_learnt(own)
    shutil.rmtree(own)
    return [f"it ended with {code}"] * (code != 130) + ["the resumed training differs"] * (found != wanted)


def many_threads(folder: Path, seed: int) -> list[str]:
    """Calls, captures, features and numbers of threads, in four threads at once."""
    return [
        wrong
        for on in ("0", "1")
        for wrong in _answer(runs.run_apart(calls.threads, seed, 25, setting=_setting(folder) | {"VGRAPH_KERNELS": on}))
    ]


def failing_loader(folder: Path, seed: int) -> list[str]:
    """What a worker raises reaches the loop, and the loader goes on."""
    return _answer(runs.run_apart(calls.failing_loaders, setting={"VGRAPH_KERNELS": "0"}))


FAULTS: dict[str, Callable[[Path, int], list[str]]] = {  # the cheap ones first
    fault.__name__: fault
    for fault in (
        terminated, full_disk, no_compiler, failing_loader, vanishing_cache, full_cache, no_home, read_only_cache,
        damaged_caches, many_threads, out_of_memory, keyboard_interrupt, twenty_at_once,
    )
}  # fmt: skip
FULL_COUNT = KILLS + len(FAULTS)
SHORT_COUNT = _KILLS_FIRST + 3
