"""Figures of the rules that look at the device's own records, and what they leave to others."""

from importlib import import_module

import pytest
from tests.doctor.captures import OTHER, TENSORFLOW_GPU, batch, loop, prepare
from tests.doctor.rules.device_faults import FEW, MB, NCCL, PLAIN, computing, dressed, feeding, tiny

from forebay.doctor.analyse.capture_view import CaptureView


def finding(capture, rule):
    (found,) = import_module(f"forebay.doctor.rules.{rule}").examine(CaptureView(capture))
    return found


def test_a_copy_can_hide_behind_the_computing_and_no_longer():
    half = finding(dressed(feeding(55 * MB, kernel_us=500, host_us=1_480)), "copy_not_overlapped")
    assert half.seconds == pytest.approx(1e-3, rel=0.02)
    assert half.cures[0].high == pytest.approx(0.5e-3, rel=0.05)
    assert half.cures[0].low == pytest.approx(0.5e-3, rel=0.1)


def test_a_device_that_stands_still_anyway_wins_nothing():
    idle = finding(dressed(feeding(55 * MB, host_us=5_000)), "copy_not_overlapped")
    assert idle.cures[0].low == 0
    assert idle.cures[0].high < 20e-6


def test_a_device_that_stands_still_because_it_is_waited_for_may_win_all_of_it():
    def program(rig):
        rig.upload(55 * MB, line=2, pinned=True)
        rig.launch(1_000)
        rig.read(line=3)
        rig.python(2_000)

    found = finding(dressed(program), "copy_not_overlapped")
    assert found.cures[0].low == 0
    assert found.cures[0].high == pytest.approx(1e-3, rel=0.02)


def test_a_batch_that_the_compiled_step_fetches_itself_is_not_overlapped():
    def program(rig):
        rig.call_fetching(8 * MB, 100)

    found = finding(dressed(program), "copy_not_overlapped")
    assert found.seconds == pytest.approx(1e-3, rel=0.02)
    assert found.cures[0].changes


def test_what_makes_a_batch_ready_to_cross_is_waited_for_as_its_copy_is():
    def program(rig):
        rig.send_by_another(55 * MB, ready_us=500)
        rig.call_compiled(1_000)
        rig.read(line=3)

    found = finding(dressed(program), "copy_not_overlapped")
    assert found.seconds == pytest.approx(1.5e-3, rel=0.02)
    assert found.evidence[0] == "No kernel ran during 1.53 ms of the 1.53 ms of copying per step."


def test_what_makes_a_batch_ready_while_the_device_computes_is_not_waited_for():
    def program(rig):
        rig.send_by_another(55 * MB, ready_us=500)
        rig.launch(400)
        rig.call_compiled(1_000)
        rig.read(line=3)

    assert finding(dressed(program), "copy_not_overlapped").seconds == pytest.approx(1.1e-3, rel=0.05)


def test_precision_is_no_cure_where_a_step_waits_for_something_else():
    examine = import_module("forebay.doctor.rules.tensor_cores").examine
    assert [*examine(CaptureView(dressed(computing(800, host_us=5_000), PLAIN)))] == []


def test_long_products_win_something_for_sure_and_short_ones_perhaps():
    long = finding(dressed(computing(800), PLAIN), "tensor_cores")
    short = finding(dressed(computing(*[40] * 20), PLAIN), "tensor_cores")
    assert long.cures[0].low == pytest.approx(0.4e-3, rel=0.1)
    assert short.cures[0].low == 0
    assert long.cures[0].high == pytest.approx(0.7e-3, rel=0.02)


def test_the_kernel_that_takes_most_is_named():
    assert (
        "persistent_rnn"
        in finding(dressed(computing(900), "persistent_rnn", grids=(FEW,)), "low_occupancy").evidence[0]
    )


def test_collectives_are_moderate_or_severe_as_xprof_has_it():
    moderate = finding(dressed(computing(900, 100), "gemm", NCCL), "collectives")
    severe = finding(dressed(computing(900, 400), "gemm", NCCL), "collectives")
    assert moderate.evidence[0].startswith("This is moderate. ")
    assert severe.evidence[0].startswith("This is severe. ")


def test_the_size_at_which_the_gpu_wins_is_told():
    """Twelve microseconds an operation: a fast core does over twenty thousand numbers in that time."""
    found = finding(dressed(tiny(20), grids=(FEW,)), "faster_on_cpu")
    assert "The device becomes faster at about 2,000 to 20,000 numbers per operation" in found.evidence[1]
    assert 0 < found.cures[0].low < found.cures[0].high < 240e-6


def test_python_on_another_thread_is_told_to_share_the_interpreter():
    mapped = prepare("map", 4.9, line=10, thread=OTHER)
    beside = loop(mapped, batch("tf.data", 5, line=9, prefetch=True), frameworks=TENSORFLOW_GPU)
    alone = loop(batch("generator", 5, line=9).containing(prepare("generator", 4.9, line=10)))
    assert any("(the GIL)" in told for told in finding(beside, "input_bound").evidence)
    assert not any("(the GIL)" in told for told in finding(alone, "input_bound").evidence)
