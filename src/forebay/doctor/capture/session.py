"""A profiling session: installs hooks when the script imports frameworks, and removes them later."""

import importlib
import os
import threading
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from itertools import pairwise
from statistics import median
from time import perf_counter_ns
from typing import Any
from weakref import ref

from forebay.core.launchers import detect_process_rank
from forebay.core.machine import Machine, installed_versions
from forebay.core.nvml import PACKAGE, has_binding
from forebay.doctor.capture.arithmetic import ArithmeticRecorder
from forebay.doctor.capture.device.ledger import DeviceLedger, has_loaded_cuda
from forebay.doctor.capture.gpu_sampler import GpuSampler
from forebay.doctor.capture.host_sampler import HostSampler
from forebay.doctor.capture.ledger import Ledger, NextReport, SiteKey
from forebay.doctor.capture.memory_samples import MemorySampler
from forebay.doctor.capture.patches import Patches
from forebay.doctor.capture.post_import import PostImportActions
from forebay.doctor.capture.process_facts import BusyCoreMeter, process_facts
from forebay.doctor.capture.source_excerpt import excerpt_files
from forebay.doctor.capture.step_detector import StepDetector
from forebay.doctor.capture.step_monitor import StepMonitor, steps_per_measurement
from forebay.doctor.capture.thread_readings import OtherThreadsClock, record_tools
from forebay.doctor.model.capture import STILL_RUNNING, Capture, Window
from forebay.doctor.model.events import EventKind
from forebay.doctor.model.redaction import describe_error

__all__ = ["HOOKS", "RunningSessionError", "Session"]

# Imported module -> the module of the doctor with the hooks for it.
HOOKS = {name: f"forebay.doctor.capture.hooks.{name}" for name in ("torch", "tensorflow", "keras", "jax", "cupy")}
HOOKS |= {"forebay.feed.feed": "forebay.doctor.capture.hooks.forebay", "sys": "forebay.doctor.capture.hooks.python"}


class RunningSessionError(RuntimeError):
    """A session cannot start, because another session runs."""


class Session:
    """Profiles this process between `start` and `stop`. Only one session can run at a time.

    The session calls `on_enough` when it has recorded enough steps. `covers_script` is True if the session profiles a
    whole script, which may itself call `watch()`. `records_history` is True if the session also records the step
    history: the times of all unprofiled steps.
    """

    _lock = threading.Lock()
    _current: "Session | None" = None

    def __init__(
        self,
        detector: StepDetector | None = None,
        *,
        on_enough: Callable[[], None] = lambda: None,
        covers_script: bool = False,
        records_history: bool = True,
    ) -> None:
        self.detector = detector or StepDetector()
        # Without a history, the session only measures step times. The step detector then skips its phases `early
        # tracing` and `input tracing`.
        if records_history:
            self.detector.can_trace = has_loaded_cuda
            self.detector.can_trace_input = self._can_trace_input
        self.ledger = Ledger(on_site=self._on_site)
        self._patches = Patches(self.ledger)
        self._imports = PostImportActions({name: partial(self._install, name) for name in HOOKS})
        self._device = DeviceLedger(self.ledger.note)
        self._arithmetic = ArithmeticRecorder(partial(self.ledger.note_failure, "the arithmetic of a step"))
        self._memory_sampler = MemorySampler()
        self._gpu_sampler = GpuSampler()
        self._host_sampler = HostSampler(self.ledger.lines, partial(self.ledger.note_failure, "the host"))
        self._monitor = StepMonitor(self.ledger.lines, partial(self.ledger.note_failure, "the history of steps"))
        self._records_history = records_history
        # After the timed steps, the history gets one time for this many steps together; 0: it ends with the timed
        # steps.
        self._steps_per_measurement = 0
        self._on_enough = on_enough
        self._covers_script = covers_script
        self._busy_cores = BusyCoreMeter()
        self._other_threads_clock = OtherThreadsClock()
        self._start = 0  # nanoseconds

    @classmethod
    def find_script_session(cls) -> "Session | None":
        """Return the running session if it profiles a whole script, else None."""
        current = cls._current
        return current if current is not None and current._covers_script else None

    def start(self) -> None:
        """Install the hooks of loaded frameworks now, and of other frameworks when they are imported.

        Raise RunningSessionError if another session runs. After any other error, a new session can start.
        """
        with Session._lock:
            if Session._current is not None:
                raise RunningSessionError("another watch is running. End it first.")
            Session._current = self
        try:
            self._start_recorders()
        except BaseException:
            self.stop()
            raise

    def _start_recorders(self) -> None:
        """Start the recorders of the host, and install the hooks."""
        # A fork callback cannot be removed, so it must not keep the session alive.
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=partial(_switch_off_in_child, ref(self)))
        self._start = perf_counter_ns()
        self._memory_sampler.sample("begun")
        self._host_sampler.start()
        self._imports.install()

    def stop(self) -> None:
        """Stop recording and remove every hook. It is safe to call this twice."""
        self.detector.finish(perf_counter_ns())
        self._arithmetic.stop()
        self._device.stop()
        self._gpu_sampler.stop()
        self._host_sampler.stop()
        self._monitor.stop()
        self._imports.remove()
        if self._arithmetic.is_recording and self.detector.anchor is not None:
            self._stop_arithmetic_at_step_end(self.detector.anchor)
        else:
            self._remove_hooks()
        with Session._lock:
            if Session._current is self:
                Session._current = None

    def _remove_hooks(self) -> None:
        self.ledger.is_on = False
        self._patches.restore()

    def _stop_arithmetic_at_step_end(self, anchor: SiteKey) -> None:
        """Keep only the hook that ends steps. It stops the profiler of PyTorch, and is then removed.

        The profiler is on in the thread of the loop, and only this thread can stop it.
        """

        def on_step(_: int) -> None:
            self._arithmetic.stop()
            if not self._arithmetic.is_recording:
                self._remove_hooks()

        self._patches.restore(except_api=anchor[1])
        self.ledger.timed_site, self.ledger.on_step = anchor, on_step

    def is_done(self) -> bool:
        """Whether enough steps were recorded, or the session was stopped."""
        return self.detector.phase == "done"

    def capture(
        self, script: str, arguments: tuple[str, ...] = (), *, ended: str = "done", text: bool = True
    ) -> Capture:
        """Return everything that was recorded so far. `text=False` omits the source text of the lines."""
        detector = self.detector
        if ended != STILL_RUNNING:
            self._sample_memory("ended")
        self._note_missing_binding()
        untraced, traced = self._unprofiled_seconds(), tuple(detector.traced_step_ends)
        self._busy_cores.measure(detector.start or self._start, detector.end)
        return Capture(
            script=script,
            arguments=arguments,
            ended=ended,
            seconds=(perf_counter_ns() - self._start) / 1e9,
            machine=asdict(Machine.detect()),
            versions=installed_versions(),
            window=Window(detector.start or self._start, detector.end, detector.anchor, untraced, traced),
            lines=tuple(self.ledger.lines.read(text=text)),
            events=tuple(self.ledger.events),
            notes=tuple(self.ledger.notes),
            facts=process_facts()
            | {"memory": self._memory_sampler.samples, "gauges": self._gpu_sampler.gpus}
            | {"busy_cores": self._busy_cores.busy_cores, "other_cores": self._other_cores()}
            | {"foreign_cores": self._busy_cores.foreign_cores, "worker_cores": self._busy_cores.worker_cores}
            | {"arithmetic": self._arithmetic.facts, "kernels": self._arithmetic.kernels}
            | {"operators": self._arithmetic.operators}
            | {"script": self._excerpt() if text else {}},
            rank=detect_process_rank(),
            device=self._device.recorded,
            samples=self._host_sampler.samples,
            history=self._monitor.history() if self._records_history else None,
            started=self._start,
        )

    def _other_cores(self) -> float | None:
        """Return how many cores all threads except the loop's thread kept busy."""
        ends = (self.detector.end, *self.detector.step_ends[-1:])
        return self._other_threads_clock.other_cores(self.detector.start, max(ends))

    def _excerpt(self) -> dict[str, Any]:
        """Return the excerpt of the script, which the code of cures must fit."""
        try:
            return excerpt_files(list(self.ledger.lines.locations))
        except Exception as error:
            self.ledger.note_failure("the script", error)
            return {}

    def _install(self, name: str) -> None:
        """Install the hooks of a framework if the session still records calls.

        An error becomes a note in the report, because it must not reach the script.
        """
        if self.is_done():
            return
        try:
            importlib.import_module(HOOKS[name]).install(self._patches)
        except Exception as error:
            self.ledger.notes.append(f"{name} is not recorded: {describe_error(error)}")

    def _on_site(self, site: SiteKey, count: int, now: int) -> NextReport:
        """Report a call site with `count` events to the step detector, and apply its decisions.

        The ledger calls this method at the time `now` (ns), and calls it again when the returned `NextReport` says so.
        The first call also starts the GPU sampler.
        """
        if not self._gpu_sampler.is_started:
            self._gpu_sampler.start()
        self._other_threads_clock.read(now)
        if self.detector.phase == "profiling":
            self._busy_cores.read(now)
        if self._arithmetic.is_recording and site == self.detector.anchor and self._arithmetic.stop():
            now = perf_counter_ns()  # stopping takes time; the first recorded step starts after it
        if site[0] == EventKind.COMPILE:
            self.detector.on_compilation(*self.ledger.last_span)
        if self.detector.on_site(site, count, now):
            self._apply_phase(self.detector.anchor or site)
            self.ledger.report_all_sites()
            self._monitor.discard_step()  # the change of the phase took time in this step
        elif site == self.ledger.timed_site:
            self._monitor.add_end(now, self.detector.block_steps)
        if site == self.ledger.timed_site:
            # From here on, `block_steps` is the number of steps until the next report.
            self.detector.block_steps = self.ledger.skip_steps(self.detector.block_steps)
        self.ledger.paused_until = self.detector.paused_until if self.detector.paused_until > now else 0
        return self.detector.next_report(site, now)

    def _apply_phase(self, site: SiteKey) -> None:
        """Start and stop recorders, remove hooks and sample memory for the phase that has begun."""
        if self.detector.phase == "input tracing":
            self._host_sampler.stop()
            self._start_input_trace()
            return
        self._stop_input_trace()
        if self.detector.phase == "early tracing" and not self._device.start():
            self.detector.skip_tracing()
        elif self.detector.phase == "profiling":
            self._device.stop()
        if self.detector.phase == "tracing":
            record_tools(self.ledger, self.detector.start)
            self._host_sampler.stop()  # samples would disturb the steps that are recorded or timed from now on
            self._sample_memory("watched")  # before CUPTI starts, because its buffers use memory
            if self._device.start():
                self._arithmetic.start()  # it stops before the first recorded step
            else:
                self.detector.skip_tracing()
        if self.detector.phase == "timing":
            self._busy_cores.start()
            self.ledger.timed_site = site
            self._device.stop()
            self._patches.restore(except_api=site[1])
            self._arithmetic.count(self.ledger.events, self.detector.traced_step_ends)
            self._sample_memory("traced")
            if self._records_history:
                self._monitor.start()
        elif self.detector.phase == "done":
            self._busy_cores.stop()
            self._sample_memory("timed")
            self._gpu_sampler.stop()
            if not self._monitor_steps(site):
                self._monitor.stop()
                self._remove_hooks()
            self._on_enough()

    def _can_trace_input(self) -> bool:
        trace = self._patches.input_trace
        return trace is not None and trace.can_trace()

    def _start_input_trace(self) -> None:
        if self._patches.input_trace is not None:
            self._patches.input_trace.start()

    def _stop_input_trace(self) -> None:
        if self._patches.input_trace is not None:
            self._patches.input_trace.stop()

    def _monitor_steps(self, site: SiteKey) -> bool:
        """Record further ends of steps if this costs almost no time; return whether it does."""
        seconds = self._unprofiled_seconds()
        if not self._records_history or not seconds:
            return False
        self._steps_per_measurement = steps_per_measurement(site[0], median(seconds), self.ledger.calls_since_step)
        if not self._steps_per_measurement:
            return False
        self._patches.restore(except_api=site[1])
        self.detector.block_steps = 1
        self.ledger.on_step = self._on_unprofiled_step
        return True

    def _unprofiled_seconds(self) -> tuple[float, ...]:
        """Return the seconds of each timed step."""
        return tuple((after - before) / 1e9 for before, after in pairwise(self.detector.step_ends))

    def _on_unprofiled_step(self, end: int) -> None:
        self._monitor.add_end(end, self.detector.block_steps)
        self.detector.block_steps = self.ledger.skip_steps(self._steps_per_measurement)

    def _sample_memory(self, when: str) -> None:
        anchor = self.detector.anchor
        self._memory_sampler.sample(when, self.ledger.count_of(anchor) if anchor else 0)

    def _note_missing_binding(self) -> None:
        if has_loaded_cuda() and not has_binding():
            self.ledger.note(f"GPU load, clocks and PCIe link were not sampled. Run `pip install {PACKAGE}`.")


def _switch_off_in_child(session_ref: "ref[Session]") -> None:
    """Stop recording in a process that the script has forked."""
    live_session = session_ref()
    if live_session is not None:
        live_session.ledger.is_on = False
        live_session._arithmetic.stop()  # else PyTorch's profiler would stay on in the child
        live_session._host_sampler.forget_thread()
        live_session._monitor.forget_thread()
