"""Kinds of functions in the staleness campaign, as Python source.

``{params}`` and ``{work}``, statements that give ``out`` from ``rows``, are filled in (programs.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent


@dataclass(frozen=True)
class Host:
    """A kind of function: ``{params}``, ``{work}`` (statements that give ``out`` from ``rows``) are filled in."""

    name: str
    source: str
    columns: str = ""  # the features that it sees, beside ``rows``
    frame: str = ""  # where they are set
    is_once: bool = True  # runs once a call


def _host(name: str, source: str, columns: str = "", frame: str = "", is_once: bool = True) -> Host:
    return Host(name, dedent(source).strip(), columns, frame, is_once)


_SUM = '    g.update_all(user, fn.sum("m", "o"))\n    return g.ndata["o"]'
HOSTS: tuple[Host, ...] = (
    _host("message", """
        def user(edges{params}):
            rows = edges.src["h"]
            {work}
            return {{"m": out}}
        def call(g):
            g.update_all(user, fn.sum("m", "o"))
            return g.ndata["o"]
        """, "edges.data", "edata"),
    _host("reduce function", """
        def user(nodes{params}):
            rows = nodes.mailbox["m"].sum(1)
            {work}
            return {{"o": out}}
        def call(g):
            g.update_all(fn.copy_u("h", "m"), user)
            return g.ndata["o"]
        """, "nodes.data", "ndata"),
    _host("apply function of update_all", """
        def user(nodes{params}):
            rows = nodes.data["o"] + nodes.data["h"]
            {work}
            return {{"o": out}}
        def call(g):
            g.update_all(fn.copy_u("h", "m"), fn.sum("m", "o"), user)
            return g.ndata["o"]
        """, "nodes.data", "ndata"),
    _host("apply_edges", """
        def user(edges{params}):
            rows = edges.src["h"] + edges.dst["h"]
            {work}
            return {{"o": out}}
        def call(g):
            g.apply_edges(user)
            return g.edata["o"]
        """, "edges.data", "edata"),
    _host("apply_nodes", """
        def user(nodes{params}):
            rows = nodes.data["h"]
            {work}
            return {{"o": out}}
        def call(g):
            g.apply_nodes(user)
            return g.ndata["o"]
        """, "nodes.data", "ndata"),
    _host("bound method", """
        class Owner:
            def user(self, edges{params}):
                rows = edges.src["h"]
                {work}
                return {{"m": out}}
        owner = Owner()
        user = Owner.user
        def call(g):
            g.update_all(owner.user, fn.sum("m", "o"))
            return g.ndata["o"]
        """, "edges.data", "edata"),
    _host("inherited method by super", """
        class Base:
            def work(self, edges{params}):
                rows = edges.src["h"]
                {work}
                return {{"m": out}}
        class Owner(Base):
            def work(self, edges):
                return super().work(edges)
        owner = Owner()
        user = Base.work
        def call(g):
            g.update_all(owner.work, fn.sum("m", "o"))
            return g.ndata["o"]
        """, "edges.data", "edata"),
    _host("callable object", """
        class Owner:
            def __call__(self, edges{params}):
                rows = edges.src["h"]
                {work}
                return {{"m": out}}
        owner = Owner()
        user = Owner.__call__
        def call(g):
            g.update_all(owner, fn.sum("m", "o"))
            return g.ndata["o"]
        """, "edges.data", "edata"),
    _host("static and class methods", """
        class Owner:
            @staticmethod
            def user(edges{params}):
                rows = edges.src["h"]
                {work}
                return {{"m": out}}
            @classmethod
            def through(cls, edges):
                return cls.user(edges)
        user = Owner.user
        def call(g):
            g.update_all(Owner.through, fn.sum("m", "o"))
            return g.ndata["o"]
        """, "edges.data", "edata"),
    _host("partial", """
        def user(extra, edges{params}):
            rows = edges.src["h"] + extra
            {work}
            return {{"m": out}}
        bound = functools.partial(user, 0.5)
        def call(g):
            g.update_all(bound, fn.sum("m", "o"))
            return g.ndata["o"]
        """, "edges.data", "edata"),
    _host("partial made anew at every call", """
        def user(extra, edges{params}):
            rows = edges.src["h"] + extra
            {work}
            return {{"m": out}}
        def call(g):
            g.update_all(functools.partial(user, 0.5), fn.sum("m", "o"))
            return g.ndata["o"]
        """, "edges.data", "edata"),
    _host("decorated function", """
        def logged(function):
            @functools.wraps(function)
            def inner(*args, **kwargs):
                return function(*args, **kwargs)
            return inner
        def user(edges{params}):
            rows = edges.src["h"]
            {work}
            return {{"m": out}}
        decorated = logged(user)
        def call(g):
            g.update_all(decorated, fn.sum("m", "o"))
            return g.ndata["o"]
        """, "edges.data", "edata"),
    _host("function made anew at every call", """
        def call(g):
            def user(edges{params}):
                rows = edges.src["h"]
                {work}
                return {{"m": out}}
            g.update_all(user, fn.sum("m", "o"))
            return g.ndata["o"]
        user = None
        """, "edges.data", "edata"),
    _host("method of an nn.Module", """
        class Layer(nn.Module):
            def __init__(self):
                super().__init__()
                self.map = nn.Linear(2, 2)
                with torch.no_grad():
                    self.map.weight.fill_(0.25)
                    self.map.bias.zero_()
            def user(self, edges{params}):
                rows = self.map(edges.src["h"])
                {work}
                return {{"m": out}}
            def forward(self, g):
                g.update_all(self.user, fn.sum("m", "o"))
                return g.ndata["o"]
        layer_of_user = Layer()
        user = Layer.user
        def call(g):
            return layer_of_user(g)
        """, "edges.data", "edata"),
    _host("vertex function", """
        class Cell(vg.VertexFunction):
            def forward(self, v{params}):
                rows = v.pull("h") + v.gather()["s"].sum()
                {work}
                v.scatter(s=out)
                v.push(o=out)
        cell = Cell()
        user = Cell.forward
        def call(g):
            return cell(g)["o"]
        """, is_once=False),
    _host("helper method of a vertex function", """
        class Base(vg.VertexFunction):
            def user(self, rows{params}):
                {work}
                return out
        class Cell(Base):
            def forward(self, v):
                out = self.user(v.pull("h") + v.gather()["s"].sum())
                v.scatter(s=out)
                v.push(o=out)
        cell = Cell()
        user = Base.user
        def call(g):
            return cell(g)["o"]
        """, is_once=False),
    _host("layer of a vertex function", """
        class Layer(nn.Module):
            def forward(self, rows{params}):
                {work}
                return out
        class Cell(vg.VertexFunction):
            def __init__(self):
                super().__init__()
                self.layers = nn.Sequential(Layer(), nn.Identity())
            def forward(self, v):
                out = self.layers(v.pull("h") + v.gather()["s"].sum())
                v.scatter(s=out)
                v.push(o=out)
        cell = Cell()
        user = Layer.forward
        def call(g):
            return cell(g)["o"]
        """, is_once=False),
    _host("vertex function, one vertex at a time", """
        class Cell(vg.VertexFunction):
            def forward(self, v{params}):
                rows = v.pull("h") + v.gather()["s"].sum()
                {work}
                v.scatter(s=out)
                v.push(o=out)
        cell = Cell(policy="serial")
        user = Cell.forward
        def call(g):
            return cell(g)["o"]
        """, is_once=False),
    _host("vertex function of one type", """
        class Word(vg.VertexFunction):
            def forward(self, v):
                v.scatter(s=v.pull("h"))
                v.push(o=v.pull("h"))
        class Phrase(vg.VertexFunction):
            def forward(self, v{params}):
                rows = v.pull("h") + v.gather()["s"].sum()
                {work}
                v.scatter(s=out)
                v.push(o=out)
        cell = vg.ByType({{0: Word(), 1: Phrase()}})
        user = Phrase.forward
        def call(g):
            return cell(g)["o"]
        """, is_once=False),
    _host("prop_nodes_topo", """
        def user(edges{params}):
            rows = edges.src["h"]
            {work}
            return {{"m": out}}
        def call(g):
            before = g.ndata["h"]
            vg.prop_nodes_topo(g, user, fn.sum("m", "h"))
            out, g.ndata["h"] = g.ndata["h"], before
            return out
        """, is_once=False),
    _host("pull", """
        def user(edges{params}):
            rows = edges.src["h"]
            {work}
            return {{"m": out}}
        def call(g):
            g.pull([2, 3, 4], user, fn.sum("m", "o"))
            return g.ndata["o"]
        """),
    _host("of= of vgraph.reduce", """
        def user(rows{params}):
            {work}
            return out
        def call(g):
            return vg.reduce(g.ndata["h"], (1,), "sum", of=user)
        """),
    _host("then= of vgraph.reduce", """
        def user(rows{params}):
            {work}
            return out
        def call(g):
            return vg.reduce(g.ndata["h"], (1,), "sum", then=user)
        """),
)  # fmt: skip
