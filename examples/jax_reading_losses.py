"""JAX: log the loss of every step without waiting for the device."""

import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import forebay as fb

ROWS, EPOCHS = (4_096, 2) if "--quick" in sys.argv else (100_000, 3)
DATA = np.random.default_rng(0).random((ROWS, 64), dtype=np.float32)
PIPELINE = fb.from_arrays(DATA).shuffle(seed=0).batch(256, drop_remainder=True)
HAS_GPU = jax.devices()[0].platform == "gpu"


@jax.jit
def train_step(weights: Any, batch: Any) -> tuple[Any, Any]:
    loss, gradients = jax.value_and_grad(lambda weights: jnp.mean((batch @ weights - 1) ** 2))(weights)
    return weights - 0.01 * gradients, loss


def wait_for_every_loss() -> list[float]:
    """Call float() in every step. Each call stops the loop until the device has finished."""
    weights, losses = jnp.zeros((64, 1)), []
    with PIPELINE.repeat(EPOCHS).feed("jax") as feed:
        for batch in feed:
            weights, loss = train_step(weights, batch)
            losses.append(float(loss))
    return losses


def read_losses_later() -> list[float]:
    """Give every loss to a Readback. It returns the losses in order when they are on the host."""
    weights, losses = jnp.zeros((64, 1)), []
    with PIPELINE.repeat(EPOCHS).feed("jax") as feed, fb.Readback() as readback:
        for batch in feed:
            weights, loss = train_step(weights, batch)
            readback.put(loss)
            losses += [float(result.value) for result in readback.ready()]
        losses += [float(result.value) for result in readback.drain()]
    return losses


def main() -> None:
    results = []
    for variant in (wait_for_every_loss, read_losses_later):
        start = time.perf_counter()
        results.append(variant())
        print(f"{variant.__name__}: {len(results[-1])} losses, last {results[-1][-1]:.4f}")
        print(f"  {time.perf_counter() - start:.2f} s" if HAS_GPU else "  No GPU found. On a GPU, compare the times.")
    print(f"Look at the losses: both lists are {'equal' if np.allclose(*results) else 'DIFFERENT'}.")
    print("float() stops the loop until the step is done. The second variant queues more steps meanwhile.")


if __name__ == "__main__":
    main()
