"""One class per framework: it reads batches, keeps the device busy, and checks rows on the device."""

import importlib

import numpy as np

FACTOR = 40503  # odd, so that rows differ in every element
WIDTH = 64


def stamp_rows(rows, width=WIDTH):
    """Make rows from their row numbers: element j of row i is i * FACTOR + j, in 32 bits."""
    numbers = np.arange(rows, dtype=np.int32)
    with np.errstate(over="ignore"):
        x = numbers[:, None] * np.int32(FACTOR) + np.arange(width, dtype=np.int32)
    return {"x": x, "row": numbers}


class Torch:
    name = "torch"

    def __init__(self):
        self.torch = importlib.import_module("torch")
        self.columns = self.torch.arange(WIDTH, dtype=self.torch.int32, device="cuda")
        # One counter per stream, because streams run concurrently.
        self.wrong = self.torch.zeros(4, dtype=self.torch.int64, device="cuda")
        self.streams = [self.torch.cuda.default_stream(), *(self.torch.cuda.Stream() for _ in range(3))]
        self.number = 0

    def read(self, array):
        return array.cpu().numpy()

    def use_stream(self, number):
        self.number = number
        return self.torch.cuda.stream(self.streams[number])

    def delay(self):
        self.torch.cuda._sleep(300_000)

    def check(self, batch):
        """Count wrong elements without waiting for the device."""
        expected = batch["row"][:, None] * FACTOR + self.columns
        self.wrong[self.number] += (batch["x"] != expected).sum()

    def spoil(self, batch):
        batch["x"].fill_(-7)

    def errors(self):
        self.torch.cuda.synchronize()
        return int(self.wrong.sum())


class Cupy:
    name = "cupy"

    def __init__(self):
        self.cupy = importlib.import_module("cupy")
        self.columns = self.cupy.arange(WIDTH, dtype=self.cupy.int32)
        self.wrong = self.cupy.zeros(4, self.cupy.int64)
        self.number = 0
        self.streams = [self.cupy.cuda.Stream.null, *(self.cupy.cuda.Stream(non_blocking=True) for _ in range(3))]
        self.spin = self.cupy.RawKernel(
            'extern "C" __global__ void spin() { long long end = clock64() + 300000; while (clock64() < end); }', "spin"
        )

    def read(self, array):
        return self.cupy.asnumpy(array)

    def use_stream(self, number):
        self.number = number
        return self.streams[number]

    def delay(self):
        self.spin((1,), (1,), ())

    def check(self, batch):
        expected = batch["row"][:, None] * self.cupy.int32(FACTOR) + self.columns
        self.wrong[self.number] += (batch["x"] != expected).sum()

    def spoil(self, batch):
        batch["x"].fill(-7)

    def errors(self):
        self.cupy.cuda.runtime.deviceSynchronize()
        return int(self.wrong.sum())


class NoStream:
    """An empty context, for frameworks that do not let users choose a stream."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


class Jax:
    name = "jax"

    def __init__(self):
        self.jax = importlib.import_module("jax")
        jnp = self.jax.numpy
        self.wrong = jnp.zeros((), jnp.int32)
        self.big = jnp.ones((2048, 2048))
        self.slow = self.jax.jit(lambda big: big @ big @ big / 2048**2)  # returns the same values, slowly
        columns = jnp.arange(WIDTH, dtype=jnp.int32)

        def count(wrong, big, x, row):
            late = (big[0, 0] * 0).astype(jnp.int32)  # 0, but depends on the slow work, so the count runs after it
            return wrong + late + (x != row[:, None] * jnp.int32(FACTOR) + columns).sum(dtype=jnp.int32)

        self.count = self.jax.jit(count)

    def read(self, array):
        return np.asarray(array)

    def use_stream(self, number):
        return NoStream()

    def delay(self):
        self.big = self.slow(self.big)

    def check(self, batch):
        self.wrong = self.count(self.wrong, self.big, batch["x"], batch["row"])

    def spoil(self, batch):
        """Do nothing; JAX arrays cannot be changed."""

    def errors(self):
        return int(self.wrong)


class Tensorflow:
    name = "tensorflow"

    def __init__(self):
        self.tf = tf = importlib.import_module("tensorflow")
        with tf.device("GPU:0"):
            self.wrong = tf.Variable(tf.zeros((), tf.int64))
            self.big = tf.ones((2048, 2048))
            columns = tf.range(WIDTH, dtype=tf.int32)[None]

        @tf.function(jit_compile=True)
        def slow(big):
            return big @ big @ big / 2048**2  # returns the same values, slowly

        @tf.function
        def count(big, x, row):
            late = tf.cast(big[0, 0] * 0, tf.int64)
            differs = tf.not_equal(tf.cast(x, tf.int64), tf.cast(row[:, None] * FACTOR + columns, tf.int64))
            return late + tf.reduce_sum(tf.cast(differs, tf.int64))

        self.slow, self.count = slow, count

    def read(self, array):
        return array.numpy()

    def use_stream(self, number):
        return self.tf.device("GPU:0")

    def delay(self):
        self.big = self.slow(self.big)

    def check(self, batch):
        self.wrong.assign_add(self.count(self.big, batch["x"], batch["row"]))

    def spoil(self, batch):
        """Do nothing; TensorFlow tensors cannot be changed."""

    def errors(self):
        return int(self.wrong.numpy())


ALL = {kind.name: kind for kind in (Torch, Cupy, Jax, Tensorflow)}
