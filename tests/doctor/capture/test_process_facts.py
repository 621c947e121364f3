"""The facts of a process, with stand-ins for frameworks."""

import sys
from types import SimpleNamespace

import pytest

from forebay.core.machine import Machine
from forebay.doctor.capture import process_facts as module
from forebay.doctor.capture.process_facts import BusyCoreMeter, process_facts


def refuse(*_):
    raise AssertionError("this would initialise the GPU")


@pytest.fixture
def tensorflow(monkeypatch):
    """Install a stand-in for TensorFlow that finds one GPU and has not initialised it."""
    config = SimpleNamespace(
        list_physical_devices=lambda kind: ["GPU:0"],
        threading=SimpleNamespace(
            get_intra_op_parallelism_threads=lambda: 0, get_inter_op_parallelism_threads=lambda: 0
        ),
        functions_run_eagerly=lambda: False,
        experimental=SimpleNamespace(get_memory_info=refuse),
    )
    for name in ("torch", "jax", "cupy", "keras"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "tensorflow", SimpleNamespace(config=config))
    context = SimpleNamespace(_initialized=False)
    monkeypatch.setitem(sys.modules, "tensorflow.python.eager.context", SimpleNamespace(context_safe=lambda: context))
    return config


def test_the_backend_of_keras_is_recorded(monkeypatch):
    keras = SimpleNamespace(backend=SimpleNamespace(backend=lambda: "jax"))
    monkeypatch.setitem(sys.modules, "keras", keras)
    assert process_facts()["keras_backend"] == "jax"


def test_a_gpu_that_tensorflow_has_not_initialised_stays_uninitialised(tensorflow):
    assert process_facts()["frameworks"] == {
        "tensorflow": {"gpus": 1, "intra_threads": 0, "inter_threads": 0, "run_eagerly": False}
    }


def cpu_times(tmp_path, *, user, cores):
    """Write the CPU times of a machine with this many cores, and return the path."""
    path = tmp_path / f"stat {user} {cores}"
    line = f"{user} 0 0 999 50 0 0 0 0 0"
    path.write_text("\n".join(f"cpu{number} {line}" for number in ("", *range(cores))) + "\nintr 1\n")
    return path


def test_the_cpu_time_of_all_processes_does_not_include_idle_time(tmp_path):
    cores = Machine.detect().cores
    few, many = (module._machine_cpu_seconds(cpu_times(tmp_path, user=user, cores=cores)) for user in (100, 300))
    assert many == 3 * few > 0


def test_the_cpu_time_of_cores_that_the_process_may_not_use_is_unknown(tmp_path):
    assert module._machine_cpu_seconds(cpu_times(tmp_path, user=100, cores=Machine.detect().cores + 1)) is None
    assert module._machine_cpu_seconds(tmp_path / "missing") is None


@pytest.mark.parametrize(("all_seconds", "foreign"), [(6.0, 1.0), (3.0, 0.0), (None, None)])
def test_cores_of_other_processes_are_measured(monkeypatch, all_seconds, foreign):
    """The process uses four CPU seconds in two seconds."""
    start = module._CpuTimes(0.0, 0.0 if all_seconds else None, 10.0)
    readings = [start, module._CpuTimes(4.0, all_seconds, 12.0)]
    monkeypatch.setattr(module, "_read_cpu_times", lambda: readings.pop(0))
    meter = BusyCoreMeter()
    meter.start()
    meter.stop()
    assert (meter.busy_cores, meter.foreign_cores) == (2.0, foreign)


@pytest.fixture
def profiled(monkeypatch):
    """Return a meter with a reading every 100 ms for two seconds. The process uses one core, the others half a core."""
    meter, seconds = BusyCoreMeter(), {"now": 0.0}
    monkeypatch.setattr(
        module, "_read_cpu_times", lambda: module._CpuTimes(seconds["now"], 1.5 * seconds["now"], seconds["now"])
    )
    for number in range(41):
        seconds["now"] = number * 0.05
        meter.read(number * module.INTERVAL_NS // 2)
    assert len(meter._readings) == 21
    return meter


def test_without_unprofiled_steps_the_cores_of_the_profiled_steps_count(profiled):
    profiled.measure(500_000_000, 1_500_000_000)
    assert (profiled.busy_cores, profiled.foreign_cores) == (pytest.approx(1.0), pytest.approx(0.5))


def test_few_profiled_steps_show_no_busy_cores(profiled):
    profiled.measure(0, 300_000_000)
    assert profiled.busy_cores is None


def test_the_cores_of_unprofiled_steps_take_precedence_over_those_of_profiled_steps(profiled):
    profiled.busy_cores = 0.25
    profiled.measure(0, 2_000_000_000)
    assert profiled.busy_cores == 0.25
