"""The rule for host data that the loop itself converts to tensors in every step."""

from collections.abc import Iterator
from dataclasses import replace

from forebay.core.spec import format_nbytes
from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.costs import cost_of
from forebay.doctor.analyse.framework import MIN_PIECES, feed_framework, is_copy, is_python_data, pieces_per_call
from forebay.doctor.predict.call_changes import unchanged
from forebay.doctor.predict.cure_changes import Changes
from forebay.doctor.predict.input_costs import prefetch_in_processes, prefetch_in_thread, shortens_step
from forebay.doctor.predict.upload_cure_changes import (
    overlap_copies,
    prefetch_conversion,
    prefetch_with_feed,
    store_in_arrays,
)
from forebay.doctor.rules import joined_arrays
from forebay.doctor.rules.edits import is_fitted
from forebay.doctor.rules.examples import EXAMPLE
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.fitted_code import fit_feed, fit_line, has_excerpt, list_dtype, uses_read_values
from forebay.doctor.rules.function_edits import prefetch_call, stack_slices
from forebay.doctor.rules.loop_edits import change_arrays
from forebay.doctor.rules.precedence import RuleView
from forebay.doctor.rules.wording import (
    GRAPH_ITERATOR_CODE,
    SESSION,
    batch_rows,
    feed_code,
    frequency,
    keep_on_device_cure,
    keep_on_device_fits,
    nbytes_per_call,
)

__all__ = ["examine", "recognises"]

OVERLAP_BASIS = "the conversion overlaps the rest of the step"
MIN_NBYTES = 1 << 10  # bytes per call; smaller arrays are not batches
# If steps are shorter and batches are smaller than these limits, a feed of a generator makes steps longer, because its
# thread and the loop both run Python. Measured with TensorFlow on a machine with an H200 (2026-11-18): steps of 0.93 ms
# with batches of 9 KB took 1.37 ms with a feed of the same batches.
SHORT_STEP_SECONDS = 2e-3
SMALL_BATCH_NBYTES = 256 << 10
MIN_REPORTED_SHARE = 0.05  # share of a step; from this share on, XProf calls a loop input-bound


def recognises(view: CaptureView, site: CallSite) -> bool:
    """Whether synchronous conversions of a call site take a reportable share of a step.

    If the loop computes the data from values that it reads back, nothing can convert the data early, so the result is
    False. Calls that join NumPy arrays count even then, because NumPy joins them faster.
    """
    is_asynchronous = any(site.values("pinned")) and any(site.values("non_blocking"))
    joins = pieces_per_call(site) >= MIN_PIECES
    is_large = joins or nbytes_per_call(site) >= MIN_NBYTES or is_python_data(site)
    converts = site.in_loop and is_copy(site) and not is_asynchronous and is_large
    is_reported = converts and cost_of(view, site.events) >= MIN_REPORTED_SHARE * view.step_seconds
    return is_reported and (joins or not uses_read_values(view, site))


def examine(view: RuleView) -> Iterator[Finding]:
    """Yield one finding for all calls that join arrays, and one per other call site."""
    sites = view.sites_for("conversion_in_loop")
    joins = [site for site in sites if pieces_per_call(site) >= MIN_PIECES]
    if joins:
        yield joined_arrays.finding(view, joins)
    for site in (site for site in sites if site not in joins):
        cost = cost_of(view, site.events)
        data_kind = "Python lists" if is_python_data(site) else "new host data"
        amount = format_nbytes(nbytes_per_call(site))
        yield Finding(
            rule="conversion_in_loop",
            title=f"{site.api} converts {amount} of {data_kind} {frequency(site)}",
            line=site.line,
            seconds=cost,
            cures=tuple(_cures(view, site)),
            evidence=(f"{len(site.events)} conversions happened in {site.steps} steps.",),
        )


def _cures(view: CaptureView, site: CallSite) -> list[Cure]:
    """Return the cures whose code is an edit of the script, else all cures.

    If no code is an edit although the capture has an excerpt of the script, the comment EXAMPLE marks the code.
    """
    cures = [*_avoidance_cure(view, site), *_prefetch_cure(view, site), *_feed_cure(view, site)]
    fitted = [cure for cure in cures if is_fitted(cure.code)]
    if fitted or not has_excerpt(view, site.line):
        return fitted or cures
    return [replace(cure, code=f"{EXAMPLE}\n{cure.code}") for cure in cures]


def _avoidance_cure(view: CaptureView, site: CallSite) -> Iterator[Cure]:
    """Yield the cure that avoids the conversion, if there is one.

    Arrays can stay on the device if the device was recorded, and if no TensorFlow session reads them. Python lists can
    become arrays before the loop.
    """
    if not is_python_data(site):
        if view.device is not None and site.api != SESSION and keep_on_device_fits(view, site):
            yield keep_on_device_cure(view, site)
        return
    yield Cure(
        "store numbers in arrays, not in Python lists",
        _array_code(view, site),
        basis="one copy of the bytes replaces the conversion of each number; the data must be known before the loop",
        changes=store_in_arrays(view, site),
    )


def _array_code(view: CaptureView, site: CallSite) -> str:
    """Return code that stores the lists of the script in an array before the loop.

    The array has the dtype that the framework gives to the lists.
    """
    dtype = list_dtype(site) or "float32"
    change = f'np.asarray({{}}, dtype="{dtype}")'
    code = fit_line(view, site.line, lambda code, number: change_arrays(code, number, change))
    code = code or fit_line(view, site.line, lambda code, number: stack_slices(code, number, dtype))
    return code or f'rows = np.asarray(rows, dtype="{dtype}")   # once, before the loop; the loop takes slices'


def _prefetch_cure(view: CaptureView, site: CallSite) -> Iterator[Cure]:
    """Yield the cure that prefetches with tools of the framework.

    Yield nothing if a feed can replace the input of the script without making the steps longer.
    """
    framework = feed_framework(view, site.api)
    rows = batch_rows(*view.sites)
    if site.api != SESSION and fit_feed(view, framework, site) and not _slows_down(view, site):
        return
    if code := fit_line(view, site.line, prefetch_call):
        yield from _thread_cure(view, site, code)
        return
    changes = _prefetch_changes(view, site, framework)
    if _is_on_cpu(view) and framework == "torch" and not shortens_step(view, changes):
        return
    yield Cure(
        "convert the next batch during the computation of this one",
        f"{_TF_DATA_CODE.format(rows)}\n{GRAPH_ITERATOR_CODE}"
        if site.api == SESSION
        else _PREFETCH_CODE.get(framework, _PREFETCH_CODE["jax"]).format(rows),
        basis=OVERLAP_BASIS,
        changes=changes,
    )


def _thread_cure(view: CaptureView, site: CallSite, code: str) -> Iterator[Cure]:
    """Yield the cure that calls a function of the script early, in a thread.

    Yield nothing if this does not shorten the step.
    """
    changes = prefetch_conversion(view, site)
    if _is_on_cpu(view):
        changes = prefetch_in_thread(view, site, cost_of(view, site.events))
    elif is_python_data(site):
        changes = (*changes, unchanged)
    if _is_short(view, site) or (_is_on_cpu(view) and not shortens_step(view, changes)):
        return
    basis = "Python code of the thread still delays the loop" if is_python_data(site) else OVERLAP_BASIS
    yield Cure("let a thread make the next batch during the step", code, basis, changes)


def _prefetch_changes(view: CaptureView, site: CallSite, framework: str) -> Changes:
    """Return the changes of the timeline if the framework prefetches batches.

    tf.data and PyTorch make batches in their own threads or processes. PyTorch also page-locks them, so that the
    upload overlaps computation. In JAX and CuPy, the loop makes the batch and uploads it one step early.
    """
    if framework in ("tensorflow", "keras"):
        return prefetch_conversion(view, site)
    if framework == "torch" and _is_on_cpu(view):
        return prefetch_in_processes(view, site, cost_of(view, site.events))
    return prefetch_with_feed(view, site) if framework == "torch" else overlap_copies(view, site)


def _feed_cure(view: CaptureView, site: CallSite) -> Iterator[Cure]:
    if site.api == SESSION or _slows_down(view, site):  # a feed delivers tensors, and a session accepts none
        return
    code, changes = feed_code(view, feed_framework(view, site.api), site), prefetch_with_feed(view, site)
    if _is_on_cpu(view) and "from_arrays(" not in code:
        changes = prefetch_in_thread(view, site, cost_of(view, site.events))
        if not shortens_step(view, changes):
            return
    yield Cure("use a feed, which converts without an extra copy", code, OVERLAP_BASIS, changes)


def _is_on_cpu(view: CaptureView) -> bool:
    """Whether the step computes on the CPU, which must also convert the batches."""
    return view.device is None and not view.has_gpu


def _slows_down(view: CaptureView, site: CallSite) -> bool:
    """Whether a feed would lengthen the steps, because steps and batches are too small."""
    return _is_short(view, site) and "from_batches" in fit_feed(view, feed_framework(view, site.api), site)


def _is_short(view: CaptureView, site: CallSite) -> bool:
    """Whether step and batch are too small for another thread that runs Python."""
    return view.step_seconds < SHORT_STEP_SECONDS and nbytes_per_call(site) < SMALL_BATCH_NBYTES


_TF_DATA_CODE = (
    "dataset = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x)).batch({}).prefetch(tf.data.AUTOTUNE)"
)
_PREFETCH_CODE = {
    "tensorflow": f"{_TF_DATA_CODE}\nfor x_batch, y_batch in dataset: ...",
    "keras": f"{_TF_DATA_CODE}\nmodel.fit(dataset)",
    "torch": "loader = DataLoader(dataset, batch_size={}, shuffle=True, num_workers=4, pin_memory=True)\n"
    "for x, y in loader:\n"
    "    x = x.to(device, non_blocking=True)",
    "jax": "next_batch = jax.device_put(batch(0))\n"
    "for step in range(steps):\n"
    "    current, next_batch = next_batch, jax.device_put(batch(step + 1))   # uploads during the step\n"
    "    ...",
    "cupy": "with cupy.cuda.Stream(non_blocking=True):\n    next_batch = cupy.asarray(batch(step + 1))",
}
