"""How long a step takes by the clock: blocks of twenty, each ended by a wait for the device.

Scripts of every folder beside this one import it, so this folder has to be on the path:

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
        """A step has been queued."""
        self._steps += 1
        if self._steps % BLOCK_STEPS == 0:
            self.block(self._steps)

    def block(self, steps):
        """So many steps have been queued in all."""
        self._synchronize()
        self._block_ends.append((steps, perf_counter()))

    def tell(self):
        """The median of the blocks of the last half, as the last line of the script's output."""
        blocks = zip(self._block_ends, self._block_ends[1:], strict=False)
        step_ms = [1e3 * (end - start) / (after - before) for (before, start), (after, end) in blocks]
        sys.stdout.write(json.dumps({"step_ms": round(median(step_ms[len(step_ms) // 2 :]), 4)}) + "\n")
