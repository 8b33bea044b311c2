"""Groups of ops that become one loop, and the loops as C++.

Takes: Phases. Gives: Units, KernelSpecs, compiled kernels; source: Cavs section 3.5.
"""
