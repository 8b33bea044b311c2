"""A Sphinx extension: one page of reference for every package that users import, from what is public in it.

Takes: the names that the lint of docstrings takes. Gives: pages under reference/, made anew at each build.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from sphinx.application import Sphinx

from tests.public_names import GIVEN, MADE_BY, Public, public_things

OTHERS = "given"  # the page of classes that functions give and nobody imports


def pages() -> dict[str, list[Public]]:
    """Public functions and classes by the page on which they stand; members stand below their classes."""
    found = defaultdict[str, list[Public]](list)
    made_elsewhere = {place.replace(":", ".") for place in GIVEN}
    for public in public_things():
        if public.owner is None:
            package = public.name.rpartition(".")[0]
            found[OTHERS if public.name in made_elsewhere else package].append(public)
    return dict(found)


def text_of(page: str, things: list[Public]) -> str:
    """The page as reStructuredText."""
    title = "What functions give" if page == OTHERS else page
    lines = [title, "=" * len(title), ""]
    if page == OTHERS:
        lines += ["Classes whose objects vgraph makes and hands to you.", ""]
    else:
        lines += [f".. automodule:: {page}", ""]
    lines += [".. list-table::", "   :widths: 30 70", ""]
    for public in things:
        role = "class" if public.is_class else "func"
        lines += [f"   * - :py:{role}:`~{public.name}`", f"     - {public.text.splitlines()[0]}"]
    lines.append("")
    for public in things:
        lines += directive(public)
    return "\n".join(lines)


def directive(public: Public) -> list[str]:
    """The lines that have autodoc show a function, or a class and its members."""
    kind = "autoclass" if public.is_class else "autofunction"
    lines = [f".. {kind}:: {public.name}"]
    if public.is_class:
        lines += ["   :members:", "   :inherited-members: Module, dict, Tensor, tuple, Exception"]
        fields = getattr(public.thing, "_fields", ())  # of a named tuple: its docstring describes them
        lines += [f"   :exclude-members: {', '.join(fields)}"] if fields else []
    lines.append("")
    if public.name in MADE_BY:
        lines += [f"   Made by ``{MADE_BY[public.name]}``.", ""]
    return lines


def write(app: Sphinx) -> None:
    """Writes pages that have changed, and removes those of packages that are gone."""
    folder = Path(app.srcdir) / "reference" / "packages"
    folder.mkdir(exist_ok=True)
    wanted = {f"{page}.rst": text_of(page, things) for page, things in pages().items()}
    for path in folder.glob("*.rst"):
        if path.name not in wanted:
            path.unlink()
    for name, text in wanted.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """What Sphinx calls to find out what the extension does."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
