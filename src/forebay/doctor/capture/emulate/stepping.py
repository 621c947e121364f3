"""Steps of a run that is only timed: they end where those of the run before did, and are timed in blocks."""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter_ns

from forebay.doctor.capture.window import Site, Stepping

__all__ = ["BLOCK_STEPS", "TimedStepping"]

BLOCK_STEPS = 40  # to wait after so many costs a step hardly anything


@dataclass(slots=True)
class TimedStepping(Stepping):
    """Looks at one line only; nothing is recorded on the device.

    Where nothing waits for the device any more, Python queues steps faster than they are done. So the device is waited
    for after each block of steps, and a step takes what its block took for each.
    """

    is_end: Callable[[Site], bool] = lambda site: True  # of a step
    wait: Callable[[], None] = lambda: None  # for the device
    steps: int = 5
    untraced_steps: int = 3 * BLOCK_STEPS
    patience_seconds: float = 0.0
    glance_seconds: float = 0.0
    short_seconds: float = 0.0
    _settled: int = 0  # marks up to here

    def note(self, site: Site, count: int, now: int) -> bool:
        if self.phase == "over" or not self.is_end(site):
            return False
        changed = Stepping.note(self, site, count, now)
        if self.phase == "tracing":
            self.skip_tracing()
        elif self.phase != "watching" and (changed or len(self.marks) % BLOCK_STEPS == 1):
            self.wait()
            self._settle(perf_counter_ns())
        return changed

    def finish(self, now: int) -> None:
        if self.phase == "timing" and self.marks:
            since = perf_counter_ns()
            self.wait()
            self._settle(self.marks[-1] + perf_counter_ns() - since)  # what came after the last step is none of it
        Stepping.finish(self, now)

    def _settle(self, done: int) -> None:
        """The block that ends with the last mark was done by then."""
        first, last = self._settled, len(self.marks) - 1
        begun = self.marks[first] if last else done
        for number in range(first, last + 1):
            self.marks[number] = begun + (done - begun) * (number - first) // max(1, last - first)
        self._settled = last
