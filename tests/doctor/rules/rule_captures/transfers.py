"""Captures for the rules about uploads, reads, moves between devices, and waits for the device."""

from tests.doctor.captures import (
    OTHER,
    TENSORFLOW_GPU,
    GiB,
    KiB,
    MiB,
    batch,
    build,
    download,
    jax_loop,
    keys_in_turn,
    loop,
    move,
    run,
    same,
    script,
    sync,
    tensorflow_loop,
    to_gpu,
    torch_loop,
    upload,
)

__all__ = ["FAULTS", "NEAR_MISSES"]

SMALL_GPU = {"torch": {"gpus": 1, "free_nbytes": 8 * MiB}}
LARGE_GPU = {"torch": {"gpus": 1, "free_nbytes": 40 * GiB}}

FAULTS = {
    "the same array every step": ("repeated_upload", loop(upload(ms=6, line=3, key=same)), 3),
    "the same array every step, on the CPU": (
        "repeated_upload",
        tensorflow_loop(upload("tf.constant", 6, line=3, key=same, device="CPU:0")),
        3,
    ),
    "two copies of the same array on one line": (
        "repeated_upload",
        loop(upload(ms=3, line=3, key=same), to_gpu(3, line=3, key=same)),
        3,
    ),
    "four batches in turn": ("repeated_upload", loop(upload(ms=5, line=4, key=keys_in_turn(4))), 4),
    "an epoch uploaded again": (
        "fits_on_device",
        loop(to_gpu(4, line=23, key=keys_in_turn(25)), frameworks=LARGE_GPU),
        23,
    ),
    "a dataset uploaded again, shuffled": (
        "fits_on_device",
        loop(to_gpu(4, line=23), before=[build(nbytes=10 * MiB)], frameworks=LARGE_GPU),
        23,
    ),
    "fresh arrays converted": ("conversion_in_loop", tensorflow_loop(upload("tf.convert_to_tensor", 4, line=5)), 5),
    "Python lists converted": ("conversion_in_loop", loop(upload(ms=6, line=5, from_dtype="list")), 5),
    "NumPy arrays joined by JAX": (
        "conversion_in_loop",
        jax_loop(upload("jnp.stack", 4, line=5, nbytes=128, pieces=4)),
        5,
    ),
    "many doubles joined by JAX": (
        "conversion_in_loop",
        jax_loop(upload("jnp.stack", 4, line=5, from_dtype="float64", dtype="float32", pieces=64)),
        5,
    ),
    "doubles that arrive as floats": (
        "wide_dtype",
        jax_loop(upload("jax.device_put", 6, line=21, from_dtype="float64", dtype="float32")),
        21,
    ),
    "doubles that stay doubles": ("wide_dtype", loop(upload(ms=6, line=21, dtype="torch.float64")), 21),
    "a hundred small uploads": ("many_small_copies", loop(upload(ms=0.05, line=20, times=100, nbytes=4 * KiB)), 20),
    "a large copy out of pageable memory": ("pageable_upload", loop(to_gpu(4, line=6, nbytes=32 * MiB)), 6),
    "a batch that the first operation moves to the GPU": (
        "pageable_upload",
        loop(
            batch("tf.data", 0.1, prefetch=1, nbytes=32 * MiB),
            move("Mean", 4, line=6, source="CPU:0", target="GPU:0", nbytes=32 * MiB),
            frameworks=TENSORFLOW_GPU,
        ),
        6,
    ),
    "a move without a time inside a graph": (
        "placement",
        loop(run(ms=8), move(ms=0, line=22, nbytes=32 * MiB, timed=False), frameworks=TENSORFLOW_GPU),
        22,
    ),
    "an operation on the other device": ("placement", loop(move(ms=3, line=22), frameworks=TENSORFLOW_GPU), 22),
    "a loss read every step": ("read_back", loop(download(ms=4, line=7)), 7),
    "a loss read every step, JAX on the CPU": (
        "read_back",
        jax_loop(download("float(array)", 4, line=7, device="cpu:0")),
        7,
    ),
    "several values read in a step": ("read_back", loop(download(ms=0.5, line=7, times=8)), 7),
    "cpu() and numpy() on one line": (
        "read_back",
        loop(download("Tensor.cpu", 4, line=7), download("Tensor.numpy", 0.01, line=7, device="cpu")),
        7,
    ),
    "a large result checked on the host": ("host_check", loop(download("Tensor.numpy", 5, line=8, nbytes=64 * MiB)), 8),
    "an explicit wait": ("sync", loop(sync(ms=4, line=27)), 27),
    "a wait for every array, JAX on the CPU": ("sync", jax_loop(sync("jax.block_until_ready", 4, line=27)), 27),
}

NEAR_MISSES = {
    "fresh data every step": ("repeated_upload", loop(upload(ms=6))),
    "the same number every step": ("repeated_upload", loop(upload(ms=6, key=same, nbytes=8))),
    "the same array twice in the whole run": ("repeated_upload", loop(upload(ms=6, key=same, every=30))),
    "the same array on another thread": ("repeated_upload", loop(upload(ms=6, key=same, thread=OTHER))),
    "data with an unknown key": ("repeated_upload", loop(upload(ms=6, key=""))),
    "an epoch that does not fit": ("fits_on_device", loop(to_gpu(4, key=keys_in_turn(25)), frameworks=SMALL_GPU)),
    "data that is never uploaded again": ("fits_on_device", loop(to_gpu(4), frameworks=LARGE_GPU)),
    "a device with unknown free memory": ("fits_on_device", loop(to_gpu(4, key=keys_in_turn(25)))),
    "an epoch on the CPU": (
        "fits_on_device",
        loop(upload(ms=4, key=keys_in_turn(25), device="cpu"), frameworks=LARGE_GPU),
    ),
    "a conversion that takes no time": ("conversion_in_loop", loop(upload("torch.from_numpy", 0.01))),
    "a join of arrays that takes no time": ("conversion_in_loop", jax_loop(upload("jnp.stack", 0.1, pieces=4))),
    "a conversion now and then": ("conversion_in_loop", loop(upload(ms=6, every=10))),
    "a tensor that shares the memory of an array": (
        "conversion_in_loop",
        loop(upload("torch.from_numpy", 2, nbytes=0, copied=False)),
    ),
    "a copy that does not block": ("conversion_in_loop", loop(upload("Tensor.to", 2, pinned=True, non_blocking=True))),
    "the same array, converted": ("conversion_in_loop", loop(upload(ms=6, key=same))),
    "an observation that follows from an action": (
        "conversion_in_loop",
        jax_loop(
            upload("jnp.array", 4, line=13, from_dtype="list"),
            download("int(array)", 1, line=14, device="cpu:0"),
            facts=script(
                "while True:",
                "    p = policy(params, jnp.array(seen))",
                "    action = int(choose(p))",
                "    result, reward = env.step(action)",
                "    seen = result",
                first=12,
            ),
        ),
    ),
    "floats that stay floats": ("wide_dtype", loop(upload(ms=6, from_dtype="float32", dtype="torch.float32"))),
    "labels in int64": ("wide_dtype", loop(upload(ms=6, dtype="torch.int64"))),
    "a few doubles": ("wide_dtype", loop(upload(ms=6, dtype="float64", nbytes=800))),
    "bytes that become floats": ("wide_dtype", loop(upload(ms=6, from_dtype="uint8", dtype="float32"))),
    "few small uploads": ("many_small_copies", loop(upload(ms=0.5, times=4, nbytes=4 * KiB))),
    "many tensors that share the memory of arrays": (
        "many_small_copies",
        loop(upload(ms=0.1, times=20, nbytes=0, copied=False)),
    ),
    "many large uploads": ("many_small_copies", loop(upload(ms=0.5, times=10, nbytes=MiB))),
    "page-locked memory": ("pageable_upload", loop(upload("Tensor.to", 4, device="cuda:0", pinned=True))),
    "a small copy": ("pageable_upload", loop(to_gpu(4, nbytes=512 * KiB))),
    "a copy that stays on the host": ("pageable_upload", loop(upload(ms=4, device="cpu", pinned=False))),
    "a copy from an unknown kind of memory": ("pageable_upload", loop(upload("Tensor.to", 4, device="cuda:0"))),
    "a table that an operation moves to the GPU": ("pageable_upload", loop(move(source="CPU:0", target="GPU:0"))),
    "a move now and then": ("placement", loop(move(ms=3, every=10))),
    "an item on the CPU": ("read_back", torch_loop(download(ms=4, device="cpu"))),
    "a loss read every hundredth step": ("read_back", loop(download(ms=4, every=20))),
    "a value read on another thread": ("read_back", loop(download(ms=4, thread=OTHER))),
    "a large result": ("read_back", loop(download(ms=4, nbytes=64 * MiB))),
    "numpy() of a large tensor on the CPU": (
        "host_check",
        tensorflow_loop(download("Tensor.numpy", 4, nbytes=64 * MiB, device="CPU:0")),
    ),
    "a large result at the end of an epoch": ("host_check", loop(download(ms=4, nbytes=64 * MiB, every=25))),
    "a single number": ("host_check", loop(download(ms=4))),
    "a wait at the end of an epoch": ("sync", loop(sync(ms=4, every=20))),
}
