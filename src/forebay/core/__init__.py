"""Foundations of all other packages: specs, protocols, plug-in registry, machine facts, measured ceilings."""
