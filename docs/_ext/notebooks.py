"""The tutorials as notebooks, made from their pages: python docs/_ext/notebooks.py

Takes: a page of Markdown. Gives: a notebook beside it, with a cell for each block of Python and one for the text
between; links are as true in it as in the page. tests/test_docs_site.py compares the notebooks with the pages.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

START = Path(__file__).resolve().parents[1] / "start"
PAGES = (START / "tree_lstm.md", START / "gnn.md")
BLOCK = re.compile(r"^```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
OF_THE_PAGE = re.compile(r"^\[This page as a notebook\].*\n\n", re.MULTILINE)


def notebook(page: str) -> str:
    """The text of the notebook that a page gives."""
    parts = BLOCK.split(OF_THE_PAGE.sub("", page))  # text and code by turns
    cells = [_cell(number, part.strip("\n")) for number, part in enumerate(parts) if part.strip()]
    about = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    whole = {"cells": cells, "metadata": about, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def _cell(number: int, text: str) -> dict[str, object]:
    cell: dict[str, object] = {"cell_type": "code" if number % 2 else "markdown", "id": f"cell-{number}"}
    if number % 2:
        cell |= {"execution_count": None, "outputs": []}
    return cell | {"metadata": {}, "source": text.splitlines(keepends=True)}


def main() -> None:
    """Writes a notebook beside each page."""
    for page in PAGES:
        page.with_suffix(".ipynb").write_text(notebook(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
