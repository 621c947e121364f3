"""Numbers that the framework holds in half the bytes: they are fetched as they lie, to memory beside the slot, and a
kernel puts them into it. Without that memory, rows are staged, and narrowed on the host."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from forebay.core.spec import DEVICE_ALIGNMENT, ArraySpec, Layout, align
from forebay.engines.cuda.copy_plan import Place
from forebay.engines.cuda.engine import CudaEngine
from forebay.engines.cuda.memory import CudaMemory
from forebay.engines.cuda.row_mover import Mover
from forebay.errors import DeviceMemoryError

__all__ = ["Narrowing"]


@dataclass(frozen=True, slots=True)
class _Narrowed:
    number: int  # of the leaf
    spec: ArraySpec  # as its rows lie

    @property
    def real(self) -> bool:
        return self.spec.dtype.kind in "fc"


class Narrowing:
    """The leaves that are narrowed; none, mostly."""

    def __init__(
        self,
        engine: CudaEngine,
        specs: Sequence[ArraySpec],
        held: Sequence[ArraySpec],
        *,
        tell: Callable[[str, str, str], None],
    ) -> None:
        self._engine, self._tell = engine, tell
        pairs = enumerate(zip(specs, held, strict=True))
        self._leaves = [
            _Narrowed(number, spec) for number, (spec, narrow) in pairs if spec.dtype != narrow.dtype and spec.nbytes
        ]
        self._no_room = False

    def is_ready(self, memory: CudaMemory) -> bool:
        return not self._leaves or bool(memory.wide)

    def make_room(self, memory: CudaMemory, layout: Layout) -> bool:
        """Whether rows of this slot can arrive beside it; asked on a thread that may wait, where it is not ready."""
        if self.is_ready(memory) or self._no_room:
            return self.is_ready(memory)
        rows = layout.batch_rows * layout.batches
        starts = [0, *accumulate(align(rows * leaf.spec.nbytes, DEVICE_ALIGNMENT) for leaf in self._leaves)]
        try:
            pointer, owner = self._engine.allocate(starts[-1])
        except DeviceMemoryError as error:
            self._no_room = True
            self._tell("narrowed", "on the host", f"rows are staged, by the CPU, as they cannot arrive first: {error}")
            return False
        memory.wide = {leaf.number: (pointer + start, owner) for leaf, start in zip(self._leaves, starts, strict=False)}
        return True

    def landing(self, memory: CudaMemory, layout: Layout, number: int, spec: ArraySpec) -> Place | None:
        """Where the rows of a leaf arrive beside the slot; None where they arrive in it."""
        if number not in memory.wide:
            return None
        return Place(memory.wide[number][0], layout.batch_rows, layout.batch_rows * spec.nbytes, spec.nbytes)

    def finish(
        self, mover: Mover, memory: CudaMemory, layout: Layout, count: int, place_of: Callable[[int], Place]
    ) -> None:
        """Queue what brings the rows from there into the slot."""
        for leaf in self._leaves:
            arrived = self.landing(memory, layout, leaf.number, leaf.spec)
            assert arrived is not None
            mover.narrow_rows(memory.stream, arrived, place_of(leaf.number), count=count, real=leaf.real)
