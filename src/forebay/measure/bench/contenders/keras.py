"""Keras's own adapter for arrays, used without `fit`."""

from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter

from forebay.measure.bench.data import make_array
from forebay.measure.bench.model import StartEpoch, Workload

__all__ = ["array_adapter"]


def array_adapter(work: Workload) -> StartEpoch:
    """Iterate the adapter that `fit` uses for arrays. It gathers each batch in one operation."""
    dataset = ArrayDataAdapter(make_array(work), batch_size=work.batch, shuffle=True).get_tf_dataset()
    return lambda: dataset
