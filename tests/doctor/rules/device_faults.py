"""Captures with one fault that only device records show, and captures that look similar."""

from dataclasses import replace

from tests.doctor.captures import LOOP, OTHER, STEP_LINE, TORCH_GPU, loop
from tests.doctor.device_rig import COPY_STREAM, device_records, run
from tests.support.paths import DOCTOR

from forebay.doctor.model.capture import Capture
from forebay.doctor.model.device_records import RecordKind

__all__ = ["DEVICE_FAULTS", "DEVICE_NEAR_MISSES"]

MB = 1_000_000
MANY, FEW = (528, 1, 1), (4, 1, 1)  # blocks per kernel
PLAIN, TF32 = "ampere_sgemm_128x64_nn", "sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x16"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
OTHER_STREAM = 21
ADD = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_"
GELU = (
    "_ZN2at6native29vectorized_elementwise_kernelILi4EZZZNS0_26GeluBackwardCUDAKernelImplERNS_18TensorIteratorBaseE"
    "NKUlvE_clEvENKUlvE0_clEvEUlffE_St5arrayIPcLm3EEEEviT0_T1_"
)
ADD16 = (
    "_ZN2at6native29vectorized_elementwise_kernelILi8ENS0_15CUDAFunctor_addIN3c108BFloat16EEESt5arrayIPcLm3EEEEviT0_T1_"
)
FUSION = "triton_poi_fused_add_convolution_gelu_3"


def beside_unused_gpu(*, operators):
    """Return a capture of PyTorch on the CPU, with a recording of a GPU that did nothing."""
    return replace(loop(frameworks=TORCH_GPU, facts={"operators": operators}), device=device_records(()))


def run_with_kernels(program, *names, grids=(MANY,), kind=RecordKind.CONCURRENT_KERNEL):
    """Return the capture of a program. Kernels with a duration get these names and grids in turn."""
    capture = run(program, frameworks=TORCH_GPU)
    records = capture.device.records.copy()
    kernels = (records["kind"] == RecordKind.CONCURRENT_KERNEL) & (records["end"] > records["start"])
    order = range(int(kernels.sum()))
    records["grid"][kernels] = [grids[number % len(grids)] for number in order]
    records["block"][kernels] = (256, 1, 1)
    records["name"][kernels] = [1 + number % len(names) for number in order] if names else 1
    records["kind"][kernels] = kind
    device = replace(capture.device, records=records, names=("", *(names or ("fused_kernel",))))
    return replace(capture, device=device)


def computing(*kernels, streams=(7,), host_us=None):
    """Return a program of kernels with these durations in us. Without `host_us`, the device limits the step."""

    def program(rig):
        rig.python(10)
        for number, us in enumerate(kernels):
            rig.launch(us, stream=streams[number % len(streams)])
        if host_us:
            rig.python(host_us)
        else:
            rig.launch_on_full_queue(max(0, sum(kernels) - 10 - 4 * len(kernels)))

    return program


def waiting(*kernels):
    """Return a program of kernels with these durations in microseconds. The host only waits for them."""

    def program(rig):
        for us in kernels:
            rig.launch(us)
        rig.python(1)
        rig.synchronize()

    return program


def allocating(us, *, line=None, thread=LOOP):
    """Return a program that allocates device memory and then runs Python for a millisecond."""

    def program(rig):
        rig.allocate(us, line=line, thread=thread)
        rig.launch(500)
        rig.python(1_000)

    return program


def feeding(nbytes, *, stream=7, pinned=True, kernel_us=1_000, host_us=1_980):
    """Return a program that uploads a batch and then computes."""

    def program(rig):
        rig.upload(nbytes, line=2, pinned=pinned, stream=stream)
        rig.launch(kernel_us)
        rig.launch_on_full_queue(host_us)

    return program


def tiny(count, *, us=2, nbytes=0):
    """Return a program of short kernels, and of an upload if `nbytes` is given."""

    def program(rig):
        for _ in range(count):
            rig.launch(us, host_us=12)
        if nbytes:
            rig.upload(nbytes, line=2, pinned=True)

    return program


def jitted(us, *, calls=1, reads=False, **given):
    """Return the capture of a program that calls a jitted function, and reads its result if `reads`."""

    def program(rig):
        for number in range(calls):
            rig.call_jitted(us, line=5 + number, **given)
        if reads:
            rig.read(api="float(array)")

    return run(program, frameworks={"jax": {"gpus": 1}})


def keras_fit(**settings):
    """Return the capture of a small model on arrays, with other settings of `model.compile`."""
    capture = Capture.load(DOCTOR / "rules" / "keras_fit_arrays.gz")
    events = [
        event._replace(detail=event.detail | settings) if event.api == "Model.compile" else event
        for event in capture.events
    ]
    return replace(capture, events=tuple(events))


DEVICE_FAULTS = {
    "short steps of Keras": ("keras_steps", keras_fit(), 17),
    "short steps of JAX": ("jax_steps", jitted(20), 5),
    "a copy on the stream that computes": ("copy_not_overlapped", run_with_kernels(feeding(55 * MB)), 2),
    "kernels of few blocks": (
        "low_occupancy",
        run_with_kernels(computing(700, 800), "persistent_rnn", grids=(FEW,)),
        None,
    ),
    "products in plain float32": ("tensor_cores", run_with_kernels(computing(800, 700), PLAIN, "add"), None),
    "products in float64": ("tensor_cores", run_with_kernels(computing(800), "ampere_dgemm_128x64_nn"), None),
    "products of odd sizes": (
        "tensor_cores",
        run_with_kernels(computing(800), "cutlass_80_tensorop_f16_s16816gemm_f16_64x64_32x6_nn_align1"),
        None,
    ),
    "gradients exchanged after the backward pass": (
        "collectives",
        run_with_kernels(computing(900, 400), "gemm", NCCL),
        None,
    ),
    "additions that are not fused": ("memory_bound", run_with_kernels(waiting(400, 500, 300), ADD, GELU, ADD), None),
    "additions beside a product": ("memory_bound", run_with_kernels(waiting(400, 500, 600), ADD, GELU, TF32), None),
    "memory that each step allocates and frees": ("allocator", run_with_kernels(allocating(200)), None),
    "memory that a compiled function allocates": ("allocator", run_with_kernels(allocating(200, line=5)), 5),
    "memory that a thread allocates for a call": (
        "allocator",
        run_with_kernels(allocating(200, line=5, thread=OTHER)),
        5,
    ),
    "a Python loop of small kernels": ("launch_bound", run_with_kernels(tiny(80, us=3)), STEP_LINE),
    "operators of PyTorch beside an unused GPU": ("unused_gpu", beside_unused_gpu(operators=40), STEP_LINE),
    "kernels of few numbers on a GPU": ("faster_on_cpu", run_with_kernels(tiny(20), "add", grids=(FEW,)), None),
}

DEVICE_NEAR_MISSES = {
    "many steps of Keras per call": ("keras_steps", keras_fit(steps_per_execution=50)),
    "steps of JAX that compute for longer than their call": ("jax_steps", jitted(900)),
    "long steps of JAX": ("jax_steps", jitted(20, host_us=5_000)),
    "short steps of JAX whose results are read": ("jax_steps", jitted(20, reads=True)),
    "two compiled calls of JAX per step": ("jax_steps", jitted(20, calls=2)),
    "a copy on a stream of its own": ("copy_not_overlapped", run_with_kernels(feeding(55 * MB, stream=COPY_STREAM))),
    "a short copy": ("copy_not_overlapped", run_with_kernels(feeding(MB))),
    "a copy from pageable memory": ("copy_not_overlapped", run_with_kernels(feeding(8 * MB, pinned=False))),
    "kernels of many blocks": ("low_occupancy", run_with_kernels(computing(700, 800))),
    "short kernels of few blocks": ("low_occupancy", run_with_kernels(computing(*[5] * 40), grids=(FEW,))),
    "few blocks beside many": (
        "low_occupancy",
        run_with_kernels(computing(1_000, 1_000, streams=(7, OTHER_STREAM), host_us=1_000), grids=(FEW, MANY)),
    ),
    "a collective of few blocks": ("low_occupancy", run_with_kernels(computing(700), NCCL, grids=(FEW,))),
    "a graph with an unknown number of blocks": (
        "low_occupancy",
        run_with_kernels(computing(700), grids=(FEW,), kind=RecordKind.GRAPH_TRACE),
    ),
    "products with TF32": ("tensor_cores", run_with_kernels(computing(800), TF32)),
    "products of 16 bits that are aligned": (
        "tensor_cores",
        run_with_kernels(computing(800), "cutlass_80_tensorop_bf16_s16816gemm_bf16_128x64_64x3_nn_align8"),
    ),
    "short products": ("tensor_cores", run_with_kernels(computing(20, 1_500), PLAIN, "add")),
    "kernels that a compiler fused, in 16 bits": ("memory_bound", run_with_kernels(waiting(800, 700), FUSION, ADD16)),
    "additions beside longer products": (
        "memory_bound",
        run_with_kernels(waiting(400, 500, 1_000), ADD, GELU, TF32),
    ),
    "additions in a step that waits for the host": (
        "memory_bound",
        run_with_kernels(computing(400, 500, host_us=4_000), ADD, GELU),
    ),
    "kernels with unknown names": ("memory_bound", run_with_kernels(waiting(400, 500), "damp", "improve")),
    "additions of few blocks": ("memory_bound", run_with_kernels(waiting(400, 500), ADD, GELU, grids=(FEW,))),
    "short additions": ("memory_bound", run_with_kernels(waiting(*[4] * 100), ADD, GELU)),
    "allocations that take little time": ("allocator", run_with_kernels(allocating(10))),
    "no allocations": ("allocator", run_with_kernels(computing(500))),
    "gradients exchanged during the backward pass": (
        "collectives",
        run_with_kernels(computing(900, 400, streams=(7, OTHER_STREAM), host_us=900), "gemm", NCCL),
    ),
    "no collectives": ("collectives", run_with_kernels(computing(900), "gemm")),
    "a few launches": ("launch_bound", run_with_kernels(tiny(30, us=3))),
    "small kernels, launched as fast as the device runs them": ("launch_bound", run_with_kernels(computing(*[6] * 80))),
    "operators that were not counted": ("unused_gpu", beside_unused_gpu(operators=0)),
    "operators on a GPU": ("unused_gpu", run_with_kernels(tiny(20))),
    "kernels of many numbers": ("faster_on_cpu", run_with_kernels(tiny(20))),
    "kernels that take longer": ("faster_on_cpu", run_with_kernels(tiny(20, us=9), grids=(FEW,))),
    "kernels of few numbers, and a large upload": (
        "faster_on_cpu",
        run_with_kernels(tiny(20, nbytes=MB), grids=(FEW,)),
    ),
    "a graph of small kernels": (
        "faster_on_cpu",
        run_with_kernels(tiny(2), grids=(FEW,), kind=RecordKind.GRAPH_TRACE),
    ),
}
