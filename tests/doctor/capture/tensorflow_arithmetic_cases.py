"""Counts of floating-point operations of a graph: its matrix products and convolutions, from static shapes.

`test_framework_cases.py` runs this file in the process of TensorFlow, because frameworks conflict in one process.
"""

import pytest
import tensorflow as tf
from tests.doctor.capture.hooks.tensorflow_watched import watched

from forebay.doctor.capture.hooks.tensorflow.graph_flops import count_graph_flops
from forebay.doctor.model.events import EventKind

ROWS = tf.TensorSpec((32, 64))
IMAGES = tf.TensorSpec((2, 20, 20, 3))
WEIGHTS, FILTERS = tf.ones((64, 16)), tf.ones((5, 5, 3, 8))
PRODUCT, CONVOLUTION = 2 * 32 * 64 * 16, 2 * 2 * 16 * 16 * 8 * 5 * 5 * 3


def flops_of(function, *specs):
    return count_graph_flops(tf.function(function).get_concrete_function(*specs).graph)


def gradients(rows):
    with tf.GradientTape() as tape:
        tape.watch([rows, WEIGHTS])
        loss = tf.reduce_sum(tf.tanh(rows @ WEIGHTS))
    return tape.gradient(loss, [rows, WEIGHTS])


def image_gradients(images):
    with tf.GradientTape() as tape:
        tape.watch([images, FILTERS])
        loss = tf.reduce_sum(tf.tanh(tf.nn.conv2d(images, FILTERS, 1, "VALID")))
    return tape.gradient(loss, [images, FILTERS])


@pytest.mark.parametrize(
    ("function", "spec", "flops"),
    [
        (lambda rows: rows @ WEIGHTS, ROWS, PRODUCT),
        (lambda rows: tf.matmul(rows, tf.ones((16, 64)), transpose_b=True), ROWS, PRODUCT),
        (lambda rows: tf.matmul(rows, tf.ones((32, 16)), transpose_a=True), ROWS, PRODUCT),
        (gradients, ROWS, 3 * PRODUCT),
        (image_gradients, IMAGES, 3 * CONVOLUTION),
        (lambda rows: tf.einsum("ij,jk->ik", rows, WEIGHTS), ROWS, PRODUCT),
        (lambda rows: tf.function(lambda inner: inner @ WEIGHTS)(rows), ROWS, PRODUCT),
        (lambda rows: rows + 1, ROWS, 0),
        (lambda rows: tf.while_loop(lambda i: i < 3, lambda i: (i + 1,), (0,))[0], ROWS, 0),
    ],
)
def test_only_the_operations_of_products_are_counted(function, spec, flops):
    assert flops_of(function, spec) == flops


@pytest.mark.parametrize(
    ("function", "spec"),
    [
        (lambda rows: rows @ WEIGHTS, tf.TensorSpec((None, 64))),
        (lambda rows: tf.while_loop(lambda x: tf.reduce_sum(x) < 3, lambda x: (x @ tf.ones((64, 64)),), (rows,)), ROWS),
    ],
)
def test_a_graph_whose_shapes_or_iterations_are_unknown_has_no_count(function, spec):
    assert flops_of(function, spec) is None


def test_the_event_of_a_trace_has_the_operations_of_its_graph():
    with watched() as seen:
        tf.function(lambda rows: rows @ WEIGHTS)(tf.ones((32, 64)))
    assert seen.detail(EventKind.COMPILE, "flops") == [PRODUCT]
    assert seen.notes == []
