"""Validates the layout of a capture file before the doctor uses the values in it.

The file may come from another person or machine.
"""

from typing import Any

from forebay.core.json_checks import (
    Check,
    boolean,
    integer,
    list_of,
    mapping_of,
    number,
    optional,
    record,
    row,
    text,
)
from forebay.doctor.model.events import EventKind

__all__ = ["check_capture"]

MAX_EVENTS = 1_000_000  # `capture.ledger` records no more
MAX_LINES = 100_000
MAX_SAMPLES = 100_000  # `capture.host_sampler` keeps fewer
MAX_FRAMES = 100_000  # stack frames in the step history; `capture.call_stacks` keeps fewer
MAX_BLOCKS = 10_000  # blocks of the step history; `capture.history_recorder` keeps fewer
MAX_STEPS = 1 << 48  # steps in the step history; steps of one microsecond would take 9 years
MAX_EXCERPT_FILES, MAX_EXCERPT_LINES = 100, 10_000  # `capture.source_excerpt` stores fewer
MAX_LINE_NUMBER = 1_000_000
MAX_NANOSECONDS = 1 << 62  # 146 years; sums of two times still fit into int64
MAX_SECONDS = 1e10  # 317 years
MAX_KERNEL_NBYTES = 1 << 50  # bytes that one kernel reads and writes
MAX_FLOPS = 1e24  # of one step; a million GPUs with 10 TFLOP/s each need more than a day for them

_count, _time, _seconds = integer(0), integer(0, MAX_NANOSECONDS), number(0, MAX_SECONDS)
_kinds = frozenset(EventKind)


def _event_kind(value: Any, place: str) -> None:
    text(value, place)
    if value not in _kinds:
        raise ValueError(f"{place} is {value[:40]!r}, not a kind of event")


_number_or_null = optional(number())


def _plain_fact(value: Any, place: str) -> None:
    """Check that a value is a string, a boolean, a number or null."""
    if not isinstance(value, str | bool):
        _number_or_null(value, place)


def _optional_values(check: Check, *names: str) -> dict[str, Check]:
    return dict.fromkeys(names, optional(check))


_DETAIL = record(
    {},
    _optional_values(text, "device", "dtype", "from_dtype", "function", "key", "loader", "op", "reason", "signature")
    | _optional_values(text, "generators", "optimizer", "source", "stream", "target", "what")
    | _optional_values(
        _count, "batch_rows", "constants_nbytes", "count", "dataset_rows", "fit", "moved_nbytes", "shuffle_rows"
    )
    | _optional_values(_count, "pieces", "small", "steps_per_execution", "tiny", "workers")
    | _optional_values(boolean, "copied", "first", "implied", "jit_compile", "non_blocking", "persistent", "pinned")
    | _optional_values(boolean, "channels_last", "estimated", "fused", "random_rows", "run_eagerly", "timed")
    | {"graph_break": optional(integer(-1)), "break_reason": optional(text), "built_at": optional(integer(-1))}
    | {"rows_at": optional(integer(-1))}
    | {"flops": optional(number(0, MAX_FLOPS))}
    | _optional_values(_seconds, "calling_seconds", "small_seconds")
    | {"mapped_at": optional(integer()), "row_map": optional(integer()), "prefetch": _plain_fact}
    | {"shape": optional(list_of(optional(integer()), max_length=100))},
)
_EVENT = row(_event_kind, text, integer(-1), integer(), _time, _time, _count, optional(_DETAIL), fewest=6)
_WINDOW = record(
    {
        "start": _time,
        "end": _time,
        "anchor": optional(row(_event_kind, text, integer(-1))),
        "untraced": list_of(_seconds, max_length=MAX_EVENTS),
        "traced": list_of(_time, max_length=MAX_EVENTS),
    }
)
_MEMORY = record(
    {
        "steps": _count,
        "devices": list_of(
            record(
                {"framework": text, "device": text, "used_nbytes": _count},
                _optional_values(
                    _count, "reserved_nbytes", "peak_nbytes", "total_nbytes", "retries", "device_allocations"
                )
                | _optional_values(_count, "inactive_nbytes"),
            ),
            max_length=1000,
        ),
    },
    _optional_values(_count, "host_nbytes", "host_peak_nbytes", "mapped_nbytes", "pinned_nbytes", "pinned_peak_nbytes"),
)
_SAMPLE = record(
    {"at": _time, "held_back": optional(_count)}
    | _optional_values(number(0), "busy", "clock_mhz", "link_generation", "link_width", "watts", "used_nbytes")
    | _optional_values(number(0), "received_bytes_per_second", "sent_bytes_per_second")
)
_GPU = record(
    {"name": text, "samples": list_of(_SAMPLE, max_length=10_000)}
    | _optional_values(number(0), "most_clock_mhz", "most_link_generation", "most_link_width", "most_watts")
    | _optional_values(_count, "total_nbytes")
)
_SCRIPT = record(
    {},
    {
        "files": list_of(
            record(
                {"file": text, "lines": list_of(row(integer(1, MAX_LINE_NUMBER), text), max_length=MAX_EXCERPT_LINES)}
            ),
            max_length=MAX_EXCERPT_FILES,
        )
    },
)
_FACTS = record(
    {},
    {
        "settings": mapping_of(text),
        "frameworks": mapping_of(mapping_of(_plain_fact)),
        "keras_backend": text,
        "script": optional(_SCRIPT),
        "peak_nbytes": optional(_count),
        "busy_cores": optional(number(0)),
        "other_cores": optional(number(0)),
        "foreign_cores": optional(number(0)),
        "worker_cores": optional(number(0)),
        "memory": optional(list_of(_MEMORY, max_length=1000)),
        "gauges": optional(list_of(_GPU, max_length=1000)),
        "arithmetic": optional(record({"flops_per_step": number(0, MAX_FLOPS)}, {"source": text})),
        "operators": _count,
        "kernels": mapping_of(integer(0, MAX_KERNEL_NBYTES)),
        "emulated": record({"replaced": _count, "notes": list_of(text, max_length=1000)}),
    },
)
_DEVICE = record({"records": text, "names": list_of(text, max_length=MAX_EVENTS), "dropped": _count, "version": _count})
_steps = integer(1, MAX_STEPS)
_frame = integer(-1, MAX_FRAMES)
_frame_amounts = list_of(row(_frame, _time), max_length=MAX_FRAMES)
_HISTORY = record(
    {
        "frames": list_of(row(_frame, integer(-1), text), max_length=MAX_FRAMES),
        "blocks": list_of(row(_steps, _seconds, _seconds, _frame_amounts), max_length=MAX_BLOCKS),
        "long_steps": list_of(
            row(integer(0, MAX_STEPS), _seconds, list_of(_frame, max_length=100)), max_length=MAX_BLOCKS
        ),
        "long_count": integer(0, MAX_STEPS),
        "long_seconds": _seconds,
        "long_excess": _seconds,
        "long_samples": _frame_amounts,
        "resolution": _steps,
    }
)
_CAPTURE = record(
    {
        "capture_version": integer(),
        "script": text,
        "arguments": list_of(text, max_length=MAX_EVENTS),
        "ended": text,
        "seconds": _seconds,
        "machine": mapping_of(_plain_fact),
        "versions": mapping_of(text),
        "window": _WINDOW,
        "lines": list_of(row(text, integer(0), text, text, fewest=3), max_length=MAX_LINES),
        "events": list_of(_EVENT, max_length=MAX_EVENTS),
        "notes": list_of(text, max_length=10_000),
        "facts": _FACTS,
        "rank": optional(integer(0, 1 << 31)),
        "device": optional(_DEVICE),
    },
    {
        "samples": list_of(row(_time, _time, integer(), integer(-1), text), max_length=MAX_SAMPLES),
        "history": optional(_HISTORY),
        "started": optional(_time),
    },
)


def check_capture(document: Any) -> None:
    """Raise ValueError if a document is not a capture.

    The message names the place of the wrong value.
    """
    _CAPTURE(document, "the capture")
    for index, (_, _, _, _, start, end, *_) in enumerate(document["events"]):
        if end < start:
            raise ValueError(f"the capture.events[{index}] ends before it starts")
    for index, (caller, *_) in enumerate((document.get("history") or {}).get("frames", ())):
        if caller >= index:
            raise ValueError(f"the capture.history.frames[{index}] comes before the frame that calls it")
