"""The number of floating-point operations of a jitted step, which the doctor reads from its compiled program.

`test_framework_cases.py` runs this file in the process of JAX, because frameworks conflict in one process.
"""

import jax
import jax.numpy as jnp

from forebay.doctor.capture.arithmetic import ArithmeticRecorder
from forebay.doctor.model.events import EventKind, LedgerEvent

STEP_ENDS = (100, 200, 300)


def facts_of(name):
    """Return the facts of two steps that call a function of this name once each."""
    events = [
        LedgerEvent(EventKind.RUN, f"{name}(x)", 0, 1, end - 50, end, 0, {"function": name}) for end in STEP_ENDS[1:]
    ]
    errors = []
    recorder = ArithmeticRecorder(errors.append)
    recorder.count(events, STEP_ENDS)
    assert errors == []
    return recorder.facts


def test_a_product_and_its_gradient_count():
    @jax.jit
    def product_step(weights, rows):
        return jax.grad(lambda weights: jnp.tanh(rows @ weights).sum())(weights)

    product_step(jnp.ones((64, 16)), jnp.ones((32, 64)))
    facts = facts_of("product_step")
    assert facts == {"flops_per_step": 2 * 2 * 32 * 64 * 16, "source": "the compiled programs of one step"}


def test_a_jitted_lambda_counts():
    step = jax.jit(lambda weights, rows: rows @ weights)
    step(jnp.ones((64, 16)), jnp.ones((32, 64)))
    assert facts_of("<lambda>")["flops_per_step"] == 2 * 32 * 64 * 16


def test_the_body_of_a_loop_counts_for_each_iteration():
    @jax.jit
    def scanning_step(weights, rows):
        return jax.lax.scan(lambda carry, _: (jnp.tanh(carry @ weights), None), rows, None, length=7)[0]

    scanning_step(jnp.ones((16, 16)), jnp.ones((32, 16)))
    assert facts_of("scanning_step")["flops_per_step"] == 7 * 2 * 32 * 16 * 16


def test_a_convolution_counts():
    @jax.jit
    def image_step(filters, images):
        return jax.lax.conv(images, filters, (1, 1), "VALID")

    image_step(jnp.ones((8, 3, 5, 5)), jnp.ones((2, 3, 20, 20)))
    assert facts_of("image_step")["flops_per_step"] == 2 * 2 * 8 * 16 * 16 * 3 * 5 * 5


def test_a_function_without_products_has_no_facts():
    @jax.jit
    def adding_step(rows):
        return rows + 1

    adding_step(jnp.ones(3))
    assert facts_of("adding_step") is None


def test_an_unknown_function_has_no_facts():
    assert facts_of("never_compiled") is None
