"""Kept memory: what calls leave behind for later ones, and giving it back.

Takes: nothing. Gives: a number of bytes. Runs when the user says so.
"""

from __future__ import annotations

from vgraph import native_part


def release_memory() -> int:
    """Gives back the memory that is kept for later calls, on all devices.

    Calls keep their working memory for the next ones, up to the most that was in use at once of late. What results
    and graphs of autograd still use stays. On a GPU it goes to torch's allocator: see ``torch.cuda.empty_cache``.

    Returns:
        How many bytes that were.

    Source: none; the counterpart of ``torch.cuda.empty_cache``.

    Example:
        >>> import vgraph
        >>> released = vgraph.release_memory()
        >>> vgraph.release_memory()
        0
    """
    return native_part.arenas.release()
