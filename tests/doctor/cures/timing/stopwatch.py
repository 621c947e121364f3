"""A stopwatch for steps. It times blocks of 20 steps and waits for the device after each.

The scripts of all sibling folders import this module, so this folder must be on the path:

    PYTHONPATH=tests/doctor/cures/timing python tests/doctor/cures/torch/read_back.py
"""

import json
import sys
from statistics import median
from time import perf_counter

BLOCK_STEPS = 20


class Stopwatch:
    def __init__(self, synchronize=None):
        self._synchronize = synchronize or (lambda: None)
        self._steps = 0
        self._block_ends = []

    def lap(self):
        """Count one queued step, and end a block after every 20 steps."""
        self._steps += 1
        if self._steps % BLOCK_STEPS == 0:
            self.block(self._steps)

    def block(self, steps):
        """Wait for the device, then record the time and the total number of steps."""
        self._synchronize()
        self._block_ends.append((steps, perf_counter()))

    def print_step_time(self):
        """Print the median step time of the last half of the blocks, as one line of JSON."""
        blocks = zip(self._block_ends, self._block_ends[1:], strict=False)
        step_ms = [1e3 * (end - start) / (after - before) for (before, start), (after, end) in blocks]
        sys.stdout.write(json.dumps({"step_ms": round(median(step_ms[len(step_ms) // 2 :]), 4)}) + "\n")
