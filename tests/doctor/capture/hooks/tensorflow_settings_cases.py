"""The spans that the TensorFlow hooks record for debug settings.

`test_framework_cases.py` runs this file in the process of TensorFlow, because frameworks conflict in one process.
"""

import tensorflow as tf
from tests.doctor.capture.hooks.hook_scripts import watched

NOWHERE = "file:///dev/null"


def settings(seen):
    return [(event.api, seen.text(event)) for event in seen.of("setting")]


def test_a_setting_is_recorded_until_it_is_switched_off():
    def run():
        tf.debugging.enable_check_numerics()
        tf.debugging.disable_check_numerics()

    assert settings(watched(run)) == [("tf.debugging.enable_check_numerics", "tf.debugging.enable_check_numerics()")]


def test_a_setting_with_an_argument_is_recorded_if_it_is_on():
    def run():
        tf.config.run_functions_eagerly(False)
        tf.config.run_functions_eagerly(True)
        tf.config.run_functions_eagerly(run_eagerly=False)

    assert settings(watched(run)) == [("tf.config.run_functions_eagerly", "tf.config.run_functions_eagerly(True)")]


def test_the_profiler_is_recorded_until_it_stops(tmp_path):
    def run():
        with tf.profiler.experimental.Profile(str(tmp_path)):
            tf.ones(3)

    assert [api for api, _ in settings(watched(run))] == ["tf.profiler.experimental"]


def test_a_print_in_a_function_is_recorded_on_its_own_line():
    @tf.function
    def step(x):
        tf.print("mean", x, output_stream=NOWHERE)
        return x + 1

    seen = watched(lambda: float(step(tf.constant(1.0))))
    assert seen.result == 2
    assert settings(seen) == [("tf.print", 'tf.print("mean", x, output_stream=NOWHERE)')]


def test_prints_that_run_eagerly_in_a_pipeline_or_in_a_branch_are_not_recorded():
    @tf.function
    def step(x):
        if x > 2:
            tf.print("large", x, output_stream=NOWHERE)
        return x

    def run():
        tf.print("eager", output_stream=NOWHERE)
        list(tf.data.Dataset.range(3).map(lambda row: (tf.print(row, output_stream=NOWHERE), row)[1]))
        step(tf.constant(1.0))

    assert settings(watched(run)) == []
