"""Estimated bytes of kernels, compared with the known sizes of the arrays in recorded scripts."""

import pytest
from tests.doctor.rules.device_faults import ADD, ADD16
from tests.support.paths import DOCTOR

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.kernel_bytes import bytes_per_block
from forebay.doctor.analyse.kernel_kinds import KernelKind
from forebay.doctor.analyse.memory_work import find_memory_work
from forebay.doctor.model.capture import Capture

LATER, EARLIER = (2, 11), (2, 5)  # versions of PyTorch
RELU_BACKWARD = (
    "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_13BinaryFunctorIfffZNS0_67_GLOBAL__N__06c19b41_28_Activation"
    "ThresholdKernel_cu_751192d7_1581121threshold_kernel_implIfEEvRNS_18TensorIteratorBaseET_S7_EUlffE_EE"
    "St5arrayIPcLm3EEEEviT0_T1_"
)
CAST = (
    "_ZN2at6native27unrolled_elementwise_kernelIZZZNS0_23direct_copy_kernel_cudaERNS_18TensorIteratorBaseEENKUlvE1_cl"
    "EvENKUlvE5_clEvEUlfE_St5arrayIPcLm2EELi4E23TrivialOffsetCalculatorILi1EjESB_NS0_6memory12LoadWithCastILi1EEE"
)
STRIDED_ADD = (
    "_ZN2at6native18elementwise_kernelILi128ELi2EZNS0_22gpu_kernel_impl_nocastINS0_15CUDAFunctor_addIfEEEEvRNS_18Tensor"
)
STRIDED_COPY = (
    "_ZN2at6native18elementwise_kernelILi128ELi2EZNS0_22gpu_kernel_impl_nocastIZZZNS0_23direct_copy_kernel_cudaERNS_18"
    "TensorIteratorBaseEENKUlvE1_clEvENKUlvE5_clEvEUlfE_EEvS4_RKT_EUliE_EEviT1_"
)
FOREACH_ADD = (
    "_ZN2at6native55_GLOBAL__N__d25d856e_22_ForeachBinaryOpList_cu_a911ec4325multi_tensor_apply_kernelI"
    "NS1_18TensorListMetadataILi2EEENS1_24BinaryOpListAlphaFunctorIfLi2ELi2ELi0EEEJSt4plusIfEfEEEvT_T0_DpT1_"
)
FOREACH_DIVIDE = (
    "_ZN2at6native61_GLOBAL__N__538ad94b_28_ForeachBinaryOpScalarList_cu_dda10a6925multi_tensor_apply_kernelI"
    "NS1_28TensorListScalarListMetadataIfLi1EEENS1_25BinaryOpScalarListFunctorIfLi1ELi1ELi0EEEJSt7dividesIfEEEEvT_T0_"
)
SQUARE = 4096 * 4096  # numbers in each array of the script torch/resident


@pytest.mark.parametrize(
    ("name", "blocks", "nbytes"),
    [
        (RELU_BACKWARD, 16_384, 3 * 4 * SQUARE),
        (ADD, 16_384, 3 * 4 * SQUARE),
        (CAST, 32_768, 2 * 4 * SQUARE),
        (STRIDED_ADD, 65_536, 3 * 4 * SQUARE),
        (STRIDED_COPY, 65_536, 2 * 4 * SQUARE),
        (FOREACH_ADD, 256, 3 * 4 * SQUARE),
        (FOREACH_DIVIDE, 256, 2 * 4 * SQUARE),
        (ADD16, 16_384, 3 * 2 * SQUARE),
        ("cupy_add__float32_float32_float32", SQUARE // 128, 3 * 4 * SQUARE),
        ("cupy_multiply__float32_float_float32", SQUARE // 128, 2 * 4 * SQUARE),
        ("cupy_isfinite__float64_bool", SQUARE // 128, 9 * SQUARE),
    ],
)
def test_the_estimated_bytes_of_all_blocks_equal_the_bytes_of_the_arrays(name, blocks, nbytes):
    assert bytes_per_block(name, 128, LATER) * blocks == nbytes


def test_vectorized_kernels_of_earlier_versions_of_pytorch_have_no_estimate():
    assert bytes_per_block(ADD, 128, EARLIER) is None


@pytest.mark.parametrize("name", ["", "damp", "loop_add_fusion", "Mul_GPU_DT_FLOAT_DT_FLOAT_kernel", "St5arrayIPcLm3E"])
def test_kernels_with_unknown_names_have_no_estimate(name):
    assert bytes_per_block(name, 128, LATER) is None


def work_of(name):
    view = CaptureView(Capture.load(DOCTOR / "recorded" / f"{name}.gz"))
    return find_memory_work(view, view.device)


LARGE_KERNELS = ["torch/resident", "torch/overlap", "torch/read_back", "faults/torch/low_occupancy_healthy"]


@pytest.mark.parametrize("name", LARGE_KERNELS)
def test_recorded_kernels_reach_70_to_100_percent_of_the_bandwidth_of_an_h200(name):
    """The kernels of these scripts are elementwise and large. Wrong sizes would double or halve the bandwidth."""
    assert 0.7 < work_of(name).bytes_per_second / 4.8e12 < 1.0


def test_steps_of_convolutions_and_normalisations_spend_most_time_on_memory():
    work = work_of("torch/loader_convolutions_cured")
    assert work.share == pytest.approx(0.65, abs=0.02)
    assert next(iter(work.seconds_by_kind)) is KernelKind.NORMALISATION
    assert 0.2 < work.known_share < 0.3  # normalisations and changes of the layout have no estimate


def test_a_step_of_large_products_spends_little_time_on_memory():
    assert work_of("torch/resident").share < 0.3
