"""The capture view: a capture with the values that the rules derive from it."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median
from typing import Any

from forebay.doctor.analyse.device_view import DeviceView, build_device_view
from forebay.doctor.analyse.queue_waits import separate_queue_waits
from forebay.doctor.analyse.step_parts import split_recorded_step
from forebay.doctor.analyse.steps import Steps, find_steps, waits_in_bursts
from forebay.doctor.analyse.typical_step import split_step, split_typical_step, step_weights
from forebay.doctor.model.capture import Capture
from forebay.doctor.model.events import EventKind, LedgerEvent, Line

__all__ = ["CallSite", "CaptureView"]

RUN_AHEAD_SHARE = 0.3  # share of the time of all steps; rare waits that take less do not show that the loop runs ahead
MIN_UNPROFILED = 5  # unprofiled steps; with fewer, the median of the profiled steps is more reliable


@dataclass(frozen=True, slots=True)
class CallSite:
    """The events of one framework call on one line, in all steps after the warm-up."""

    kind: EventKind
    api: str
    line: Line | None
    events: tuple[LedgerEvent, ...]
    steps: int  # number of steps after the warm-up

    @property
    def per_step(self) -> float:
        """Events per step."""
        return len(self.events) / self.steps

    @property
    def seconds(self) -> float:
        """Seconds per step."""
        return sum(event.seconds for event in self.events) / self.steps

    @property
    def nbytes(self) -> float:
        """Bytes per step."""
        return sum(event.nbytes for event in self.events) / self.steps

    def values(self, name: str) -> list[Any]:
        """Return the values of the key `name` in the details of the events."""
        return [event.detail[name] for event in self.events if event.detail and name in event.detail]

    @property
    def in_loop(self) -> bool:
        """Whether the call runs at least once in two steps on average."""
        return self.per_step >= 0.5


class CaptureView:
    """A capture with the values that the rules derive from it.

    Each value marked `cached_property` is computed once, at first use.
    """

    def __init__(self, capture: Capture) -> None:
        self.capture = separate_queue_waits(capture)

    @cached_property
    def steps(self) -> Steps | None:
        """The profiled steps after the warm-up; None if no loop was found."""
        return find_steps(self.capture)

    @cached_property
    def step_seconds(self) -> float:
        """The step time in seconds; 0 if no loop was found.

        If the loop runs ahead of the device, most steps are short and a few are very long. So the step time is at least
        the time that the device needs for a step.
        """
        device, median_seconds = self.device, self.median_seconds
        return max(median_seconds, device.bound_seconds, device.busy_seconds) if device else median_seconds

    @property
    def median_seconds(self) -> float:
        """The median of the unprofiled steps, in seconds; 0 without a loop.

        With fewer than MIN_UNPROFILED unprofiled steps, the profiled steps are used. The value is a mean instead of a
        median in two cases: the loop runs ahead of a device that was not recorded, or its input comes in bursts. If the
        loop runs ahead of a recorded device, `step_seconds` uses the time of the device, so no mean is needed.
        """
        if self.steps is None:
            return 0.0
        if self.unprofiled_seconds:
            return (fmean if self.uses_mean else median)(self.unprofiled_seconds)
        return self.steps.mean_seconds if self.uses_mean else self.steps.seconds

    @property
    def uses_mean(self) -> bool:
        """Whether `median_seconds` is a mean."""
        return (self.runs_ahead and self.device is None) or self.input_comes_in_bursts

    @property
    def profiled_seconds(self) -> float:
        """The time of a profiled step in seconds; 0 without a loop.

        This is the median of the profiled steps, or their mean if the input comes in bursts.
        """
        if self.steps is None:
            return 0.0
        return self.steps.mean_seconds if self.input_comes_in_bursts else self.steps.seconds

    @cached_property
    def input_comes_in_bursts(self) -> bool:
        """Whether several batches arrive together, so that only some steps wait long for input.

        The worker processes of a loader start at the same time. If all of them are slow, their batches arrive together.
        """
        return self.steps is not None and waits_in_bursts(self.steps, self.capture.events)

    @cached_property
    def runs_ahead(self) -> bool:
        """Whether some steps wait for work that other steps have queued.

        In such a loop, most steps are short, and the waits of a few steps take at least RUN_AHEAD_SHARE of the time.
        """
        if self.steps is None:
            return False
        waits = [site for site in self.sites_of(EventKind.DOWNLOAD, EventKind.SYNC) if not site.in_loop]
        seconds = sum(site.seconds for site in waits) * len(self.steps)
        return seconds * 1e9 >= RUN_AHEAD_SHARE * (self.steps.end - self.steps.start)

    @property
    def mean_seconds(self) -> float:
        """The mean of all unprofiled steps of the run; 0 if they were not recorded.

        The mean includes rare long steps, which a median ignores.
        """
        history = self.capture.history
        return history.seconds / history.steps if history is not None and history.steps else 0.0

    @cached_property
    def profiling_overhead(self) -> float | None:
        """The share by which profiling makes a step longer; None if not measured."""
        if self.steps is None or not self.unprofiled_seconds:
            return None
        average = fmean if self.input_comes_in_bursts else median
        return max(0.0, self.profiled_seconds / average(self.unprofiled_seconds) - 1)

    @property
    def unprofiled_seconds(self) -> tuple[float, ...]:
        """The seconds of each unprofiled step; empty if there are fewer than MIN_UNPROFILED.

        The tuple is also empty if `steps.find_steps` found the steps of a different loop than that of the unprofiled
        steps.
        """
        window = self.capture.window
        is_other_loop = self.steps is not None and window.anchor is not None and self.steps.anchor != window.anchor
        unprofiled = () if is_other_loop else window.untraced
        return unprofiled if len(unprofiled) >= MIN_UNPROFILED else ()

    @cached_property
    def step_weights(self) -> Any:
        """The weight of each profiled step in a typical step (see `typical_step`).

        This is an array with the sum 1, or an empty tuple without steps.
        """
        return step_weights(self.steps, self.capture.events, by_length=self.uses_mean) if self.steps else ()

    @cached_property
    def host_parts(self) -> dict[str, float]:
        """The parts of a step on the loop's thread, in seconds.

        The profiled steps determine their shares, and the parts add up to `step_seconds`. With device records, these
        are the parts of the mean profiled step instead, because `step_parts` can divide `step_seconds` by these
        records.
        """
        if self.steps is None:
            return {}
        if self.device is not None:
            return split_step(self.steps, self.capture.events)
        return split_typical_step(self.steps, self.capture.events, self.step_weights, self.step_seconds)

    @cached_property
    def device(self) -> DeviceView | None:
        """The view of the device records; None if the device was not recorded."""
        return build_device_view(self.capture, self.steps)

    @cached_property
    def step_parts(self) -> dict[str, float]:
        """The parts of a step in seconds, from the device records if there are any."""
        return split_recorded_step(self.device, self.step_seconds) if self.device else self.host_parts

    @cached_property
    def sites(self) -> tuple[CallSite, ...]:
        """The call sites in the steps after the warm-up, longest time first."""
        if self.steps is None:
            return ()
        step_events = [event for event in self.capture.events if self.steps.start < event.end <= self.steps.end]
        groups: dict[tuple[str, str, int], list[LedgerEvent]] = {}
        for event in step_events:
            groups.setdefault((event.kind, event.api, event.line), []).append(event)
        sites = [
            CallSite(EventKind(kind), api, self.line(line_index), tuple(events), len(self.steps))
            for (kind, api, line_index), events in groups.items()
        ]
        return tuple(sorted(sites, key=lambda site: -site.seconds))

    def sites_of(self, *kinds: EventKind) -> Iterator[CallSite]:
        """Return the call sites of these kinds."""
        return (site for site in self.sites if site.kind in kinds)

    def events_of(self, *kinds: EventKind) -> Iterator[LedgerEvent]:
        """Return all events of these kinds, including those before the loop and in the warm-up."""
        return (event for event in self.capture.events if event.kind in kinds)

    def loader_details(self, site: CallSite) -> list[dict[str, Any]]:
        """Return the details of the BUILD events that created the loaders of an input site."""
        lines = {*site.values("built_at")}
        return [event.detail or {} for event in self.events_of(EventKind.BUILD) if event.line in lines]

    def line(self, index: int) -> Line | None:
        """Return the line with this index in the capture; None if there is none."""
        return self.capture.lines[index] if 0 <= index < len(self.capture.lines) else None

    @property
    def frameworks(self) -> dict[str, Any]:
        """The name of each loaded framework -> its facts (see `capture.process_facts`)."""
        facts: dict[str, Any] = self.capture.facts.get("frameworks", {})
        return facts

    @property
    def has_gpu(self) -> bool:
        """Whether a loaded framework sees a GPU."""
        return any(facts.get("gpus") for facts in self.frameworks.values())
