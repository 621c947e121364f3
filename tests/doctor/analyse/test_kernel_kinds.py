"""Kinds of kernels by the names that libraries give them. The names were recorded on an H200."""

import pytest

from forebay.doctor.analyse.kernel_kinds import (
    FUSABLE,
    MEMORY_BOUND,
    KernelKind,
    is_fused_optimizer,
    is_wide_float,
    kind_of_kernel,
)

FOREACH_ADD = (
    "_ZN2at6native55_GLOBAL__N__d25d856e_22_ForeachBinaryOpList_cu_a911ec4325multi_tensor_apply_kernelI"
    "NS1_18TensorListMetadataILi2EEENS1_24BinaryOpListAlphaFunctorIfLi2ELi2ELi0EEEJSt4plusIfEfEEEvT_T0_DpT1_"
)
NAMES = {
    "sm90_xmma_gemm_f32f32_tf32f32_f32_nt_n_tilesize128x256x32_execute_kernel__5x_cublas": KernelKind.PRODUCT,
    "nvjet_sm90_hsh_256x128_64x4_1x2_h_bz_coopA_NNT": KernelKind.PRODUCT,
    "_ZN7cutlass7Kernel2I43cutlass_80_simt_sgemm_128x256_8x4_nt_align1EEvNT_6ParamsE": KernelKind.PRODUCT,
    "_Z39fmha_cutlassF_f32_aligned_64x64_rf_sm80N22PyTorchMemEffAttention6ParamsE": KernelKind.PRODUCT,
    "_ZN8cublasLt19splitKreduce_kernelILi32ELi16EiffffLb1ELb0ELb0EEEvNS_18cublasSplitKParams": KernelKind.PRODUCT,
    "gemm_fusion_dot_40": KernelKind.PRODUCT,
    "triton_tem_fused_mm_3": KernelKind.PRODUCT,
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL": KernelKind.COLLECTIVE,
    "triton_poi_fused_convolution_relu_3": KernelKind.FUSED,
    "triton_red_fused_native_layer_norm_0": KernelKind.FUSED,
    "loop_add_subtract_fusion": KernelKind.FUSED,
    "input_reduce_fusion": KernelKind.FUSED,
    "loop_convert_fusion_12": KernelKind.FUSED,
    "fusion_46": KernelKind.FUSED,
    "_ZN5cudnn19engines_precompiled16nchwToNhwcKernelIfffLb0ELb1EL21cudnnKernelDataType_t0EEEv": KernelKind.LAYOUT,
    "_ZN5cudnn21bn_bw_1C11_kernel_newIff6float2Li128ELb1ELi1EEEvT0_S2_S2_S2_17cudnnTensorStruct": (
        KernelKind.NORMALISATION
    ),
    "_ZN2at6native53_GLOBAL__N__21739cd4_20_layer_norm_kernel_cu_9c5ada8a28vectorized_layer_norm_kernelIff": (
        KernelKind.NORMALISATION
    ),
    FOREACH_ADD: KernelKind.OPTIMIZER,
    "_ZN2at6native12_GLOBAL__N_120softmax_warp_forwardIfffLi7ELb0ELb0EEEvPT0_PKT_iiiPKbib": KernelKind.SOFTMAX,
    "_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfNS0_7MeanOpsIffffEEjfLi4ELi4EEEEEvT1_": (
        KernelKind.REDUCTION
    ),
    "_ZN10tensorflow7functor37SwapDimension1And2InTensor3UsingTilesIjLi256ELi32ELi32ELb0EEEv": KernelKind.COPY,
    "Mul_GPU_DT_FLOAT_DT_FLOAT_kernel": KernelKind.ELEMENTWISE,
    "wrapped_subtract_2": KernelKind.ELEMENTWISE,
    "cupy_add__float32_float32_float32": KernelKind.ELEMENTWISE,
    "damp": KernelKind.UNKNOWN,
    "": KernelKind.UNKNOWN,
}


@pytest.mark.parametrize("name", NAMES)
def test_the_kind_of_a_kernel_is_found_by_its_name(name):
    assert kind_of_kernel(name) is NAMES[name]


def test_products_collectives_and_unknown_kernels_are_not_memory_bound():
    assert not MEMORY_BOUND & {KernelKind.PRODUCT, KernelKind.COLLECTIVE, KernelKind.UNKNOWN}


def test_kernels_that_are_fused_already_are_not_fusable():
    assert FUSABLE <= MEMORY_BOUND
    assert KernelKind.FUSED not in FUSABLE


def test_a_fused_optimizer_differs_from_a_foreach_optimizer():
    fused = FOREACH_ADD.replace("24BinaryOpListAlphaFunctorIf", "20FusedAdamMathFunctorIf")
    assert is_fused_optimizer(fused)
    assert not is_fused_optimizer(FOREACH_ADD)


@pytest.mark.parametrize(
    "name", ["CUDAFunctor_addIN3c108BFloat16EEE", "MulFunctorIN3c104HalfEEE", "cupy_tanh__float16_float16", "x_bf16_y"]
)
def test_kernels_of_16_bit_numbers_are_found_by_their_names(name):
    assert not is_wide_float(name)
    assert is_wide_float("CUDAFunctor_addIfE")
