"""For people who write sources and engines of their own: the suites ours pass, and a device that is not there."""

from forebay.testing.engines import EngineTests
from forebay.testing.simulated_engine import HazardError, SimulatedEngine, SimulatedMemory, VirtualClock
from forebay.testing.sources import SourceTests

__all__ = ["EngineTests", "HazardError", "SimulatedEngine", "SimulatedMemory", "SourceTests", "VirtualClock"]
