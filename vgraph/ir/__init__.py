"""The nouns that pass between the stages.

Takes: nothing of the user's. Gives: Program, Topology, Schedule, MemoryPlan; source: Cavs section 3.
"""
