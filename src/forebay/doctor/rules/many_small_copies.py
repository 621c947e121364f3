"""The rule for lines that make many small uploads per step instead of one."""

from collections.abc import Iterator

from forebay.core.spec import format_nbytes
from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.costs import cost_of
from forebay.doctor.analyse.framework import feed_framework, is_copy, is_device
from forebay.doctor.predict.upload_cure_changes import merge_uploads, prefetch_with_feed
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.fitted_code import fit_line
from forebay.doctor.rules.loop_edits import convert_all_elements
from forebay.doctor.rules.precedence import RuleView
from forebay.doctor.rules.wording import calls_per_step, feed_code, feed_fits, nbytes_per_call

__all__ = ["examine", "recognises"]

MIN_UPLOADS = 8  # per step; the rule does not report fewer
MAX_NBYTES = 64 << 10  # bytes per upload; in larger uploads, copying takes longer than the call


def recognises(view: CaptureView, site: CallSite) -> bool:
    """Whether a call site makes many small copies per step."""
    return is_copy(site) and calls_per_step(site) >= MIN_UPLOADS and nbytes_per_call(site) < MAX_NBYTES


def examine(view: RuleView) -> Iterator[Finding]:
    """Yield one finding per call site of this rule."""
    for site in view.sites_for("many_small_copies"):
        cost, count = cost_of(view, site.events), calls_per_step(site)
        basis = f"{count:.0f} calls become one, after the host has assembled the rows"
        framework = feed_framework(view, site.api)
        upload = f"{_UPLOAD_FUNCTIONS.get(framework, site.api)}(np.stack(rows)){_move_code(site, framework)}"
        code = fit_line(view, site.line, convert_all_elements) or f"batch = {upload}   # one call for all rows"
        amount = format_nbytes(nbytes_per_call(site))
        yield Finding(
            rule="many_small_copies",
            title=f"{site.api} makes {count:.0f} uploads of {amount} per step",
            line=site.line,
            seconds=cost,
            cures=(
                Cure(
                    "assemble the rows, then upload once",
                    code,
                    basis,
                    merge_uploads(view, site, count),
                ),
                *_feed_cure(view, site, framework, basis),
            ),
            evidence=(
                f"Each call takes {cost / count * 1e6:.1f} us. All calls of a "
                f"step upload {format_nbytes(site.nbytes)}.",
            ),
        )


def _feed_cure(view: CaptureView, site: CallSite, framework: str, basis: str) -> Iterator[Cure]:
    if feed_fits(view, framework, site):
        code = feed_code(view, framework, site)
        yield Cure("let a feed make whole batches", code, basis, prefetch_with_feed(view, site))


def _move_code(site: CallSite, framework: str) -> str:
    """Return code that moves a PyTorch tensor to the device of the uploads, or ""."""
    device = next(filter(is_device, site.values("device")), None) if framework == "torch" else None
    return f'.to("{device}")' if device else ""


_UPLOAD_FUNCTIONS = {
    "tensorflow": "tf.convert_to_tensor",
    "keras": "keras.ops.convert_to_tensor",
    "torch": "torch.from_numpy",
    "jax": "jax.device_put",
    "cupy": "cupy.asarray",
}
