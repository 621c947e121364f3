"""The decisions about batches of rows that differ in length, which `explain()` prints."""

from forebay.core.decision import Decision
from forebay.core.handoff import HandOff, RaggedTarget
from forebay.pipeline.spec_inference import TransformSpecs

__all__ = ["ragged_decisions"]


def ragged_decisions(specs: TransformSpecs, hand_off: HandOff, *, is_ragged: bool) -> list[Decision]:
    """Return the decision about ragged fields; nothing if there are none."""
    names = [name for name, spec in zip(specs.structure.paths, specs.specs, strict=True) if spec.ragged]
    if not is_ragged or not names:
        return []
    form = f"the ragged type of {hand_off.name}" if isinstance(hand_off, RaggedTarget) else "fb.Ragged"
    return [Decision("ragged", ", ".join(names), f"values and offsets without padding, as {form}")]
