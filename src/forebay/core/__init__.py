"""Foundations of all other packages: specs, protocols, the registry, machine facts, measured ceilings."""
