"""The sentences that the terminal report and the HTML page share."""

from collections.abc import Iterator
from statistics import fmean, median

from forebay.doctor.analyse.capture_view import MIN_UNPROFILED, CaptureView
from forebay.doctor.analyse.costs import unexplained_seconds
from forebay.doctor.analyse.gpu_gauges import leaves_gpu_unused
from forebay.doctor.analyse.host_lines import run_lines
from forebay.doctor.analyse.step_lines import longest_host_line
from forebay.doctor.diagnosis.diagnose import RUN_RULES, Diagnosis, run_factor
from forebay.doctor.diagnosis.emulations import choose_emulation
from forebay.doctor.diagnosis.measured_settings import is_measurable, is_negligible
from forebay.doctor.model.emulation import Emulation, EmulationKind, MeasuredSetting, Verification
from forebay.doctor.model.events import EventKind
from forebay.doctor.model.formatting import (
    format_count,
    format_location,
    format_percent,
    format_seconds,
    format_seconds_range,
    format_speedup,
    is_wide_range,
    predicted_step_seconds,
)
from forebay.doctor.rules import settings
from forebay.doctor.rules.finding import Cure, Finding

__all__ = [
    "cost_seconds",
    "HEALTHY",
    "cost_share",
    "describe_cost",
    "describe_coverage",
    "describe_crossings",
    "describe_missing_data",
    "describe_outcome",
    "describe_parts",
    "describe_predictions",
    "describe_run_lines",
    "describe_step_lines",
    "describe_step_time",
    "describe_verification",
    "format_cure_speedup",
    "format_headline",
]

# Share of the step time. The report mentions that profiled steps are shorter than unprofiled steps if they are shorter
# by more than this share. It shows the time of recorded steps if this differs from the step time by more than this
# share.
MAX_DEVIATION = 0.25
# If profiling made steps longer by more than this share, their parts may not be those of a step without profiling.
MAX_RELIABLE_OVERHEAD = 0.5
FEW_STEPS, PHASE_SECONDS = 50, 10  # `capture.step_detector` profiles this many steps, for at most this many seconds
HEALTHY = "The doctor found nothing that slows this script down"
MAX_UNCURED_SHARE = 0.5  # of a step; if the host works longer on one line, the report does not call the script healthy
GPU_UNUSED = "The script computes on the CPU only, although PyTorch sees a GPU; nothing else slows it down"
MAYBE_SLOW = "A debug setting was left on; run with --verify to measure whether it slows this script down"


def format_headline(diagnosis: Diagnosis) -> str:
    """Return the diagnosis as one sentence, without its full stop."""
    if diagnosis.view.steps is None:
        return "No training loop was found, so there is no step time to report"
    if diagnosis.main is None:
        if any(finding.rule == settings.RULE for finding in diagnosis.findings):
            return MAYBE_SLOW
        if leaves_gpu_unused(diagnosis.view):
            return GPU_UNUSED
        return _describe_uncured_line(diagnosis.view) or HEALTHY
    return diagnosis.main.title.rstrip(".")


def _describe_uncured_line(view: CaptureView) -> str:
    """Name the line on which the host works for most of a step, or ""."""
    longest = longest_host_line(view)
    if longest is None or not view.step_seconds or longest.seconds <= MAX_UNCURED_SHARE * view.step_seconds:
        return ""
    share = format_percent(longest.seconds / view.step_seconds)
    return f"No rule has a cure for {format_location(longest.line, view.capture.script)}, which takes {share} of a step"


def describe_outcome(diagnosis: Diagnosis) -> str:
    """State the step time with the best cure of the main finding, or return ""."""
    if diagnosis.main is None or not diagnosis.main.cures:
        return ""
    cure, factor = diagnosis.main.best_cure, run_factor(diagnosis.view, diagnosis.main)
    step, low, high = diagnosis.view.step_seconds * factor, cure.low * factor, cure.high * factor
    best, worst = predicted_step_seconds(low, high, step)
    speedup, average = format_cure_speedup(diagnosis, cure), " on average" if factor > 1 else ""
    if is_wide_range(low, high, step):
        return (
            f"With the best cure a step takes at least {format_seconds(best)}{average} instead of "
            f"{format_seconds(step)}: {speedup}.{_how_to_measure(diagnosis, diagnosis.main)}"
        )
    cured = format_seconds_range(best, worst)
    return f"With the best cure a step takes {cured}{average} instead of {format_seconds(step)}: {speedup}."


def _how_to_measure(diagnosis: Diagnosis, finding: Finding) -> str:
    if diagnosis.verification or isinstance(choose_emulation(diagnosis.view, finding), Emulation):
        return "" if diagnosis.verification else " Run with --verify to measure it."
    return " --verify cannot emulate this cure: apply it, and run the doctor again to measure it."


def describe_verification(diagnosis: Diagnosis) -> list[str]:
    """State the measured and the predicted step time with the emulated cure.

    If there is no measurement, say why. The result is empty without --verify.
    """
    verification = diagnosis.verification
    if verification is None:
        return []
    measured = [_describe_measured(diagnosis, each) for each in verification.settings]
    return [*measured, *_describe_emulation(diagnosis, verification)]


def _describe_measured(diagnosis: Diagnosis, setting: MeasuredSetting) -> str:
    """State what a run without a debug setting showed."""
    if setting.saved is None:
        return f"Not measured: {setting.trouble}. The finding: {setting.title}."
    if is_negligible(diagnosis, setting):
        return f"Measured: without this setting, a step is not shorter. The finding: {setting.title}."
    if not is_measurable(diagnosis, setting):
        return f"Not measured: step times varied too much. The finding: {setting.title}."
    saved = format_seconds_range(*setting.saved)
    return f"Measured: without this setting, a step is {saved} shorter. The finding: {setting.title}."


def _describe_emulation(diagnosis: Diagnosis, verification: Verification) -> list[str]:
    if verification.settings and verification.kind is None and not verification.trouble:
        return []
    if verification.measured is None or verification.kind is None or verification.predicted is None:
        return [f"No cure was measured: {verification.trouble}."]
    predicted = format_seconds_range(*verification.predicted)
    # Without a debug setting, and with workers or a feed, the script trains on the same data.
    is_applied = verification.kind is EmulationKind.APPLIED
    how = "applied" if is_applied else "emulated"
    is_same = is_applied or verification.kind in (EmulationKind.OFF, EmulationKind.WORKERS, EmulationKind.FEED)
    results = "" if is_same else " The results of that run are wrong; only its speed counts."
    now = format_seconds(diagnosis.view.step_seconds)
    sentences = [
        f"Measured with the cure {how}: {format_seconds(verification.measured)} per step "
        f"(predicted {predicted}, now {now}).",
        f"Emulation: {verification.kind.description}.{results}",
    ]
    if verification.measured >= diagnosis.view.step_seconds > verification.predicted[1]:
        sentences.append(
            "This contradicts the prediction: the cure saved nothing. Other programs may have slowed down one "
            "of the runs. Run the doctor again before you apply the cure."
        )
    return sentences


def describe_predictions(diagnosis: Diagnosis) -> list[str]:
    """State the predicted step time with all cures, and on another machine."""
    sentences = []
    if diagnosis.all_cures is not None:
        cured = format_seconds_range(diagnosis.all_cures.low, diagnosis.all_cures.high)
        sentences.append(f"With the best cure of every finding a step takes {cured} (simulated).")
    other = diagnosis.other_machine
    if other is not None and other.step is None:
        sentences.append(f"There is no prediction for {other.machine}: {other.reason}.")
    elif other is not None and other.step is not None:
        predicted = format_seconds_range(other.step.low, other.step.high)
        now = format_seconds(diagnosis.view.step_seconds)
        sentences.append(f"On {other.machine} the unchanged script would take {predicted} per step instead of {now}.")
    return sentences


def format_cure_speedup(diagnosis: Diagnosis, cure: Cure) -> str:
    """Format how many times as fast a step is with the cure."""
    return f"{format_speedup(cure.low, cure.high, diagnosis.view.step_seconds)} as fast"


def cost_seconds(diagnosis: Diagnosis, finding: Finding) -> float:
    """Return the seconds per step that the finding costs, averaged over the run."""
    return finding.seconds * run_factor(diagnosis.view, finding)


def describe_cost(diagnosis: Diagnosis, finding: Finding) -> str:
    """State what a finding costs per step, and as a share of the whole."""
    cost, share = format_seconds(cost_seconds(diagnosis, finding)), format_percent(cost_share(diagnosis, finding))
    whole = "run" if finding.rule in RUN_RULES else "step"
    most = "up to " if finding.is_bound else ""
    return f"It costs {most}{cost} per step ({share} of the {whole})."


def cost_share(diagnosis: Diagnosis, finding: Finding) -> float:
    """Return the share of a step that the finding costs."""
    step = diagnosis.view.step_seconds
    return min(1.0, finding.seconds / step) if step else 0.0


def describe_step_time(diagnosis: Diagnosis) -> str:
    """State the step time, the number of measured steps, and the cost of profiling."""
    view = diagnosis.view
    assert view.steps is not None
    kind, api, number = view.steps.anchor
    line = view.line(number)
    end = f"{api} ({format_location(line, view.capture.script)})" if line else api
    count = f"{len(view.steps):,}"
    if kind == EventKind.OPS:
        step = _format_step_time(view, count)
        return f"No call marks the end of a step, so each group of {end} counts as a step: {step}."
    if view.profiling_overhead is None:
        step = _format_step_time(view, f"{count} profiled steps", f", each ending at {end}")
        return f"Step time {step}. The cost of profiling was not measured{_explain_few_steps(view) or '.'}"
    step = _format_step_time(view, f"{len(view.unprofiled_seconds):,} unprofiled steps")
    overhead = _describe_overhead(view, view.profiling_overhead)
    few = _explain_few_steps(view) or "."
    return f"Step time {step}. {_describe_mean(diagnosis)}{overhead} ({count} steps, each ending at {end}){few}"


def _explain_few_steps(view: CaptureView) -> str:
    """Say why there are few profiled steps, or no unprofiled steps.

    The result continues the sentence before it, so it begins with a punctuation mark. It is "" if there are enough
    steps.
    """
    assert view.steps is not None
    seconds = (view.steps.end - view.steps.start) / 1e9
    if len(view.steps) < FEW_STEPS and seconds >= PHASE_SECONDS / 2:
        return f". Steps are long: the doctor profiles up to {FEW_STEPS} steps, for at most {PHASE_SECONDS} seconds."
    return "" if len(view.capture.window.untraced) >= MIN_UNPROFILED else ": the run ended too early."


def _format_step_time(view: CaptureView, steps: str, steps_end: str = "") -> str:
    """Format the step time and its origin, such as "5.0 ms (median of `steps`)".

    If the device needs longer than the median or mean of the steps, the step time is that of the device.
    """
    step, middle = format_seconds(view.step_seconds), format_seconds(view.median_seconds)
    average = "mean" if view.uses_mean else "median"
    if step == middle:
        return f"{step} ({average} of {steps}{steps_end})"
    return f"{step}, as long as the device needs ({average} of {steps}{steps_end}: {middle})"


def _describe_mean(diagnosis: Diagnosis) -> str:
    """Return a sentence with the mean step time, or "" without findings of RUN_RULES."""
    history, mean = diagnosis.view.capture.history, format_seconds(diagnosis.view.mean_seconds)
    if history is None or not any(finding.rule in RUN_RULES for finding in diagnosis.findings):
        return ""
    return f"The mean of all {history.steps:,} unprofiled steps is {mean}. "


def _describe_overhead(view: CaptureView, overhead: float) -> str:
    """Say by how much profiling made steps slower.

    Profiling cannot make steps faster. So if profiled steps were much shorter than unprofiled steps, step times vary.
    """
    assert view.steps is not None
    average = fmean if view.input_comes_in_bursts else median
    shorter = 1 - view.profiled_seconds / average(view.unprofiled_seconds)
    if shorter > MAX_DEVIATION:
        return f"Step times vary widely: profiled steps were {format_percent(shorter)} shorter"
    if overhead >= 0.0005:  # reads 0.1% or more
        return f"Profiling made steps {format_percent(overhead)} slower"
    return "Profiling did not make steps slower"


def describe_parts(diagnosis: Diagnosis) -> str:
    """Return the heading of the parts, with the steps that they come from, and doubts."""
    device, step = diagnosis.view.device, diagnosis.view.step_seconds
    if device is None:
        count = len(diagnosis.view.steps or ())
        overhead = diagnosis.view.profiling_overhead or 0.0
        doubt = f", unreliable: profiling made them {format_percent(overhead)} slower"
        doubt = doubt if overhead > MAX_RELIABLE_OVERHEAD else ""
        return f"Parts of a step, from {format_count(count, 'profiled step')}{doubt}:"
    differs = abs(device.seconds - step) > MAX_DEVIATION * step
    duration = f", which took {format_seconds(device.seconds)} each" if differs else ""
    return f"Parts of a step, from {format_count(len(device), 'step')} recorded on the device{duration}:"


def describe_coverage(diagnosis: Diagnosis) -> list[str]:
    """State the share of transferred bytes whose source line is known.

    Without device records, return a sentence only if every framework found no GPU.
    """
    device = diagnosis.view.device
    if device is None:
        return list(_describe_missing_gpu(diagnosis.view))
    directions = {"host to device": "sent to the device", "device to host": "read back"}
    shares = {verb: device.coverage(direction) for direction, verb in directions.items()}
    known = [f"{format_percent(share)} of the bytes {verb}" for verb, share in shares.items() if share is not None]
    if not known:
        return ["No data moved between host and device."]
    return [f"The source line is known for {' and '.join(known)}."]


def _describe_missing_gpu(view: CaptureView) -> Iterator[str]:
    """Yield a sentence if every framework found zero GPUs."""
    counts = [facts.get("gpus") for facts in view.frameworks.values()]
    if counts and all(count == 0 for count in counts):
        names = " and ".join(view.frameworks)
        yield f"{names} found no GPU, so these parts include the computation on the CPU."


def describe_step_lines(diagnosis: Diagnosis) -> str:
    """Explain the table of `analyse.step_lines`: the time of a step by line."""
    seconds = unexplained_seconds(diagnosis.view)
    share = format_percent(seconds / diagnosis.view.step_seconds) if diagnosis.view.step_seconds else "0%"
    return (
        f"In {format_seconds(seconds)} of a step ({share}), the thread of the loop was in no recorded call. "
        "Samples of its stack show the lines that it executed in this time, and what they called. A line with few "
        "samples is uncertain, so a part of its time counts as 'other lines': the fewer samples, the larger this part."
    )


def describe_run_lines(diagnosis: Diagnosis) -> str:
    """Explain the table of `analyse.host_lines.run_lines`: the time of the run by line."""
    seconds = diagnosis.view.capture.seconds
    share = sum(each.seconds for each in run_lines(diagnosis.view)) / seconds if seconds else 0.0
    return (
        f"Samples of the busiest thread name a line of the script for {format_percent(share)} of the run. "
        "The rest is lines with few samples, the start and end of profiling, and time before the oldest kept sample."
    )


def describe_crossings(diagnosis: Diagnosis) -> str:
    """Explain the table of crossings."""
    outside = " that are not part of a step, until recording ended" if diagnosis.view.steps else ""
    return (
        f"Transfers and waits for the device{outside}, in order of time. Times count from the start of the "
        "run. An implied crossing is a side effect of a call with another purpose; its duration may be an estimate."
    )


def describe_missing_data(diagnosis: Diagnosis) -> list[str]:
    """Return sentences about data that is missing, and about rules that failed."""
    return [*diagnosis.view.capture.notes, *diagnosis.failures]
