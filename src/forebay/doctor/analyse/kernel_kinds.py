"""The kind of a kernel, such as matrix product or reduction, by its name.

The names are mangled C++ names of PyTorch, TensorFlow, Eigen, cuDNN and cuBLAS, names that XLA gives its fusions, names
of the Triton kernels that torch.compile writes, and names of CuPy's kernels.
"""

import re
from enum import StrEnum
from functools import lru_cache

__all__ = [
    "FUSABLE",
    "MEMORY_BOUND",
    "KernelKind",
    "is_fused_optimizer",
    "is_unfused_update",
    "is_wide_float",
    "kind_of_kernel",
]


class KernelKind(StrEnum):
    """The kind of a kernel. The values are the names of the kinds in reports."""

    PRODUCT = "products"
    COLLECTIVE = "collectives"
    FUSED = "fused by a compiler"
    OPTIMIZER = "optimizer updates"
    NORMALISATION = "normalisations"
    SOFTMAX = "softmax and losses"
    LAYOUT = "changes of the layout"
    COPY = "copies, casts and transposes"
    REDUCTION = "reductions"
    ELEMENTWISE = "elementwise"
    UNKNOWN = "unknown"


# Kinds whose time depends on the memory bandwidth, because they do little arithmetic for each byte.
MEMORY_BOUND = frozenset(KernelKind) - {KernelKind.PRODUCT, KernelKind.COLLECTIVE, KernelKind.UNKNOWN}
# Kinds of kernels that a compiler fuses with the kernels before and after them.
FUSABLE = frozenset(
    {
        KernelKind.NORMALISATION,
        KernelKind.SOFTMAX,
        KernelKind.COPY,
        KernelKind.REDUCTION,
        KernelKind.ELEMENTWISE,
    }
)

# The first pattern that matches decides. The patterns of fused kernels come first, because the name of a fused kernel
# contains the names of its operations.
_PATTERNS = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        (KernelKind.COLLECTIVE, r"^nccl"),
        (KernelKind.PRODUCT, r"gemm_fusion|^triton_(tem|mm|gemm)|^__triton_gemm"),
        (KernelKind.FUSED, r"^triton_(poi|red|per|for)_|(^|_)fusion(_\d+)*$|_fusion_"),
        (KernelKind.LAYOUT, r"nchwToNhwc|nhwcToNchw"),
        (
            KernelKind.NORMALISATION,
            r"layer_?norm|batch_?norm|group_?norm|rms_?norm|GammaBeta|RowwiseMoments|bn_(fw|bw)",
        ),
        (
            KernelKind.PRODUCT,
            r"gemm|gemv|cutlass|nvjet|matmul|xmma|wgrad|dgrad|fprop|winograd|convolve|conv(?!er)|[sh]cudnn|splitKreduce"
            r"|flash|fmha|attention|^dot",
        ),
        (KernelKind.OPTIMIZER, r"multi_tensor_apply|FusedAdam|FusedSgd|Apply(Adam|Momentum|GradientDescent|RMSProp)"),
        (KernelKind.SOFTMAX, r"soft_?max|cross_?entropy|nll_loss"),
        (KernelKind.REDUCTION, r"reduce_kernel|ReduceKernel|ReduceSingleTile|BiasGrad|_cub_\w+_pass|TensorReduction"),
        (
            KernelKind.COPY,
            r"direct_copy|transpose|SwapDimension|CatArrayBatchedCopy|ShuffleInTensor|^memcpy|^cupy_copy|TensorConversionOp|TensorShufflingOp",
        ),
        (
            KernelKind.ELEMENTWISE,
            r"elementwise|_GPU_DT_\w+_kernel$|EigenMetaKernel|^cupy_\w+__\w+|^wrapped_|^main_kernel$|dropout|BiasN[HC]",
        ),
    )
)
_FUSED_OPTIMIZER = re.compile(r"FusedAdam|FusedSgd|fused_(adam|sgd)", re.IGNORECASE)
# Foreach kernels (one kernel for a list of tensors) that a fused optimizer does not replace: they compute norms of
# gradients, scale gradients, or check them for infinities.
_NO_UPDATE = re.compile(r"Norm|ForeachReduceOp|AmpKernels|BinaryOpScalarTensor", re.IGNORECASE)
_NARROW_FLOAT = re.compile(r"BFloat16|4Half|__half|bf16|_f16|DT_HALF|float16|_hsh|_tst", re.IGNORECASE)


@lru_cache(maxsize=4096)
def kind_of_kernel(name: str) -> KernelKind:
    """Return the kind of the kernel with this name; UNKNOWN if no pattern matches."""
    return next((kind for kind, pattern in _PATTERNS if pattern.search(name)), KernelKind.UNKNOWN)


def is_fused_optimizer(name: str) -> bool:
    """Whether a kernel belongs to an optimizer with `fused=True`, which makes one pass."""
    return bool(_FUSED_OPTIMIZER.search(name))


def is_unfused_update(name: str) -> bool:
    """Whether `fused=True` would replace a kernel of an optimizer.

    Without `fused=True`, an optimizer updates parameters and states in several passes, with several kernels.
    """
    is_update = kind_of_kernel(name) is KernelKind.OPTIMIZER and "multi_tensor_apply" in name
    return is_update and not is_fused_optimizer(name) and not _NO_UPDATE.search(name)


def is_wide_float(name: str) -> bool:
    """Whether the name of a kernel contains no 16-bit float type."""
    return not _NARROW_FLOAT.search(name)
