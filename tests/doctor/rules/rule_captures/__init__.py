"""Captures for each rule: with its fault, and healthy ones that look similar.

FAULTS       the rule, a capture with one fault, and the line that the rule must name
WARNINGS     the same, for faults that cost memory and no time, or an unknown time: the finding has zero seconds
NEAR_MISSES  the rule that must report nothing, and a healthy capture
"""

from tests.doctor.rules.device_faults import DEVICE_FAULTS, DEVICE_NEAR_MISSES
from tests.doctor.rules.rule_captures import batches, compilation, host_time, settings_and_memory, transfers

__all__ = ["FAULTS", "NEAR_MISSES", "WARNINGS"]

FAULTS = (
    transfers.FAULTS
    | batches.FAULTS
    | compilation.FAULTS
    | host_time.FAULTS
    | settings_and_memory.FAULTS
    | DEVICE_FAULTS
)
WARNINGS = batches.WARNINGS | compilation.WARNINGS | settings_and_memory.WARNINGS
NEAR_MISSES = (
    transfers.NEAR_MISSES
    | batches.NEAR_MISSES
    | compilation.NEAR_MISSES
    | host_time.NEAR_MISSES
    | settings_and_memory.NEAR_MISSES
    | DEVICE_NEAR_MISSES
)
