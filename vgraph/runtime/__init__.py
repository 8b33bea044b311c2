"""Runs what was planned.

Takes: phases, schedules, plans, tensors. Gives: tensors. Runs at every step.
"""
