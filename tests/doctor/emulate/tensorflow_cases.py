"""Emulations of cures for TensorFlow, and for Keras with TensorFlow as the backend.

`test_framework_cases.py` runs this file in the process of TensorFlow, because frameworks conflict in one process.
"""

from operator import methodcaller

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.framework import constant_op
from tests.doctor.emulate.emulated import DATA, OTHERS, distinct_count, emulated, emulating, without_setting

from forebay.doctor.model.emulation import EmulationKind


@pytest.mark.parametrize("convert", [tf.constant, tf.convert_to_tensor, tf.Variable])
def test_the_same_data_is_uploaded_once(convert):
    def loop():
        return [convert(DATA) for _ in range(20)]  # target

    tensors, replaced = emulated(loop, EmulationKind.REMEMBER)
    assert replaced == 19
    assert tensors[0].numpy().tolist() == DATA.tolist()


def test_other_data_and_other_lines_are_uploaded():
    def loop():
        first = [tf.constant(data) for data in OTHERS]  # target
        return first + [tf.constant(OTHERS[0]) for _ in range(4)]

    tensors, replaced = emulated(loop, EmulationKind.REMEMBER)
    assert [float(tensor[0]) for tensor in tensors] == [0, 1, 2, 3, 0, 0, 0, 0]
    assert (distinct_count(tensors), replaced) == (8, 0)


def test_reuse_replaces_all_later_uploads_of_the_same_shape():
    def loop():
        return [tf.constant(data) for data in (*OTHERS, OTHERS[0][:10])]  # target

    tensors, replaced = emulated(loop, EmulationKind.REUSE)
    assert [len(tensor) for tensor in tensors] == [4096] * 4 + [10]
    assert (distinct_count(tensors), replaced) == (2, 3)


def test_array_inputs_of_operations_are_uploaded_once():
    def loop():
        return [tf.raw_ops.Mul(x=data, y=data) for data in OTHERS]  # target

    products, replaced = emulated(loop, EmulationKind.REUSE)
    assert [float(product[0]) for product in products] == [0, 0, 0, 0]
    assert replaced == 7


def test_compiled_functions_are_traced_once():
    traces = []

    @tf.function
    def step(batch):
        traces.append(1)
        return tf.reduce_sum(batch)

    def loop():
        return [float(step(data)) for data in OTHERS]  # target

    assert emulated(loop, EmulationKind.REUSE) == ([0, 0, 0, 0], 3)
    assert len(traces) == 1


def test_numbers_are_narrowed_before_they_are_uploaded():
    doubles = [data.astype("float64") for data in OTHERS]

    def loop():
        return [tf.constant(data) for data in doubles]  # target

    tensors, replaced = emulated(loop, EmulationKind.NARROW)
    assert ({tensor.dtype for tensor in tensors}, replaced) == ({tf.float32}, 4)


def test_an_upload_starts_one_step_early():
    def loop():
        return [float(tf.constant(data)[0]) for data in OTHERS]  # target

    # The emulation uploads the data of a step for the next step, so each step gets the data of the previous step.
    assert emulated(loop, EmulationKind.PREFETCH) == ([0, 0, 1, 2], 3)


@pytest.mark.parametrize("read", [float, int, bool, str, methodcaller("numpy")])
def test_every_kind_of_read_is_deferred(read):
    def loop():
        return [read(tf.constant(float(number))) for number in range(4)]  # target

    values, replaced = emulated(loop, EmulationKind.DEFER)
    assert values[0] == values[1] == values[2] == values[3]
    assert replaced >= 3


@pytest.mark.parametrize("read", ["asarray", "array", "mean"])
def test_numpy_reads_are_deferred(read):
    def loop():
        return [getattr(np, read)(tf.constant(float(number))) for number in range(4)]  # target

    values, replaced = emulated(loop, EmulationKind.DEFER)
    assert (distinct_count(values), replaced) == (1, 3)


def test_a_deferred_numpy_function_returns_the_value_for_its_own_arguments():
    def loop():
        return [np.sum(x, axis=axis).shape for x in tf.ones((3, 2, 4)) for axis in (0, 1)]  # target

    assert emulated(loop, EmulationKind.DEFER) == ([(4,), (2,)] * 3, 4)


def test_one_read_in_every_n_is_made():
    def loop():
        return [float(tf.constant(float(number))) for number in range(10)]  # target

    assert emulated(loop, EmulationKind.DEFER, every=5)[0] == [0, 0, 0, 0, 4, 4, 4, 4, 4, 9]


def dataset_that_counts(made):
    def count(row):
        made.append(1)
        return row

    rows = tf.data.Dataset.from_tensor_slices(np.zeros((40, 8), "float32"))
    return rows.map(lambda row: tf.ensure_shape(tf.numpy_function(count, [row], tf.float32), (8,)))


def test_a_pipeline_returns_its_first_batch_for_every_batch():
    made = []

    def loop():
        dataset = dataset_that_counts(made).batch(4)
        return [batch for _ in range(3) for batch in dataset]  # target

    batches, replaced = emulated(loop, EmulationKind.RESIDENT)
    assert (len(batches), distinct_count(batches), replaced) == (30, 1, 29)
    assert len(made) < 40  # the first batch and the prefetched rows


def test_get_next_raises_the_error_of_tensorflow_at_the_end():
    def loop():
        iterator = iter(dataset_that_counts([]).batch(10))
        for _ in range(10):
            iterator.get_next()  # target

    with pytest.raises(tf.errors.OutOfRangeError):
        emulated(loop, EmulationKind.RESIDENT)


class Batches(keras.utils.PyDataset):
    def __init__(self):
        super().__init__()
        self.made = 0

    def __len__(self):
        return 20

    def __getitem__(self, index):
        self.made += 1
        return np.ones((4, 8), "float32"), np.ones((4, 1), "float32")


def batches_in_emulated_fit(*data, **options):
    """Fit a model under emulation; return the number of batches that it received."""
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    ends = []
    ended = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: ends.append(batch))

    def loop():
        model.fit(*data, verbose=0, callbacks=[ended], **options)  # target

    assert emulated(loop, EmulationKind.RESIDENT)[1] > 0
    return len(ends)


def test_fit_uses_only_the_first_batch():
    batches = Batches()
    assert batches_in_emulated_fit(batches, epochs=2) == 40
    assert batches.made < 10  # Keras uses one batch; tf.data has prefetched some


def test_fit_gets_the_same_number_of_batches_from_arrays():
    assert (
        batches_in_emulated_fit(np.ones((80, 8), "float32"), np.ones((80, 1), "float32"), batch_size=8, epochs=2) == 20
    )


def test_fit_gets_the_same_number_of_batches_from_a_generator():
    def generator():
        while True:
            yield np.ones((4, 8), "float32"), np.ones((4, 1), "float32")

    assert batches_in_emulated_fit(generator(), steps_per_epoch=10, epochs=2, shuffle=False) == 20


def test_train_on_batch_uploads_equal_arrays_once():
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x, y = np.ones((64, 8), "float32"), np.ones((64, 1), "float32")

    def loop():
        for _ in range(10):
            model.train_on_batch(x, y)  # target

    assert emulated(loop, EmulationKind.REMEMBER)[1] >= 18


def test_all_replacements_are_removed():
    def state():
        owners = (constant_op, pywrap_tfe, np, tf.Tensor.__mro__[0])
        names = ("convert_to_eager_tensor", "TFE_Py_FastPathExecute", "asarray", "__bool__")
        return [getattr(owner, name) for owner, name in zip(owners, names, strict=True)]

    def loop():
        return float(tf.constant(DATA)[0])  # target

    before = state()
    for kind in EmulationKind:
        with emulating(loop, kind):
            loop()
    assert state() == before


def test_a_check_for_nan_is_kept_off():
    def loop():
        tf.debugging.enable_check_numerics()
        result = tf.math.log(tf.constant(-1.0))
        tf.debugging.disable_check_numerics()
        return bool(tf.math.is_nan(result))

    assert without_setting("tf.debugging.enable_check_numerics", loop) == (True, 1)


def test_a_profiler_that_was_never_started_is_stopped_without_an_error(tmp_path):
    def loop():
        tf.profiler.experimental.start(str(tmp_path))
        tf.profiler.experimental.stop()

    assert without_setting("tf.profiler.experimental", loop) == (None, 1)
    assert [*tmp_path.iterdir()] == []
