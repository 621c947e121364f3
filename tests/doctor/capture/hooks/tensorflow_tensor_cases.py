"""Each transfer of a TensorFlow tensor is one event with the details that rules need.

`test_framework_cases.py` runs this file in the process of TensorFlow, because frameworks conflict in one process.
"""

import threading

import numpy as np
import pytest
import tensorflow as tf
from tests.doctor.capture.hooks.crossing_log import assert_listed
from tests.doctor.capture.hooks.tensorflow_watched import DATA, in_thread, watched

from forebay.doctor.capture.hooks.tensorflow import transfers
from forebay.doctor.capture.memory_samples import tensorflow_memory_limits


@pytest.mark.parametrize(
    ("act", "api"),
    [
        (lambda: tf.constant(DATA), "tf.constant"),
        (lambda: tf.convert_to_tensor(DATA), "tf.convert_to_tensor"),
        (lambda: tf.cast(DATA, tf.float64), "tf.cast"),
        (lambda: tf.Variable(DATA), "tf.Variable"),
        (lambda: tf.matmul(DATA, DATA, transpose_b=True), "tf.matmul"),
        (lambda: tf.square(DATA), "tf.square"),
        (lambda: tf.zeros((20, 30)) + DATA, "tf.convert_to_tensor"),
        (lambda: DATA + tf.zeros((20, 30)), "tf.convert_to_tensor"),
        (lambda: tf.function(lambda x: x)(DATA), "tf.function"),
        (lambda: tf.data.Dataset.from_tensor_slices(DATA), "Dataset.from_tensor_slices"),
        (lambda: tf.data.Dataset.from_tensors((DATA,)), "Dataset.from_tensors"),
    ],
)
def test_an_upload_has_the_name_of_the_users_call(act, api):
    with watched() as seen:
        act()
    assert {event.api for event in seen.of("upload")} == {api}
    assert sum(event.nbytes for event in seen.of("upload")) in (DATA.nbytes, 2 * DATA.nbytes)
    assert set(seen.detail("upload", "from_dtype")) == {"float32"}
    assert {key[:3] for key in seen.detail("upload", "key")} == {"<f4"}


def test_equal_data_has_equal_keys_and_other_data_another_key():
    with watched() as seen:
        tf.constant(DATA)
        tf.square(DATA.copy())
        tf.constant(DATA + 1)
    first, second, third = seen.detail("upload", "key")
    assert first == second != third


def test_the_upload_of_a_list_is_recorded_as_a_list():
    with watched() as seen:
        tf.constant([[1.0, 2.0]] * 200)
    assert seen.detail("upload", "from_dtype") == ["list"]
    assert [event.nbytes for event in seen.of("upload")] == [1600]


def test_axes_shapes_and_single_numbers_are_not_uploads():
    x = tf.ones((4, 5, 6))
    with watched() as seen:
        tf.reduce_mean(x, axis=[0, 1])
        tf.reshape(x, (20, 6))[0, 1:3] * 2.0 + 1
        tf.transpose(x, np.array([2, 0, 1]))
    assert seen.of("upload") == []


@pytest.mark.parametrize("join", [tf.stack, tf.constant, tf.convert_to_tensor])
def test_a_list_of_arrays_is_one_upload_of_its_pieces(join):
    with watched() as seen:
        join([np.ones((64, 64), np.float32)] * 3)
    (event,) = seen.of("upload")
    assert (event.nbytes, event.detail["pieces"], event.detail["from_dtype"]) == (3 * 64 * 64 * 4, 3, "float32")


@pytest.mark.parametrize(
    ("act", "api"),
    [
        (lambda x: x.numpy(), "Tensor.numpy"),
        (float, "float(tensor)"),
        (int, "int(tensor)"),
        (bool, "bool(tensor)"),
        (str, "print(tensor)"),
        (repr, "print(tensor)"),
        (lambda x: f"{x:.2f}", "format(tensor)"),
        (lambda x: np.asarray(x), "np.asarray(tensor)"),
        (lambda x: np.array(x, dtype="float64"), "np.array(tensor)"),
        (lambda x: np.mean(x), "np.mean(tensor)"),
        (lambda x: np.max(x, axis=0, initial=1), "np.max(tensor)"),
        (lambda x: np.stack([x]), "np.stack(tensors)"),
        (lambda x: tf.Variable(x).numpy(), "Tensor.numpy"),
        (lambda x: repr(tf.Variable(x)), "Tensor.numpy"),
    ],
)
def test_every_kind_of_read_is_one_download(act, api):
    x = tf.constant(3.0)
    with watched() as seen:
        act(x)
    (read,) = seen.of("download")
    assert (read.api, read.nbytes) == (api, 4)
    assert read.detail == {"device": "CPU:0", "dtype": "float32", "shape": []}


def test_events_have_the_thread_of_their_call():
    def convert():
        tf.constant(DATA)
        tf.square(tf.ones(3)).numpy()

    with watched() as seen:
        threads = [in_thread(convert), in_thread(convert), threading.get_ident()]
        convert()
    assert [event.thread for event in seen.of("upload")] == threads
    assert [event.thread for event in seen.of("download")] == threads


def test_a_copy_from_one_gpu_to_another_is_a_move():
    class OnAnotherGpu:
        device = "/job:localhost/replica:0/task:0/device:GPU:1"
        dtype, shape = tf.float32, tf.TensorShape([20, 30])

    class OnGpu(OnAnotherGpu):
        device = "/job:localhost/replica:0/task:0/device:GPU:0"

    kind, api, detail = transfers._describe_move("Identity", OnAnotherGpu(), OnGpu())
    assert (kind, api) == ("move", "tf.device")
    assert (detail["source"], detail["target"]) == ("GPU:1", "GPU:0")


def test_the_memory_limit_of_a_device_is_known():
    tf.constant(1)
    assert tensorflow_memory_limits()["CPU:0"] > 0


def test_a_script_without_a_loop_has_a_list_of_its_crossings():
    data = np.ones((64, 64), np.float32)

    def run():
        tensor = tf.constant(data)
        added = tensor + data
        product = tf.matmul(tensor, data)
        state = tf.Variable(data)
        state.assign(data)
        if tf.reduce_all(added > 0):
            float(product[0, 0])
        return state.numpy()

    assert_listed(
        run,
        [
            ("tensor = tf.constant(data)", "tf.constant", "upload", "explicit"),
            ("added = tensor + data", "tf.convert_to_tensor", "upload", "implied"),
            ("product = tf.matmul(tensor, data)", "tf.matmul", "upload", "implied"),
            ("state = tf.Variable(data)", "tf.Variable", "upload", "explicit"),
            ("state.assign(data)", "Variable.assign", "upload", "explicit"),
            ("if tf.reduce_all(added > 0):", "bool(tensor)", "download", "implied"),
            ("float(product[0, 0])", "float(tensor)", "download", "explicit"),
            ("return state.numpy()", "Tensor.numpy", "download", "explicit"),
        ],
    )
