"""Shared foundations: specs, protocols, the plug-in registry, host facts, measured ceilings, counters."""
