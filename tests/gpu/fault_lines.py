"""The beginnings of the faulty lines in `faults`; empty if a fault belongs to no line.

A framework has no script for a rule if the fault cannot occur in that framework or on one GPU:

    collectives       there is no other process to communicate with
    eager, tiny_ops   the doctor does not count operations of PyTorch and CuPy; `launch_bound` reports them
    launch_bound      the doctor takes every compiled call of JAX for a step, so no step has many calls
    low_occupancy     XLA launches kernels with many blocks
    pageable_upload   JAX does not report the kind of host memory of an upload
    placement         PyTorch never moves a tensor by itself; explicit moves are read-backs and uploads
    sync              TensorFlow has no call that waits for the device, except reads
"""

__all__ = ["LINES", "OTHER_FIRST_RULES", "WARNINGS"]

LINES = {
    "tensorflow": {
        "copy_not_overlapped": "loss = train(images, target)",
        "eager": "optimizer.apply_gradients(",
        "faster_on_cpu": "",
        "fits_on_device": "batch = tf.constant(rows_of_batch)",
        "host_check": "if np.isnan(activations.numpy()).any():",
        "launch_bound": "optimizer.apply_gradients(",
        "low_occupancy": "average = drift(gain)",
        "made_in_loop": "loss = train(tf.constant(signals))",
        "out_of_memory": "",
        "pageable_upload": "scaled = batch / 255.0",
        "placement": "hidden = tf.clip_by_value(hidden, 0.0, 6.0)",
        "read_back": "losses.append(loss.numpy())",
        "tensor_cores": "loss = train()",
        "tiny_ops": "gradient = sum(row * weights for row in tf.unstack(rows))",
    },
    "torch": {
        "copy_not_overlapped": "window = recording[start : start + rows].to(",
        "faster_on_cpu": "",
        "fits_on_device": "batch = rows.to(device)",
        "host_check": "if np.isnan(predicted.detach().cpu().numpy()).any():",
        "launch_bound": "optimizer.step()",
        "low_occupancy": "",  # the doctor does not record PyTorch operations, so kernels have no call site
        "made_in_loop": "batch = torch.from_numpy(signals).to(device)",
        "out_of_memory": "",
        "pageable_upload": "window = recording[start : start + rows].to(device)",
        "read_back": "losses.append(loss.item())",
        "sync": "torch.cuda.synchronize()",
        "tensor_cores": "",
    },
    "jax": {
        "copy_not_overlapped": "window = jax.device_put(recording[",
        "eager": "gradients = jax.grad(loss_of)(layers, batch)",
        "faster_on_cpu": "",
        "fits_on_device": "batch = jax.device_put(rows_of_batch)",
        "host_check": "if np.isnan(jax.device_get(activations)).any():",
        "made_in_loop": "weights = train(weights, jnp.asarray(signals))",
        "out_of_memory": "",
        "placement": "weights, mean = step(weights, jax.device_put(table, here))",
        "read_back": "losses.append(float(loss))",
        "sync": "jax.block_until_ready(loss)",
        "tensor_cores": "layers, loss = train(layers)",
    },
    "cupy": {
        "copy_not_overlapped": "window.set(recording[",
        "faster_on_cpu": "",
        "launch_bound": "heat = relax(heat, spread)",
        "low_occupancy": "damp((8,), (256,), ",
        "out_of_memory": "",
        "tensor_cores": "",
    },
}
WARNINGS = {"out_of_memory"}  # rules that warn; a warning costs no step time, so it is never the first finding
OTHER_FIRST_RULES = {  # these rules explain the same time; their gains decide which finding is first
    ("jax", "copy_not_overlapped"): {"read_back"},
    ("jax", "faster_on_cpu"): {"jax_steps"},
}
