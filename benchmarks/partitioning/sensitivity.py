"""What a simulated step would take on a machine of which one number differs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from vgraph.partition.accounting.account import Account
from vgraph.partition.accounting.machines import Machine
from vgraph.partition.accounting.simulate import simulate


def sensitivity(book: Account, machine: Machine) -> Mapping[str, float]:
    """Simulated seconds if one number of the machine were half or twice as large."""

    def scaled(links: float = 1.0, **changes: float) -> float:
        wires = tuple(replace(link, bandwidth=link.bandwidth * links) for link in machine.links)
        return simulate(book, replace(machine, links=wires, **changes)).seconds

    return {
        "as described": scaled(),
        "links half": scaled(0.5),
        "links twice": scaled(2.0),
        "flops half": scaled(flops=machine.flops / 2),
        "flops twice": scaled(flops=machine.flops * 2),
        "memory bandwidth half": scaled(memory_bandwidth=machine.memory_bandwidth / 2),
        "memory bandwidth twice": scaled(memory_bandwidth=machine.memory_bandwidth * 2),
    }
