"""JAX: train with batches that NumPy makes, then with a feed. The training step is the same."""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import forebay as fb

ROWS, EPOCHS = (4_096, 2) if "--quick" in sys.argv else (200_000, 3)
BATCH_ROWS = 512


@jax.jit
def train_step(weights: Any, batch: Any) -> tuple[Any, Any]:
    loss, gradients = jax.value_and_grad(lambda weights: jnp.mean((batch["x"] @ weights - batch["y"]) ** 2))(weights)
    return weights - 0.01 * gradients, loss


class PlainBatches:
    """Shuffled batches in usual code: NumPy gathers the rows, `device_put` copies them to the device."""

    def __init__(self, rows: dict[str, Any]) -> None:
        self.rows, self.random = rows, np.random.default_rng(0)

    def __iter__(self) -> Iterator[Any]:
        for numbers in self.random.permutation(ROWS)[: ROWS // BATCH_ROWS * BATCH_ROWS].reshape(-1, BATCH_ROWS):
            yield jax.device_put({name: column[numbers] for name, column in self.rows.items()})


def train(name: str, batches: Iterable[Any]) -> None:
    weights = jnp.zeros((100, 1))
    for epoch in range(EPOCHS):
        start = time.perf_counter()
        for batch in batches:
            weights, loss = train_step(weights, batch)
        loss.block_until_ready()
        print(f"{name}: epoch {epoch + 1} of {EPOCHS}, loss {loss:.4f}, {time.perf_counter() - start:.2f} s")


def main() -> None:
    random = np.random.default_rng(0)
    rows = {"x": random.random((ROWS, 100), dtype=np.float32), "y": random.random((ROWS, 1), dtype=np.float32)}
    train("NumPy and device_put", PlainBatches(rows))
    # drop_remainder gives all batches one shape, so JAX compiles the step once.
    with fb.from_arrays(rows).shuffle(seed=0).batch(BATCH_ROWS, drop_remainder=True).feed("jax") as feed:
        train("feed", feed)
    if jax.devices()[0].platform == "gpu":
        print("Compare the seconds of the last epochs: the difference is time that the GPU waited for rows.")
    else:
        print("JAX found no GPU, so these times say nothing about a GPU. On a GPU, compare the last epochs.")


if __name__ == "__main__":
    main()
