"""Progress: how far what takes long has come, for whoever shows it.

Takes: nothing. Gives: the type of what is told. Runs a few times a second.
"""

from collections.abc import Callable

Progress = Callable[[str, int, int], None]  # what is done, how much of it, of how much


def no_progress(what: str, done: int, total: int) -> None:
    """For whom nobody asks how far it is."""
