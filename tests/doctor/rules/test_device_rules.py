"""Costs and gains of findings from device records."""

from importlib import import_module

import pytest
from tests.doctor.captures import OTHER, TENSORFLOW_GPU, batch, loop, prepare
from tests.doctor.device_rig import run
from tests.doctor.rules.device_faults import FEW, MB, NCCL, PLAIN, computing, feeding, run_with_kernels, tiny

from forebay.doctor.diagnosis.savings import Simulation
from forebay.doctor.rules.registry import view_for_rules


def finding(capture, rule):
    view = view_for_rules(capture)
    (found,) = import_module(f"forebay.doctor.rules.{rule}").examine(view)
    return Simulation.from_view(view).with_predicted_gain(found)


def test_an_overlapped_copy_gains_at_most_the_time_of_the_computation():
    half = finding(run_with_kernels(feeding(55 * MB, kernel_us=500, host_us=1_480)), "copy_not_overlapped")
    assert half.seconds == pytest.approx(1e-3, rel=0.02)
    assert half.cures[0].high == pytest.approx(0.5e-3, rel=0.05)
    assert half.cures[0].low == pytest.approx(0.4e-3, rel=0.1)


def test_overlap_gains_nothing_if_the_device_waits_for_the_host():
    def program(rig):
        rig.upload(55 * MB, line=2, pinned=True)
        rig.launch(1_000)
        rig.python(5_000)

    idle = finding(run_with_kernels(program), "copy_not_overlapped")
    assert idle.cures[0].low == 0
    assert idle.cures[0].high < 20e-6


def test_overlap_gains_the_copy_if_the_host_waits_in_a_read():
    def program(rig):
        rig.upload(55 * MB, line=2, pinned=True)
        rig.launch(1_000)
        rig.read(line=3)
        rig.python(2_000)

    found = finding(run_with_kernels(program), "copy_not_overlapped")
    assert found.cures[0].low <= 1e-3 <= found.cures[0].high  # the copy of 55 MB


def test_a_batch_that_the_compiled_step_uploads_itself_is_not_overlapped():
    def program(rig):
        rig.call_fetching(8 * MB, 100)

    found = finding(run_with_kernels(program), "copy_not_overlapped")
    assert found.seconds == pytest.approx(1e-3, rel=0.02)
    assert found.cures[0].changes


def test_the_preparation_of_an_upload_counts_like_its_copy():
    def program(rig):
        rig.upload_by_another_thread(55 * MB, ready_us=500)
        rig.call_compiled(1_000)
        rig.read(line=3)

    found = finding(run_with_kernels(program), "copy_not_overlapped")
    assert found.seconds == pytest.approx(1.5e-3, rel=0.02)
    assert found.evidence[0] == "No kernel ran during 1.53 ms of the 1.53 ms of preparing and copying per step."


def test_preparation_during_computation_does_not_count():
    def program(rig):
        rig.upload_by_another_thread(55 * MB, ready_us=500)
        rig.launch(400)
        rig.call_compiled(1_000)
        rig.read(line=3)

    assert finding(run_with_kernels(program), "copy_not_overlapped").seconds == pytest.approx(1.1e-3, rel=0.05)


def test_lower_precision_is_no_cure_if_the_device_waits():
    examine = import_module("forebay.doctor.rules.tensor_cores").examine
    assert [*examine(view_for_rules(run_with_kernels(computing(800, host_us=5_000), PLAIN)))] == []


def test_only_long_matrix_products_have_a_guaranteed_gain():
    long = finding(run_with_kernels(computing(800), PLAIN), "tensor_cores")
    short = finding(run_with_kernels(computing(*[40] * 20), PLAIN), "tensor_cores")
    assert long.cures[0].low == pytest.approx(0.36e-3, rel=0.1)
    assert short.cures[0].low == 0
    assert long.cures[0].high == pytest.approx(0.7e-3, rel=0.02)


def test_the_longest_kernel_is_named():
    assert (
        "persistent_rnn"
        in finding(run_with_kernels(computing(900), "persistent_rnn", grids=(FEW,)), "low_occupancy").evidence[0]
    )


def test_collectives_use_the_limits_of_xprof():
    moderate = finding(run_with_kernels(computing(900, 100), "gemm", NCCL), "collectives")
    severe = finding(run_with_kernels(computing(900, 400), "gemm", NCCL), "collectives")
    assert moderate.evidence[0].startswith("This is moderate. ")
    assert severe.evidence[0].startswith("This is severe. ")


def test_the_size_at_which_the_gpu_becomes_faster_is_reported():
    """An operation takes 12 us. A slow core processes about 2,000 numbers in that time, a fast core about 20,000."""
    found = finding(run_with_kernels(tiny(20), grids=(FEW,)), "faster_on_cpu")
    assert "The device becomes faster at about 2,000 to 20,000 numbers per operation" in found.evidence[1]
    assert 0 <= found.cures[0].low < found.cures[0].high < 240e-6


def test_python_on_another_thread_is_reported_with_the_gil():
    mapped = prepare("map", 4.9, line=10, thread=OTHER)
    on_another_thread = loop(mapped, batch("tf.data", 5, line=9, prefetch=True), frameworks=TENSORFLOW_GPU)
    without_it = loop(batch("generator", 5, line=9).containing(prepare("generator", 4.9, line=10)))
    assert any("(the GIL)" in sentence for sentence in finding(on_another_thread, "input_bound").evidence)
    assert not any("(the GIL)" in sentence for sentence in finding(without_it, "input_bound").evidence)


def test_several_jax_steps_per_call_save_the_time_of_the_host_only_if_the_data_is_on_the_device():
    def program(rig):
        rig.python(300)
        rig.call_jitted(20, line=5)

    found = finding(run(program, frameworks={"jax": {"gpus": 1}}), "jax_steps")
    on_device, from_host = found.cures
    assert from_host.high == pytest.approx(on_device.high - 300e-6, rel=0.1)
