"""Partition: dense Programs divided among workers.

Takes: a Program. Gives: a ShardingPlan and one Program a worker. Runs once per function.
"""
