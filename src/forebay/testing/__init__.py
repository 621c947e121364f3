"""Conformance suites for authors of sources and engines, and a simulated device."""

from forebay.testing.engines import EngineTests
from forebay.testing.simulated_engine import HazardError, SimulatedEngine, SimulatedMemory, VirtualClock
from forebay.testing.sources import SourceTests

__all__ = ["EngineTests", "HazardError", "SimulatedEngine", "SimulatedMemory", "SourceTests", "VirtualClock"]
