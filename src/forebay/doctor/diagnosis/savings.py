"""The gains of cures, from simulations of the timeline. No other module computes gains."""

from collections.abc import Sequence
from dataclasses import replace

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.gpu_gauges import computes_on_gpu
from forebay.doctor.model.formatting import format_percent
from forebay.doctor.predict.build_timeline import build_timeline
from forebay.doctor.predict.calibrate import CalibratedTimeline, calibrate
from forebay.doctor.predict.machines import find_gpu, on_other_machine
from forebay.doctor.predict.simulate import MAX_ERROR, Prediction, predict
from forebay.doctor.predict.timeline import steady_step_seconds
from forebay.doctor.predict.unseen_device import has_unseen_device, with_slowest_device
from forebay.doctor.rules.finding import Cure, Finding

__all__ = ["WARM_CACHES", "Simulation"]

MAX_USABLE_ERROR = 0.1  # of the measured step; if the error of the simulation is larger, a cure may save nothing
MIN_CURES = 2  # with fewer, `predict_all_cures` would only repeat the prediction of one cure
ROUNDING = 1e-9  # share of a cost; a smaller excess over the cost is a rounding error
CERTAIN_SHARE = 0.8  # of the cost of a finding; if the best cure may save less, the report calls the cost a bound
# Evidence of a finding if a cure may save more than the wait takes (see `simulate.WARM_CACHE_FACTOR`).
WARM_CACHES = "A cure may save more than this wait: without the wait, other work of the loop may be faster too."


class Simulation:
    """Simulates the steps of a capture with cures, and tells whether this is reliable."""

    def __init__(self, view: CaptureView, model: CalibratedTimeline | None = None) -> None:
        self.view = view
        self.model = model  # None if the view has no step time, or if the simulation failed
        self._slowest = model.timeline if model else None  # the timeline with the slowest possible device
        if model is not None and has_unseen_device(view):
            self._slowest = with_slowest_device(view, model.timeline)

    @classmethod
    def from_view(cls, view: CaptureView) -> "Simulation":
        timeline = build_timeline(view) if view.step_seconds else None
        return cls(view, calibrate(view, timeline) if timeline is not None else None)

    @property
    def is_reliable(self) -> bool:
        """Whether the simulated step differs from the measured step by at most MAX_ERROR."""
        return self.model is not None and self.model.error <= MAX_ERROR

    @property
    def _is_usable(self) -> bool:
        return self.model is not None and self.model.error <= MAX_USABLE_ERROR

    @property
    def unreliable_reason(self) -> str:
        """Why gains are bounds instead of predictions; empty if they are predictions."""
        if self.view.device is None:
            return "the GPU was not recorded" if computes_on_gpu(self.view) else "the script ran without a GPU"
        if self.model is None:
            return "the recorded steps could not be simulated"
        if self.is_reliable:
            return ""
        return f"the simulated step differs from the measured step by {format_percent(self.model.error)}"

    def with_predicted_gain(self, finding: Finding) -> Finding:
        """Return the finding with the gains of its cures, best cure first.

        No cure saves more than its finding costs, unless the finding says why. Without device records, a gain above the
        measured cost is reduced to the cost, because the simulation does not show which other work a cure would make
        faster. With device records, the simulation shows the work that waits for the calls of the finding, and the cost
        is increased by this work. The cost of a wait for computation is at most what one of its cures may save. If the
        error of the simulation exceeds MAX_USABLE_ERROR, no cure of such a wait saves more than the wait.
        """
        cured = replace(finding, cures=tuple(map(self._with_gain, finding.cures)))
        if not finding.seconds or not cured.cures:
            return _in_order(cured)
        highest, cost = max(cure.high for cure in cured.cures), finding.seconds
        has_device = self.view.device is not None
        if finding.is_wait:
            cost, reason = min(cost, highest), WARM_CACHES if has_device and self._is_usable else ""
        elif has_device:
            is_bound = highest > cost and cured.best_cure.low < CERTAIN_SHARE * highest
            return _in_order(replace(cured, seconds=max(cost, highest), is_bound=is_bound))
        else:
            cost, reason = max(cost, *(cure.low for cure in cured.cures)), finding.why_more
        if not reason:
            cures = tuple(replace(cure, low=min(cure.low, cost), high=min(cure.high, cost)) for cure in cured.cures)
            return _in_order(replace(cured, seconds=cost, cures=cures))
        reasons = (reason,) if highest > cost * (1 + ROUNDING) else ()
        return _in_order(replace(cured, seconds=cost, evidence=(*finding.evidence, *reasons)))

    def predict_all_cures(self, findings: Sequence[Finding]) -> Prediction | None:
        """Predict the step with the best cure of every finding.

        Return None if fewer than MIN_CURES of these cures can be simulated, or if there are no predictions (see
        `unreliable_reason`).
        """
        best_cures = [finding.best_cure for finding in findings if finding.gain]
        changes = [cure.changes[0] for cure in best_cures if cure.changes]
        if self.model is None or self.unreliable_reason or len(changes) < MIN_CURES:
            return None
        return predict(self.model.timeline, changes, measured=self.model.measured, error=self.model.error)

    def predict_other_machine(self, gpu: str, *, device: str = "", link: str = "") -> Prediction | None:
        """Predict the step of the unchanged script on another GPU or link.

        `gpu` is the driver's name for the GPU of the capture; an unknown GPU is treated like an H200. Return None if
        there are no predictions (see `unreliable_reason`).
        """
        if self.model is None or self.unreliable_reason:
            return None
        simulated = steady_step_seconds(self.model.timeline)
        factor = self.model.measured / simulated if simulated else 0.0
        fast, slow = (
            steady_step_seconds(timeline) * factor
            for timeline in on_other_machine(self.model.timeline, find_gpu(gpu) or "h200", device=device, link=link)
        )
        return Prediction(self.model.measured, min(fast, slow), max(fast, slow), self.model.error)

    def _with_gain(self, cure: Cure) -> Cure:
        """Return the cure with its gain, from the worst outcome to the best one.

        A cure without changes has no outcomes, and so no gain.
        """
        if self.model is None or self._slowest is None or not cure.changes:
            return cure
        measured, error = self.model.measured, self.model.error
        timelines = dict.fromkeys((self.model.timeline, self._slowest))
        outcomes = [
            predict(timeline, [change], measured=measured, error=error)
            for timeline in timelines
            for change in cure.changes
        ]
        best, worst = min(outcome.low for outcome in outcomes), max(outcome.high for outcome in outcomes)
        if not self._is_usable:  # the simulation lacks some work or wait, which may remain with the cure
            worst = measured
        return replace(
            cure,
            low=max(0.0, measured - worst),
            high=max(0.0, measured - best),
            basis=f"{self._describe_model()}. {cure.basis[:1].upper()}{cure.basis[1:]}",
        )

    def _describe_model(self) -> str:
        """Return how the gain of a cure was computed, without the last full stop."""
        assert self.model is not None
        if self.view.device is None:
            return f"Bounds from the time of the host, because {self.unreliable_reason}"
        if self.unreliable_reason:
            return f"A simulation of the recorded steps that is not reliable, because {self.unreliable_reason}"
        return (
            "A simulation of the recorded steps with this cure. Without the cure, the simulated step differs from the "
            f"measured step by {format_percent(self.model.error)}"
        )


def _in_order(finding: Finding) -> Finding:
    """Return the finding with its best cure first."""
    return replace(finding, cures=tuple(finding.cures_by_gain))
