"""Every ```python block of README.md and of the pages under docs/ runs as printed.

The blocks of one document run in order and share their names, as a reader would type them. A block
that is not meant to run is fenced as ```text.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent
DOCUMENTS = [PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def read_blocks(text: str) -> list[str]:
    """Each block, moved down to its own lines, so that errors and captures name those lines."""
    return ["\n" * text.count("\n", 0, m.start(1)) + m.group(1) for m in BLOCK.finditer(text)]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(PROJECT)))
def test_blocks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    for block in read_blocks(path.read_text(encoding="utf-8")):
        exec(compile(block, str(path), "exec"), names)


def test_readme_shows_code() -> None:
    text = (PROJECT / "README.md").read_text(encoding="utf-8")
    assert read_blocks(text), "README.md has no ```python block: nothing shows what a user types"


def test_block_keeps_its_lines() -> None:
    (block,) = read_blocks("# title\n\n```python\nx = 1\n```\n\n```text\nnot this\n```\n")
    assert block == "\n\n\nx = 1\n"
