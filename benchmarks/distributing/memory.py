"""What processes hold that is no file: now, and the most while something runs."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread

EVERY = 5e-4  # seconds


def anonymous_bytes(pid: int | str = "self") -> int:
    """Of a process; 0 where the system does not say."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon")), 0)


class Peak:
    """``with Peak() as peak:`` what runs meanwhile, of which ``peak.bytes`` is the most that this process held."""

    def __enter__(self) -> Peak:
        self.bytes, self._over, self._thread = anonymous_bytes(), Event(), Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(EVERY):
            self.bytes = max(self.bytes, anonymous_bytes())
