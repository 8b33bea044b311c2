"""Runs what was planned.

Takes: phases, schedules, plans, tensors. Gives: tensors; tempo: every step.
"""
