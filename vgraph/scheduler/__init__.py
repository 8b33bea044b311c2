"""When rows are evaluated: phases of a Program, frontiers of a topology.

Takes: Program, Topology. Gives: Phases, Schedule; source: Cavs section 3.2.
"""
