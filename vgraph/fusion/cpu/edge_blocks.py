"""Edge blocks: a loop over edges that multiplies rows of some edges at a time.

Takes: what a stage does with each edge, and the products among it. Gives: its text in C++. Runs once per function.
A matrix that is read once for three rows costs a third of the loads, and what is computed of one edge need not wait for
what the edge before it waits for. So the steps between two products are done for all edges of a block, then these.

Where all products are of rows in memory, blocks are smaller: such products wait for nothing, and are what there is to
do while rows of other ends come from memory.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from vgraph.fusion.layout import Layout
from vgraph.fusion.row_products import RowProduct
from vgraph.fusion.scratch import Array
from vgraph.fusion.target import EdgePass
from vgraph.fusion.text import block
from vgraph.ir.program import Value

MOST_EDGES = 16  # of a block: what lies between two of its products should stay in the nearest caches
EDGES_IN_MEMORY = 8  # of one whose products wait for nothing: GINEConv's step takes 0.89 of its time edge by edge


@dataclass(eq=False)
class EdgeBlocks:
    """One loop over edges; ``edge``: the variable that counts them.

    ``handed_on``: arrays with a row for each edge of a block, as products and later steps read them. All other arrays
    are one edge's.
    """

    made: EdgePass
    layout: Layout
    edge: str
    num_edges: int = field(init=False)  # of a block
    handed_on: list[Value] = field(init=False, default_factory=list[Value])
    steps: list[tuple[str, list[RowProduct]]] = field(init=False)  # the text for each edge, then products

    def __post_init__(self) -> None:
        self.steps = _steps(self.made.inside)
        products = [product for _, products in self.steps for product in products]
        are_loaded = bool(products) and all(product.is_loaded for product in products)
        self.num_edges = EDGES_IN_MEMORY if are_loaded else MOST_EDGES
        values = self.layout.made(self.made.stage.arrays)
        self.handed_on = [value for value in values if self._is_handed_on(value)]

    def _is_handed_on(self, value: Value) -> bool:
        named = re.compile(rf"\bt{value.id}\b")
        by_products = (p for _, products in self.steps for p in products)
        if any(p.result is value or named.search(p.given) for p in by_products):
            return True
        return sum(named.search(text) is not None for text, _ in self.steps) > 1

    def arrays(self) -> list[Array]:
        """What the loop asks for beside arrays of one edge."""
        return [Array(f"block{value.id}", value, self.num_edges) for value in self.handed_on]

    def text(self, named: str, ahead: str) -> str:
        """``named``: what the text of an edge says of it; ``ahead``: what it fetches for later edges."""
        sums = self.made.outer_sums.items()
        full = (f"if (rows{name} + num > vg_block) {{\n{text}\nrows{name} = 0;\n}}" for name, text in sums)
        return f"""
        for (int64_t first = from; first < to; first += {self.num_edges}) {{
          const int num = to - first < {self.num_edges} ? (int)(to - first) : {self.num_edges};
          {block(full)}
          {block(self._step(n, named, "" if n else ahead) for n in range(len(self.steps)))}
          {block(f"rows{name} += num;" for name, _ in sums)}
        }}
        """

    def _step(self, number: int, named: str, ahead: str) -> str:
        text, products = self.steps[number]
        given = [f"given{p.result.id}[b] = {p.given};" for p in products]
        places = [value for value in self.handed_on if re.search(rf"\bt{value.id}\b", block(text, given))]
        return f"""
        {block(f"const {p.kind}* given{p.result.id}[{self.num_edges}];" for p in products)}
        for (int b = 0; b < num; ++b) {{
          const int64_t {self.edge} = first + b;
          {named}
          {block(self._place(value) for value in places)}
          {ahead}
          {text}
          {block(given)}
        }}
        {block(_of_a_block(p) for p in products)}
        """

    def _place(self, value: Value) -> str:
        kind, size = Array("", value).kind, math.prod(value.row_shape)
        return f"{kind}* __restrict const t{value.id} = block{value.id} + b * {size};"


def _steps(inside: Sequence[str | RowProduct]) -> list[tuple[str, list[RowProduct]]]:
    """Texts up to the next products, with these."""
    steps: list[tuple[str, list[RowProduct]]] = [("", [])]
    for part in inside:
        text, products = steps[-1]
        if isinstance(part, RowProduct):
            products.append(part)
        elif products:
            steps.append((part, []))
        else:
            steps[-1] = (block(text, part), products)
    return steps


def _of_a_block(product: RowProduct) -> str:
    name = product.result.id
    places = f"block{name}, given{name}, {product.step}, {product.weight}, {product.bias}, num"
    return f"vg_multiply_rows<{product.sizes}>({places});"
