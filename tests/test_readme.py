"""Every ```python block of README.md and of the pages and notebooks under docs/ runs as printed.

The blocks of one document run in order and share their names, as a reader would type them. A block
that is not meant to run is fenced as ```text; one that stands right below code is what that code prints.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import traceback
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def read_blocks(text: str) -> list[str]:
    """Each block, moved down to its own lines, so that errors and captures name those lines."""
    return ["\n" * text.count("\n", 0, m.start(1)) + m.group(1) for m in BLOCK.finditer(text)]


def code_of(path: Path) -> list[str]:
    """The blocks of a page, or the cells of a notebook."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        return ["".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    return read_blocks(text)


PRINTED = re.compile(r"\n+```text\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"\w+\.(?:py|md):(?=\d)")  # whose name a page may write otherwise than it is run here
WITHOUT_KERNELS = "(VGRAPH_KERNELS=0)"  # as tests run: what is explained is another thing; test_explain.py compares it


def untrue(text: str, outputs: list[str]) -> list[str]:
    """What a page says that its blocks print, and they do not."""
    wrong: list[str] = []
    for block, printed in zip(BLOCK.finditer(text), outputs, strict=True):
        said = PRINTED.match(text, block.end())
        if said is None or WITHOUT_KERNELS in printed:
            continue
        if FILE.sub("", printed).rstrip() != FILE.sub("", said[1]).rstrip():
            wrong.append(f"it says {said[1]!r}, and prints {printed!r}")
    return wrong


def with_code() -> list[Path]:
    """The documents that show code."""
    docs = PROJECT / "docs"
    built = {docs / "_build", docs / "project"}
    pages = [path for kind in ("*.md", "*.ipynb") for path in docs.rglob(kind) if not built & {*path.parents}]
    return [path for path in [PROJECT / "README.md", *sorted(pages)] if code_of(path)]


def failure(path: Path) -> str:
    """The traceback of the first block that does not run, or what a page says that is not so; empty where all is."""
    names: dict[str, object] = {"__name__": "__main__"}
    outputs: list[str] = []
    try:
        for block in code_of(path):
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(block, str(path), "exec"), names)
            outputs.append(printed.getvalue())
    except Exception:
        return traceback.format_exc()
    return "\n".join(untrue(path.read_text(encoding="utf-8"), outputs)) if path.suffix == ".md" else ""


@pytest.mark.parametrize("path", with_code(), ids=lambda path: str(path.relative_to(PROJECT)))
def test_blocks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert failure(path) == ""


def test_a_block_that_fails_is_told_with_its_line(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# title\n\n```python\nx = 1\n1 / (x - x)\n```\n", encoding="utf-8")
    assert "line 5" in failure(page) and "ZeroDivisionError" in failure(page)


def test_output_that_a_page_makes_up_is_told(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    for said, wrong in (("2", ""), ("3", "it says '3\\n', and prints '2\\n'")):
        page.write_text(
            f"```python\nprint(1)\n```\n\nand\n\n```python\nprint(2)\n```\n\n```text\n{said}\n```\n", encoding="utf-8"
        )
        assert failure(page) == wrong


def test_readme_shows_code() -> None:
    text = (PROJECT / "README.md").read_text(encoding="utf-8")
    assert read_blocks(text), "README.md has no ```python block: nothing shows what a user types"


def test_block_keeps_its_lines() -> None:
    (block,) = read_blocks("# title\n\n```python\nx = 1\n```\n\n```text\nnot this\n```\n")
    assert block == "\n\n\nx = 1\n"
