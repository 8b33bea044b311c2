"""Programs of the staleness campaign: a way of reading within a kind of function, as Python source.

Takes: a Reading, a Host, a Via. Gives: source that defines ``call(g)``, which whoever reads a failure can run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from textwrap import indent

from tests.campaign.hosts import Host

HEAD = """
import argparse, collections, contextvars, copy, dataclasses, enum, functools, importlib, itertools, operator, os
import random, sys, threading, time, types, typing, weakref
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
"""


@dataclass(frozen=True)
class Reading:
    """Something that a function reads, and ways to change it.

    ``setup`` stands at the top of the module, ``local`` in the function around the user's, ``params`` behind its
    arguments; ``body`` stands in the function itself and may use ``rows``; ``use`` is what it makes of them. Changes
    are source that runs at the top of the module.
    """

    name: str
    setup: str
    value: str
    changes: Mapping[str, str]
    body: str = ""
    use: str = "rows * ({value})"
    local: str = ""
    params: str = ""
    hosts: tuple[str, ...] = ()  # none: all
    after: str = ""  # puts back what the process shares
    is_direct: bool = False  # only where the user's function itself reads
    expects: str = "equal"  # to plain Python's result, or that results of several calls "vary"


@dataclass(frozen=True)
class Via:
    """What stands between the user's function and what it reads: ``{body}`` and ``{use}`` are filled in."""

    name: str
    setup: str  # behind the reading's own
    work: str
    is_direct: bool = False
    is_module: bool = False  # the reading and this stand in a module of their own


VIAS: tuple[Via, ...] = (
    Via("itself", "", "{body}\nout = {use}", is_direct=True),
    Via("a nested function", "", "def inner(rows):\n    {body}\n    return {use}\nout = inner(rows)", is_direct=True),
    Via("a lambda", "{helper}", "out = (lambda given: helper(given))(rows)"),
    Via("a comprehension", "{helper}", "out = [helper(each) for each in (rows,)][0]"),
    Via("a generator", "{helper}\ndef steps(rows):\n    yield helper(rows)", "for out in steps(rows):\n    pass"),
    Via("map", "{helper}", "(out,) = map(helper, [rows])"),
    Via("a helper", "{helper}", "out = helper(rows)"),
    Via("a helper's keyword", "{helper}\ndef outer(*, given, how=helper):\n    return how(given)", "out = outer(given=rows)"),
    Via("a method", "class Helper:\n    def run(self, rows):\n        {body}\n        return {use}\nit = Helper()",
        "out = it.run(rows)"),
    Via("a class method of a base", "class Base0:\n    @classmethod\n    def run(cls, rows):\n        {body}\n"
        "        return {use}\nclass Helper(Base0):\n    pass", "out = Helper.run(rows)"),
    Via("a property", "class Helper:\n    @property\n    def run(self):\n        return helper\n{helper}\nit = Helper()",
        "out = it.run(rows)"),
    Via("an operator", "class Helper:\n    def __matmul__(self, rows):\n        {body}\n        return {use}\nit = Helper()",
        "out = it @ rows"),
    Via("a table of functions", "{helper}\nTABLE = {{'first': [helper]}}", "out = TABLE['first'][0](rows)"),
    Via("functools.reduce", "{helper}", "out = functools.reduce(lambda one, how: how(one), [helper], rows)"),
    Via("an nn.Module", "class Helper(nn.Module):\n    def forward(self, rows):\n        {body}\n        return {use}\n"
        "it = nn.Sequential(Helper())", "out = it(rows)"),
    Via("an imported module", "{helper}", "out = {module}.helper(rows)", is_module=True),
    Via("a module imported inside", "{helper}", "import {module}\nout = {module}.helper(rows)", is_module=True),
    Via("a name imported inside", "{helper}", "from {module} import helper\nout = helper(rows)", is_module=True),
)  # fmt: skip
_HELPER = "def helper(rows):\n    {body}\n    return {use}"


@dataclass(frozen=True)
class Program:
    """The source of a main module and perhaps of one beside it, in which the reading stands."""

    main: str
    beside: str = ""
    names: tuple[str, ...] = field(default=())


def _filled(text: str, **given: str) -> str:
    """Fills in what may have several lines, each with the indentation of the place."""
    lines: list[str] = []
    for line in text.splitlines():
        bare = line.strip()
        if bare[:1] == "{" and bare[1:-1] in given:
            filled = given[bare[1:-1]]
            lines += indent(filled, line[: len(line) - len(line.lstrip())]).splitlines()
        else:
            lines.append(line)
    return "\n".join(lines)


def written(reading: Reading, host: Host, via: Via, module: str) -> Program:
    """The source of one case; ``module``: the name of the module beside, where there is one."""
    body = reading.body.replace("COLUMNS", host.columns).replace("FRAME", host.frame)
    use = reading.use.format(value=reading.value).replace("COLUMNS", host.columns)

    def fill(text: str) -> str:
        text = _filled(text, helper=_HELPER)
        return _filled(text, body=body).replace("{use}", use).replace("{{", "{").replace("}}", "}")

    between, work = fill(via.setup), fill(via.work).replace("{module}", module)
    setup = f"{reading.setup}\n{between}"
    inner = _filled(host.source, work=work).replace("{params}", reading.params).replace("{{", "{").replace("}}", "}")
    main = "\n".join([
        HEAD, f"import {module}" if via.name == "an imported module" else "", "" if via.is_module else setup,
        "def make():", indent(f"{reading.local}\n{inner}\nreturn call, user", "    "), "call, user = make()",
    ])  # fmt: skip
    return Program(_tidied(main), _tidied(f"{HEAD}\n{setup}") if via.is_module else "")


def _tidied(source: str) -> str:
    return "\n".join(line.rstrip() for line in source.splitlines() if line.strip()) + "\n"
