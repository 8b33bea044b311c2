"""Where rows lie: their order, and the arena that holds what frontiers write.

Takes: Topology, Schedule, Phases. Gives: RowOrder, MemoryPlan, Leases; source: Cavs section 3.3.
"""
