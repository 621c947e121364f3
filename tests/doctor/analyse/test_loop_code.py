"""Which data of a loop depends on values that the loop reads back, and which names are NumPy arrays."""

import gc
from weakref import ref

import pytest

from forebay.doctor.analyse.loop_code import depends_on_lines, numpy_names
from forebay.doctor.analyse.script_code import ScriptCode


def depends(source, conversion, *reads):
    code = ScriptCode(source)
    return depends_on_lines(code, code.statement_at(conversion), set(reads))


ACTING = (
    "seen = env.reset()\n"
    "while True:\n"
    "    p = policy(jnp.array(seen))\n"
    "    action = int(choose(p))\n"
    "    result, reward = env.step(action)\n"
    "    seen = result\n"
)


def test_an_observation_depends_on_the_action_before_it():
    assert depends(ACTING, 3, 4)


def test_an_observation_does_not_depend_on_an_action_that_the_environment_does_not_get():
    assert not depends(ACTING.replace("env.step(action)", "env.step(next(plan))"), 3, 4)


@pytest.mark.parametrize(
    "source",
    [
        "for x in xs:\n    loss = step(jnp.array(x))\n    print(float(loss))\n",
        "for i in range(9):\n    loss = float(step(jnp.array(xs[i])))\n",
        "loss = float(first)\nx = step(jnp.array(loss))\n",  # no loop
    ],
)
def test_batches_do_not_depend_on_losses(source):
    assert not depends(source, 2, 1 if "first" in source else 2, 3)


def test_the_names_of_numpy_arrays_do_not_keep_the_code_alive():
    code = ScriptCode("x = np.zeros(3)")
    assert numpy_names(code) == {"x"}
    released = ref(code)
    del code
    gc.collect()
    assert released() is None
