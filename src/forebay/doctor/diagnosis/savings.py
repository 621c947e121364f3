"""Predicted gains: a simulation of the recorded steps with each cure and with all cures."""

from collections.abc import Sequence
from dataclasses import replace

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.model.formatting import format_percent
from forebay.doctor.predict.build_timeline import build_timeline
from forebay.doctor.predict.calibrate import CalibratedTimeline, calibrate
from forebay.doctor.predict.cure_changes import ASSUMPTION
from forebay.doctor.predict.machines import find_gpu, on_other_machine
from forebay.doctor.predict.simulate import LARGEST_ERROR, Prediction, predict
from forebay.doctor.predict.timeline import steady_step_seconds
from forebay.doctor.rules.finding import Cure, Finding

__all__ = ["Simulation"]

FEWEST_CURES = 2  # with fewer, `predict_all_cures` would only repeat the prediction of one cure


class Simulation:
    """Simulates the steps of a capture, or states why it cannot."""

    def __init__(self, view: CaptureView, model: CalibratedTimeline | None = None) -> None:
        self.view = view
        self.model = model  # None without steps, if a GPU was not recorded, or if the timeline could not be built

    @classmethod
    def from_view(cls, view: CaptureView) -> "Simulation":
        timeline = build_timeline(view) if view.step_seconds else None
        return cls(view, calibrate(view, timeline) if timeline is not None else None)

    @property
    def is_reliable(self) -> bool:
        """Whether the simulated step differs from the measured step by at most LARGEST_ERROR."""
        return self.model is not None and self.model.error <= LARGEST_ERROR

    @property
    def unreliable_reason(self) -> str:
        """Why cures have bounds instead of predictions; empty if they have predictions.

        Without device records there are no predictions, even if the simulation is reliable.
        """
        if self.view.device is None:
            return "the GPU was not recorded" if self.view.has_gpu else "the script ran without a GPU"
        if self.model is None:
            return "there is no timeline"
        if self.is_reliable:
            return ""
        return f"the simulated step differs from the measured step by {format_percent(self.model.error)}"

    def with_predicted_gain(self, finding: Finding) -> Finding:
        """Return the finding with simulated gains, best cure first.

        A cure without changes to the timeline keeps the bounds of its rule. If no cure has changes, return the finding
        itself. If the best cure saves more than the calls of the finding took, other work waited for these calls. The
        cost of the finding then includes this wait.
        """
        if not any(cure.changes for cure in finding.cures):
            return finding
        simulated = replace(finding, cures=tuple(map(self._with_simulated_bounds, finding.cures)))
        ordered = replace(simulated, cures=tuple(simulated.cures_by_gain))
        return replace(ordered, seconds=max(finding.seconds, ordered.gain)) if finding.seconds else ordered

    def predict_all_cures(self, findings: Sequence[Finding]) -> Prediction | None:
        """Predict the step with the best cure of every finding.

        Return None if fewer than FEWEST_CURES of these cures can be simulated, or without predictions (see
        `unreliable_reason`).
        """
        best_cures = [finding.best_cure for finding in findings if finding.gain]
        changes = [cure.changes[0] for cure in best_cures if cure.changes]
        if self.model is None or not self.is_reliable or len(changes) < FEWEST_CURES or self.view.device is None:
            return None
        return predict(self.model.timeline, changes, measured=self.model.measured, error=self.model.error)

    def predict_other_machine(self, gpu: str, *, device: str = "", link: str = "") -> Prediction | None:
        """Predict the step of the unchanged script on another GPU or link.

        `gpu` is the driver's name for the GPU of the capture; an unknown name counts as an H200.
        Return None without predictions (see `unreliable_reason`).
        """
        if self.model is None or not self.is_reliable or self.view.device is None:
            return None
        simulated = steady_step_seconds(self.model.timeline)
        factor = self.model.measured / simulated if simulated else 0.0
        fast, slow = (
            steady_step_seconds(timeline) * factor
            for timeline in on_other_machine(self.model.timeline, find_gpu(gpu) or "h200", device=device, link=link)
        )
        return Prediction(self.model.measured, min(fast, slow), max(fast, slow), self.model.error)

    def _with_simulated_bounds(self, cure: Cure) -> Cure:
        """Return the cure with simulated bounds. Its basis keeps the assumption that the rule stated.

        If the simulation is not reliable, the bounds of the rule stay, and the basis says why. Without changes or
        device records, return the cure itself.
        """
        if not cure.changes or self.view.device is None:
            return cure
        if self.model is None or not self.is_reliable:
            bounds, *assumption = cure.basis.partition(ASSUMPTION)
            basis = "".join([bounds, f". These are only bounds, because {self.unreliable_reason}", *assumption])
            return replace(cure, basis=basis)
        measured, error = self.model.measured, self.model.error
        outcomes = [predict(self.model.timeline, [change], measured=measured, error=error) for change in cure.changes]
        best, worst = min(outcome.low for outcome in outcomes), max(outcome.high for outcome in outcomes)
        basis = "a simulation of the recorded steps with this cure. Without the cure, the simulated step differs "
        basis += f"from the measured step by {format_percent(error)}"
        basis += "".join(cure.basis.partition(ASSUMPTION)[1:])
        return replace(cure, low=max(0.0, measured - worst), high=max(0.0, measured - best), basis=basis)
