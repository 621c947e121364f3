"""Where the turns of a loop begin that nothing marks: at a line that comes again, less often than the others. Pure."""

__all__ = ["Turns"]

FEWEST = 3  # turns, or it is no loop


class Turns:
    """Told of the lines of operations, one after the other; then asked which of them begins a turn."""

    def __init__(self) -> None:
        self._passes: dict[int, int] = {}  # how often each was come to from another line
        self._previous = -1
        self._begins: int | None = None

    def met(self, line: int) -> None:
        if line != self._previous:
            self._passes[line] = self._passes.get(line, 0) + 1
            self._previous = line

    def begins_at(self, line: int) -> bool:
        """Any line does where none is known to."""
        if self._begins is None:
            self._begins = self._seldom()
        return self._begins in (-1, line)

    def _seldom(self) -> int:
        """The first of those that come least often: the lines of an inner loop come more often than its turns."""
        again = {line: passes for line, passes in self._passes.items() if passes >= FEWEST}
        return min(again, key=lambda line: again[line], default=-1)
