"""A report without a loop says what to do next."""

from dataclasses import replace

from tests.doctor.captures import jax_loop, upload

from forebay.doctor.diagnosis.diagnose import diagnose
from forebay.doctor.report.missing_loop import describe_missing_loop


def sentences_of(capture):
    return " ".join(describe_missing_loop(diagnose(capture)))


def test_a_short_script_must_run_for_more_steps():
    capture = jax_loop(upload("jnp.array", 1, line=4), marked=False, steps=2)
    assert "Let the script run for more steps." in sentences_of(capture)


def test_a_script_whose_recording_ended_too_early_need_not_run_for_more_steps():
    capture = jax_loop(upload("jnp.array", 1, line=4), marked=False, steps=2)
    event = capture.events[-1]
    window = replace(capture.window, anchor=event.site, start=event.end, end=event.end, untraced=(0.1,) * 60)
    text = sentences_of(replace(capture, window=window))
    assert "it took jnp.array (train.py:4) for the end of a step" in text
    assert "--warm-up" in text
    assert "more steps" not in text
