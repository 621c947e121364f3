"""Functions of JAX behave during profiling as they do without it.

`test_framework_cases.py` runs this file in the process of JAX, because frameworks conflict in one process.
That process has two devices.
"""

import copy
import functools
import inspect
import pickle
import threading
from types import MethodType

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.doctor.capture.hooks.hook_scripts import watched

JITTED = type(jax.jit(lambda: None))
# Whether jax.jit(static_argnames=...) returns a decorator, as in newer versions of JAX.
MAKES_DECORATORS = inspect.signature(jax.jit).parameters["fun"].default is not inspect.Parameter.empty


class Model:
    """A class of the user. `decorated` adds a jitted method."""

    def __init__(self, factor):
        self.factor = factor

    @classmethod
    def decorated(cls):
        """Return a model of a subclass, whose method is decorated with `jax.jit` in this call."""

        class Watched(cls):
            @functools.partial(jax.jit, static_argnums=0)
            def scaled(self, x):
                return x * self.factor

        return Watched(3.0)


def square_sum(x):
    """The sum of squares."""
    return (x**2).sum()


def in_a_loop(step):
    return jax.lax.scan(lambda carry, x: (step(carry + x), x), 0.0, jnp.arange(4.0))[0]


def in_a_thread(function, *args):
    results = []
    thread = threading.Thread(target=lambda: results.append(function(*args)))
    thread.start()
    thread.join()
    return results[0]


def compiled_ahead_of_time(function, *args):
    return function.lower(*args).compile()(*args)


def jit_with_options(**options):
    return jax.jit(**options) if MAKES_DECORATORS else functools.partial(jax.jit, **options)


def with_decorator_arguments():
    @jit_with_options(static_argnames="times")
    def repeated(x, times):
        return jnp.tile(x, times)

    return repeated(jnp.arange(2.0), times=2)


def call_after_an_error():
    """Branch on a traced value, which raises an error of JAX. Then call another jitted function."""
    with pytest.raises(jax.errors.TracerBoolConversionError):
        jax.jit(lambda x: 1 if x else 2)(1.0)
    return jax.jit(square_sum)(jnp.arange(3.0))


ROW = np.arange(3, dtype=np.float32)

USAGES = {
    "a call": lambda: jax.jit(square_sum)(ROW),
    "grad": lambda: jax.grad(jax.jit(square_sum))(ROW),
    "grad of a call beside NumPy data": lambda: jax.grad(lambda w: jax.jit(lambda w, x: (w * x).sum())(w, ROW))(2.0),
    "hessian": lambda: jax.hessian(jax.jit(square_sum))(ROW),
    "vmap": lambda: jax.vmap(jax.jit(square_sum))(np.ones((4, 3), np.float32)),
    "jvp": lambda: jax.jvp(jax.jit(square_sum), (ROW,), (ROW,))[1],
    "scan": lambda: in_a_loop(jax.jit(lambda x: x * 2)),
    "cond": lambda: jax.lax.cond(True, jax.jit(square_sum), jnp.sum, ROW),
    "pmap": lambda: jax.pmap(lambda x: x * 2)(np.ones((2, 3), np.float32)),
    "vmap of a function that jits": lambda: jax.vmap(lambda x: jax.jit(square_sum)(x) + 1)(np.ones((4, 3))),
    "jit of jit": lambda: jax.jit(jax.jit(square_sum))(ROW),
    "jit of a partial": lambda: jax.jit(functools.partial(jnp.power, 2.0))(ROW),
    "jit of a hooked operation": lambda: jax.jit(jnp.mean)(ROW),
    "checkpoint": lambda: jax.grad(jax.checkpoint(jax.jit(square_sum)))(ROW),
    "static numbers": lambda: jax.jit(lambda x, n: jnp.tile(x, n), static_argnums=1)(ROW, 2),
    "static names": lambda: jax.jit(lambda x, n: jnp.tile(x, n), static_argnames="n")(ROW, n=2),
    "a donated argument": lambda: jax.jit(lambda x: x * 2, donate_argnums=0)(jnp.arange(3.0)),
    "trees": lambda: jax.jit(lambda tree: tree["a"] + tree["b"][0])({"a": ROW, "b": (ROW, 1)}),
    "keywords": lambda: jax.jit(lambda *, self, x: self * x)(self=2.0, x=ROW),
    "a decorator with arguments": with_decorator_arguments,
    "a method": lambda: Model.decorated().scaled(ROW),
    "compiled ahead of time": lambda: compiled_ahead_of_time(jax.jit(square_sum), ROW),
    "traced": lambda: str(jax.jit(square_sum).trace(ROW).jaxpr),
    "a jaxpr": lambda: str(jax.make_jaxpr(jax.jit(square_sum))(ROW)),
    "a shape": lambda: jax.jit(square_sum).eval_shape(ROW).shape,
    "a shape of a function that jits": lambda: jax.eval_shape(lambda x: jax.jit(square_sum)(x), ROW).shape,
    "wraps": lambda: functools.wraps(jax.jit(square_sum))(lambda x: x)(ROW),
    "another thread": lambda: in_a_thread(jax.jit(square_sum), ROW),
    "a call after an error": call_after_an_error,
    "an operation pickled": lambda: pickle.loads(pickle.dumps(jnp.mean))(ROW),
    "a jitted operation pickled": lambda: cloudpickle.loads(cloudpickle.dumps(jnp.dot))(ROW, ROW),
    "a jitted function pickled": lambda: cloudpickle.loads(cloudpickle.dumps(jax.jit(lambda x: x * 2)))(ROW),
    "jit of grad": lambda: jax.jit(jax.grad(square_sum))(ROW),
    "jit of vmap": lambda: jax.jit(jax.vmap(square_sum, in_axes=0))(np.ones((4, 3), np.float32)),
    "grad of grad": lambda: jax.grad(jax.grad(lambda x: x**3))(2.0),
    "vmap of grad": lambda: jax.vmap(jax.grad(square_sum))(np.ones((4, 3), np.float32)),
    "grad with auxiliary results": lambda: jax.value_and_grad(lambda x: (x.sum(), x), has_aux=True)(ROW),
    "grad in a scan": lambda: jax.lax.scan(lambda c, x: (c + jax.grad(jnp.sin)(x), x), 0.0, jnp.arange(4.0))[0],
    "grad in another thread": lambda: in_a_thread(jax.grad(square_sum), ROW),
    "grad pickled": lambda: cloudpickle.loads(cloudpickle.dumps(jax.grad(lambda x: (x**2).sum())))(ROW),
    "grad's own signature": lambda: str(inspect.signature(jax.grad(square_sum))),
    "grad's name": lambda: jax.grad(square_sum).__name__,
    "grad's docstring": lambda: jax.grad(square_sum).__doc__,
    "a partial of grad": lambda: functools.partial(jax.grad, argnums=1)(lambda x, y: x * y)(2.0, 3.0),
    "an operation in jax.tree.map": lambda: jax.tree.map(jnp.add, {"a": ROW}, {"a": ROW}),
    "a ufunc's own methods": lambda: jnp.add.reduce(ROW),
    "a ufunc's type": lambda: isinstance(jnp.add, jnp.ufunc),
    "an activation's gradient": lambda: jax.grad(jax.nn.relu)(1.5),
    "an activation that is jitted": lambda: jax.jit(jax.nn.gelu)(ROW),
    "operators with NumPy on the left": lambda: ROW * jnp.arange(3.0),
    "an operator with an unsupported operand": lambda: jnp.arange(3.0).__add__(object()) is NotImplemented,
    "a copied operation": lambda: copy.deepcopy({"mean": jnp.mean})["mean"](ROW),
}


@pytest.mark.parametrize("usage", USAGES)
def test_a_profiled_function_returns_the_same_result(usage):
    assert jax.tree.all(jax.tree.map(np.array_equal, watched(USAGES[usage]).result, USAGES[usage]()))


def test_disable_jit_is_respected():
    def run():
        with jax.disable_jit():
            return jax.jit(lambda x: x if x.sum() > 0 else -x)(jnp.ones(3))

    assert watched(run).result.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("read_property", "expected"),
    [
        (lambda function: function.__name__, "square_sum"),
        (lambda function: function.__doc__, "The sum of squares."),
        (lambda function: function.__module__, __name__),
        (lambda function: function.__wrapped__, square_sum),
        (lambda function: isinstance(function, JITTED), True),
        (lambda function: isinstance(function, jax.stages.Wrapped), True),
        (lambda function: callable(function), True),
        (lambda function: type(function.lower(ROW)), jax.stages.Lowered),
        (lambda function: function.clear_cache(), None),
        (lambda function: repr(function).startswith("<PjitFunction"), True),
        (lambda function: isinstance(function.__get__(1), MethodType), True),
        (lambda function: hash(function) == hash(function), True),
    ],
)
def test_a_profiled_function_looks_like_a_jitted_function(read_property, expected):
    assert watched(lambda: read_property(jax.jit(square_sum))).result == expected


def test_a_donated_array_is_deleted():
    array = jnp.arange(3.0)
    watched(lambda: jax.jit(lambda x: x * 2, donate_argnums=0)(array))
    assert array.is_deleted()


def test_attributes_set_by_the_user_stay():
    def run():
        step = jax.jit(square_sum)
        step.version = 7
        return step

    assert watched(run).result.version == 7


def test_calls_during_the_trace_of_another_function_are_not_runs():
    def run():
        inner = jax.jit(lambda x: x * 2)
        outer = jax.jit(lambda x: inner(x) + 1)
        return [outer(ROW) for _ in range(3)]

    assert watched(run).details("run", "function") == ["<lambda>"] * 3


def test_a_call_inside_grad_is_a_run():
    def run():
        loss = jax.jit(square_sum)
        return [jax.grad(loss)(ROW) for _ in range(3)]

    assert watched(run).details("run", "function") == ["square_sum"] * 3


def test_a_call_of_an_ahead_of_time_compiled_function_is_a_run():
    seen = watched(lambda: compiled_ahead_of_time(jax.jit(square_sum), ROW))
    assert [event.api for event in seen.of("run")] == ["jax.stages.Compiled"]


def test_calls_after_a_failed_call_are_recorded():
    assert watched(call_after_an_error).details("run", "function") == ["square_sum"]


@pytest.mark.parametrize("join", ["stack", "concatenate", "vstack", "hstack", "column_stack", "array", "asarray"])
def test_a_join_of_numpy_arrays_is_one_upload_and_no_operation(join):
    rows = [np.ones(8, np.float32)] * 64

    def run():
        getattr(jnp, join)(rows)  # compiles
        return getattr(jnp, join)(rows)

    seen = watched(run)
    (_, event) = seen.of("upload")
    assert (event.api, event.nbytes, event.detail["pieces"]) == (f"jnp.{join}", 64 * 8 * 4, 64)
    assert seen.of("ops") == []


def test_a_join_of_arrays_on_the_device_is_an_operation():
    rows = [jnp.ones(8)] * 4

    def run():
        return [jnp.stack(rows) for _ in range(4)]

    seen = watched(run)
    assert seen.of("upload") == []
    assert sum(event.detail["count"] for event in seen.of("ops")) == 4
