"""One watch from its beginning to its end: hooks put in as frameworks are imported, and taken out again."""

import importlib
import os
import threading
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from time import perf_counter_ns
from weakref import ref

from forebay.core.machine import Machine, installed_versions
from forebay.doctor.capture.after_import import AfterImport
from forebay.doctor.capture.device.ledger import DeviceLedger
from forebay.doctor.capture.gpu_sampler import GpuSampler
from forebay.doctor.capture.ledger import Again, Ledger, Site
from forebay.doctor.capture.memory_samples import MemoryReadings
from forebay.doctor.capture.patches import Patches
from forebay.doctor.capture.process_facts import process_facts
from forebay.doctor.capture.rank import rank_here
from forebay.doctor.capture.step_detector import Stepping
from forebay.doctor.model.capture import Capture, Window

__all__ = ["HOOKS", "Session"]

# The module whose import brings a framework, and the file of hooks that knows it.
HOOKS = {name: f"forebay.doctor.capture.hooks.{name}" for name in ("torch", "tensorflow", "keras", "jax", "cupy")}
HOOKS |= {"forebay.feed.feed": "forebay.doctor.capture.hooks.forebay"}


class Session:
    """Watches this process between `start` and `stop`; only one at a time."""

    _lock = threading.Lock()
    _current: "Session | None" = None

    def __init__(
        self, stepping: Stepping | None = None, *, done: Callable[[], None] = lambda: None, whole: bool = False
    ) -> None:
        self.stepping = stepping or Stepping()
        self.ledger = Ledger(told=self._told)
        self._patches = Patches(self.ledger)
        self._imports = AfterImport({name: partial(self._install, name) for name in HOOKS})
        self._device = DeviceLedger(self.ledger.notes)
        self._memory = MemoryReadings()
        self._gpus = GpuSampler()
        self._done = done
        self._whole = whole  # all of a script is watched, which may want to watch a part of itself
        self._began = 0

    @classmethod
    def of_script(cls) -> "Session | None":
        """Who watches all of the script that is running, if anybody does."""
        current = cls._current
        return current if current is not None and current._whole else None

    def start(self) -> None:
        with Session._lock:
            if Session._current is not None:
                raise RuntimeError("something is being watched already: end that watch first.")
            Session._current = self
        os.register_at_fork(after_in_child=partial(_switch_off, ref(self)))  # for good: it must not keep the session
        self._began = perf_counter_ns()
        self._memory.take("begun")
        self._imports.install()

    def stop(self) -> None:
        """Take every hook out; safe to call twice."""
        self.stepping.finish(perf_counter_ns())
        self._device.stop()
        self._gpus.stop()
        self._switch_off()
        self._imports.remove()
        self._patches.restore()
        with Session._lock:
            if Session._current is self:
                Session._current = None

    def is_over(self) -> bool:
        """Whether enough was seen."""
        return self.stepping.phase == "over"

    def capture(
        self, script: str, arguments: tuple[str, ...] = (), *, ended: str = "done", text: bool = True
    ) -> Capture:
        """What was seen."""
        stepping = self.stepping
        self._read_memory("ended")
        untraced = tuple(
            (after - before) / 1e9 for before, after in zip(stepping.marks, stepping.marks[1:], strict=False)
        )
        return Capture(
            script=script,
            arguments=arguments,
            ended=ended,
            seconds=(perf_counter_ns() - self._began) / 1e9,
            machine=asdict(Machine.here()),
            versions=installed_versions(),
            window=Window(
                stepping.start or self._began, stepping.end, stepping.anchor, untraced, tuple(stepping.traced)
            ),
            lines=tuple(self.ledger.lines.read(text=text)),
            events=tuple(self.ledger.events),
            notes=tuple(self.ledger.notes),
            facts=process_facts() | {"memory": self._memory.taken, "gauges": self._gpus.gpus},
            rank=rank_here(),
            device=self._device.recorded,
        )

    def _install(self, name: str) -> None:
        """Never the user's trouble: what fails here is a note in the report."""
        try:
            importlib.import_module(HOOKS[name]).install(self._patches)
        except Exception as error:
            self.ledger.notes.append(f"{name} is not watched: {type(error).__name__}: {error}")

    def _told(self, site: Site, count: int, now: int) -> Again:
        if not self._gpus.started:
            self._gpus.start()
        if self.stepping.note(site, count, now):
            self._change_phase(site)
            self.ledger.tell_of_all()
        if site == self.ledger.timed:
            self.stepping.block = self.ledger.pass_steps(self.stepping.block)
        self.ledger.resting_until = self.stepping.rest_until if self.stepping.rest_until > now else 0
        return self.stepping.again(site, now)

    def _change_phase(self, site: Site) -> None:
        if self.stepping.phase == "tracing":
            self._read_memory("watched")  # before the device is recorded, which takes memory too
            if not self._device.start():
                self.stepping.skip_tracing()
        if self.stepping.phase == "timing":
            self.ledger.timed = site
            self._device.stop()
            self._patches.restore(but=site[1])
            self._read_memory("traced")
        elif self.stepping.phase == "over":
            self._read_memory("timed")
            self._gpus.stop()
            self._switch_off()
            self._patches.restore()
            self._done()

    def _read_memory(self, when: str) -> None:
        self._memory.take(when, self.ledger.count(self.stepping.anchor) if self.stepping.anchor else 0)

    def _switch_off(self) -> None:
        self.ledger.on = False


def _switch_off(session: "ref[Session]") -> None:
    """In a process that the script has forked."""
    found = session()
    if found is not None:
        found.ledger.on = False
