"""Text: lines of C++ and CUDA C++ put together, and indented by their braces.

Takes: pieces of text. Gives: text. Runs once per function.
"""

from __future__ import annotations

from collections.abc import Iterable


def block(*parts: str | Iterable[str]) -> str:
    """The parts, line under line."""
    return "\n".join(part if isinstance(part, str) else "\n".join(part) for part in parts)


def indented(text: str) -> str:
    """The lines that are not empty, each as deep as the braces around it.

    >>> print(indented("if (a) {\\nb;\\n\\n}"), end="")
    if (a) {
      b;
    }
    """
    lines: list[str] = []
    depth = 0
    for line in filter(None, map(str.strip, text.splitlines())):
        if "{" not in line and "}" not in line:  # most have none
            lines.append("  " * depth + line + "\n")
            continue
        closed = len(line) - len(line.lstrip("}"))
        lines.append("  " * (depth - closed) + line + "\n")
        depth += line.count("{") - line.count("}")
    return "".join(lines)
