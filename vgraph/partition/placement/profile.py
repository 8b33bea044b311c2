"""Profile: measured seconds of ops and rates of links, kept on disk and used again.

Takes: measurements. Gives: seconds by operator, shapes, dtypes and kind of device. Runs once per model.
Source: depth-first placement, the offline profiler.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vgraph.atomic_file import write_text
from vgraph.errors import DataError, PlacementError
from vgraph.files import read_text
from vgraph.ir.program import Op, Value, op_name
from vgraph.ir.tdl.table import is_view
from vgraph.partition.placement.roofline import estimate_seconds

FORMAT = "vgraph profile 1"


def op_key(op: Op) -> str:
    """What an op's seconds depend on: its name, shapes and dtypes of its operands, its other arguments.

    A result that nobody asked for (a gradient) takes no time, so results count as well.
    """
    given = [_text(arg) for arg in op.args] + [f"{key}={_text(value)}" for key, value in op.kwargs.items()]
    return f"{op_name(op.target)}({', '.join(given)}) -> {', '.join(map(_text, op.results))}"


def _text(leaf: object) -> str:
    if isinstance(leaf, Value):
        return f"{str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)}"
    if isinstance(leaf, (tuple, list)):
        return f"[{', '.join(_text(item) for item in leaf)}]"
    return repr(leaf)


def _amount(value: object) -> float:
    """Seconds, or bytes a second; ValueError: it is no number from 0 up."""
    if not isinstance(value, (int, float)) or not 0 <= value <= sys.float_info.max:
        raise ValueError(f"{value!r} seconds, or bytes a second")
    return float(value)


@dataclass
class Profile:
    """The seconds of operators on kinds of devices, as of ``Placement.profile`` and ``vgraph.place(profile=...)``.

    Attributes:
        seconds: seconds by kind of device, then by key of the operator.
        links: (latency in seconds, bytes a second) by pair of kinds, "cpu -> cuda".
        notes: by kind of device, how its seconds were obtained.

    Source: depth-first placement (profile, place, execute).

    Example:
        >>> profile = Profile({"cpu": {"mm": 1e-3}}, {"cpu -> cpu": (1e-6, 1e10)})
        >>> Profile.from_text(profile.to_text()) == profile
        True
    """

    seconds: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    links: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    notes: dict[str, str] = field(default_factory=dict[str, str])  # kind -> how its seconds were obtained

    # ------------------------------------------------------------ reading
    def missing(self, ops: Sequence[Op], kind: str) -> list[int]:
        """The operators that it has no seconds for; views take none.

        Args:
            ops: the operators of a Program.
            kind: the kind of device.

        Returns:
            Their positions in ``ops``.
        """
        known = self.seconds.get(kind, {})
        return [i for i, op in enumerate(ops) if not is_view(op.target) and op_key(op) not in known]

    def check(self, ops: Sequence[Op], kinds: Sequence[str]) -> None:
        """Refuses operators or kinds of devices that were not profiled.

        Args:
            ops: the operators of a Program.
            kinds: the kinds of devices.

        Raises:
            PlacementError: this is the profile of another model or of other devices.
        """
        for kind in kinds:
            if kind not in self.seconds:
                raise PlacementError(
                    f"the profile has no seconds for {kind}: it was made on {', '.join(self.seconds) or 'nothing'}",
                    cure="leave profile= out to measure, or name the devices that it was made on",
                )
            if lacking := self.missing(ops, kind):
                op = ops[lacking[0]]
                raise PlacementError(
                    f"the profile is of another model: it has no seconds for {len(lacking)} of {len(ops)} operators "
                    f"on {kind}, the first is {op_key(op)}",
                    line=op.line or None,
                    cure="leave profile= out to measure, or pass the profile of this model and batch",
                )

    def cost(self, op: Op, kind: str) -> float:
        """The seconds of an operator; 0 for a view.

        Args:
            op: the operator.
            kind: the kind of device.

        Returns:
            Seconds.

        Raises:
            KeyError: it was not profiled there.
        """
        return 0.0 if is_view(op.target) else self.seconds[kind][op_key(op)]

    # ------------------------------------------------------------ writing
    def add(self, kind: str, ops: Sequence[Op], seconds: Mapping[int, float]) -> None:
        """Adds what was measured; of several operators of one key the mean counts.

        Args:
            kind: the kind of device.
            ops: the operators of a Program.
            seconds: median seconds by position in ``ops``.
        """
        found: dict[str, list[float]] = {}
        for position, value in seconds.items():
            found.setdefault(op_key(ops[position]), []).append(value)
        self.seconds.setdefault(kind, {}).update({key: sum(values) / len(values) for key, values in found.items()})

    def estimate(self, kind: str, ops: Sequence[Op], positions: Sequence[int]) -> None:
        """Adds seconds by the roofline for operators that cannot be run.

        Args:
            kind: the kind of device.
            ops: the operators of a Program.
            positions: which of them, by position in ``ops``.
        """
        known = self.seconds.setdefault(kind, {})
        known.update({op_key(ops[i]): estimate_seconds(ops[i], kind) for i in positions})

    # ------------------------------------------------------------ on disk
    def to_text(self) -> str:
        """The profile as JSON, one line an operator.

        Returns:
            A text that ``from_text`` reads.
        """
        data = {"format": FORMAT, "notes": self.notes, "links": self.links, "seconds": self.seconds}
        return json.dumps(data, indent=1, sort_keys=True)

    @classmethod
    def from_text(cls, text: str, name: str = "profile") -> Profile:
        """Reads what ``to_text`` wrote.

        Args:
            text: the JSON.
            name: what errors call it.

        Returns:
            A Profile.

        Raises:
            DataError: the text is no profile.
        """
        try:
            data = json.loads(text)
            if data["format"] != FORMAT:
                raise ValueError(f"its format is {data['format']!r}")
            seconds = {kind: {key: _amount(v) for key, v in row.items()} for kind, row in data["seconds"].items()}
            links = {pair: (_amount(a), _amount(b)) for pair, (a, b) in data["links"].items()}
            notes = {kind: str(note) for kind, note in data.get("notes", {}).items()}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            cure = f"it must hold {FORMAT!r} as JSON"
            raise DataError(f"{name} is no profile of vgraph: {error}", cure=cure) from error
        return cls(seconds, links, notes)

    def save(self, path: str | Path) -> None:
        """Writes it as JSON.

        Args:
            path: where to; a file that is there is replaced.
        """
        write_text(path, self.to_text())

    @classmethod
    def load(cls, path: str | Path) -> Profile:
        """Reads a file that ``save`` wrote.

        Args:
            path: the file.

        Returns:
            A Profile.

        Raises:
            DataError: the file is missing, or no profile.
        """
        return cls.from_text(read_text(path), str(path))
