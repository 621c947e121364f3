"""What cures win, by running the timeline of a case again with each of them, and with all of them together. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from forebay.doctor.analyse.case import Case
from forebay.doctor.model.formatting import percent
from forebay.doctor.predict.build_timeline import build
from forebay.doctor.predict.calibrate import Model, model_of
from forebay.doctor.predict.cure_changes import ASSUMED
from forebay.doctor.predict.machines import name_of, on_another
from forebay.doctor.predict.simulate import MOST_ERROR, Prediction, predict
from forebay.doctor.predict.timeline import steady
from forebay.doctor.rules.finding import Cure, Finding

__all__ = ["Simulation"]

FEWEST = 2  # findings, or nothing is to be combined


class Simulation:
    """A case that can be run again, or the reason why not."""

    def __init__(self, case: Case, model: Model | None = None) -> None:
        self.case, self.model = case, model

    @classmethod
    def of(cls, case: Case) -> "Simulation":
        timeline = build(case) if case.step_seconds else None
        return cls(case, model_of(case, timeline) if timeline is not None else None)

    @property
    def believed(self) -> bool:
        return self.model is not None and self.model.error <= MOST_ERROR

    @property
    def doubt(self) -> str:
        """Why cures have only bounds, in words; nothing where they are simulated."""
        if self.case.device is None:
            return "the GPU was not recorded" if self.case.has_gpu else "the script ran without a GPU"
        if self.model is None:
            return "there is no timeline"
        if self.believed:
            return ""
        return f"run again, the recorded steps miss the measured one by {percent(self.model.error)}"

    def settled(self, finding: Finding) -> Finding:
        """The same with what each cure wins, the best first; where its change is not known, its bounds stay.

        Where a cure wins more than the calls took, what else waited for them is part of what they cost.
        """
        if not any(cure.changes for cure in finding.cures):
            return finding
        settled = replace(finding, cures=tuple(map(self._settled, finding.cures)))
        cured = replace(settled, cures=tuple(settled.best_first))
        return replace(cured, seconds=max(finding.seconds, cured.win)) if finding.seconds else cured

    def together(self, findings: Sequence[Finding]) -> Prediction | None:
        """The step with the best cure of every finding; None where fewer than two can be run together."""
        best = [finding.best for finding in findings if finding.win]
        changes = [cure.changes[0] for cure in best if cure.changes]
        if self.model is None or not self.believed or len(changes) < FEWEST or self.case.device is None:
            return None
        return predict(self.model.timeline, changes, measured=self.model.measured, error=self.model.error)

    def elsewhere(self, gpu: str, *, device: str = "", link: str = "") -> Prediction | None:
        """The step as it is, on another GPU or behind another link."""
        if self.model is None or not self.believed or self.case.device is None:
            return None
        now = steady(self.model.timeline)
        factor = self.model.measured / now if now else 0.0
        fast, slow = (
            steady(timeline) * factor
            for timeline in on_another(self.model.timeline, name_of(gpu) or "h200", device=device, link=link)
        )
        return Prediction(self.model.measured, min(fast, slow), max(fast, slow), self.model.error)

    def _settled(self, cure: Cure) -> Cure:
        """With what it wins when run again; what it assumes is told all the same."""
        if not cure.changes or self.case.device is None:
            return cure
        if self.model is None or not self.believed:
            bounds, *assumed = cure.how.partition(ASSUMED)
            return replace(cure, how="".join([bounds, f"; bounds only: {self.doubt}", *assumed]))
        measured, error = self.model.measured, self.model.error
        ways = [predict(self.model.timeline, [change], measured=measured, error=error) for change in cure.changes]
        best, worst = min(way.low for way in ways), max(way.high for way in ways)
        how = f"the recorded steps run again with it; run as they were, they miss the step by {percent(error)}"
        how += "".join(cure.how.partition(ASSUMED)[1:])
        return replace(cure, low=max(0.0, measured - worst), high=max(0.0, measured - best), how=how)
