"""Pools of workers that run maps: local processes, or Ray workers on a cluster."""
