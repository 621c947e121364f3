"""A capture as rules look at it: steady steps, and what each line of the script does in one. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Any

from forebay.doctor.analyse.device_view import DeviceView, view_of
from forebay.doctor.analyse.step_parts import parts_of
from forebay.doctor.analyse.steps import Steps, find_steps, partition
from forebay.doctor.model.capture import Capture
from forebay.doctor.model.events import Event, Kind, Line

__all__ = ["Case", "Site"]

FEWEST_UNTRACED = 5  # steps, or their median says less than that of the many that were watched


@dataclass(frozen=True, slots=True)
class Site:
    """What one line does by one call, in all steady steps together."""

    kind: Kind
    api: str
    line: Line | None
    events: tuple[Event, ...]
    steps: int

    @property
    def per_step(self) -> float:
        return len(self.events) / self.steps

    @property
    def seconds(self) -> float:
        """Of a step."""
        return sum(event.seconds for event in self.events) / self.steps

    @property
    def nbytes(self) -> float:
        """Of a step."""
        return sum(event.nbytes for event in self.events) / self.steps

    def values(self, name: str) -> list[Any]:
        """What the events say of one detail, those that say anything."""
        return [event.detail[name] for event in self.events if event.detail and name in event.detail]

    @property
    def in_loop(self) -> bool:
        """Whether it is done about once a step or more often."""
        return self.per_step >= 0.5


class Case:
    """One capture, asked many things."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture

    @cached_property
    def steps(self) -> Steps | None:
        """None where the script has no loop that could be found."""
        return find_steps(self.capture)

    @cached_property
    def step_seconds(self) -> float:
        """A step while nothing was watched where there were such steps, else one that was.

        A loop that runs ahead of its device and waits for it now and then has many short steps and a few very long
        ones: there it is the device's own pace that counts.
        """
        measured = self.steps.seconds if self.steps else 0.0
        if self.steps is not None and self.untraced:
            measured = median(self.untraced)
        return max(measured, self.device.bound_seconds, self.device.busy_seconds) if self.device else measured

    @cached_property
    def overhead(self) -> float | None:
        """How much longer a watched step takes; None where that was not measured."""
        if self.steps is None or not self.untraced:
            return None
        return max(0.0, self.steps.seconds / median(self.untraced) - 1)

    @property
    def untraced(self) -> tuple[float, ...]:
        """Seconds of steps that nobody watched, where there were enough of them."""
        found = self.capture.window.untraced
        return found if len(found) >= FEWEST_UNTRACED else ()

    @cached_property
    def parts(self) -> dict[str, float]:
        """What a mean watched step of the loop's own thread is made of, in seconds."""
        return partition(self.steps, self.capture.events) if self.steps else {}

    @cached_property
    def device(self) -> DeviceView | None:
        """What the device did in the steps that were recorded on it; None where none were."""
        return view_of(self.capture, self.steps)

    @cached_property
    def step_parts(self) -> dict[str, float]:
        """What a step is made of, as far as that was seen: on the device too, where it was recorded."""
        return parts_of(self.device, self.step_seconds) if self.device else self.parts

    @cached_property
    def sites(self) -> tuple[Site, ...]:
        """What happens in steady steps, by line; the longest first."""
        if self.steps is None:
            return ()
        inside = [event for event in self.capture.events if self.steps.start < event.end <= self.steps.end]
        groups: dict[tuple[str, str, int], list[Event]] = {}
        for event in inside:
            groups.setdefault((event.kind, event.api, event.line), []).append(event)
        sites = [
            Site(Kind(kind), api, self.line(number), tuple(events), len(self.steps))
            for (kind, api, number), events in groups.items()
        ]
        return tuple(sorted(sites, key=lambda site: -site.seconds))

    def of(self, *kinds: Kind) -> Iterator[Site]:
        """Sites of these kinds."""
        return (site for site in self.sites if site.kind in kinds)

    def events(self, *kinds: Kind) -> Iterator[Event]:
        """Everything of these kinds, warm-up and what came before the loop included."""
        return (event for event in self.capture.events if event.kind in kinds)

    def line(self, number: int) -> Line | None:
        return self.capture.lines[number] if 0 <= number < len(self.capture.lines) else None

    @property
    def frameworks(self) -> dict[str, Any]:
        """Facts of each framework the script has loaded."""
        found: dict[str, Any] = self.capture.facts.get("frameworks", {})
        return found

    @property
    def has_gpu(self) -> bool:
        return any(facts.get("gpus") for facts in self.frameworks.values())
