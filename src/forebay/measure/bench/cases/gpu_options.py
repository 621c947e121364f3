"""Columns and options that GPU cases of `forebay bench` share."""

from forebay.measure.bench.model import ResultColumn

__all__ = ["CORES", "ENVIRONMENT", "RESIDENT", "SPEED", "STREAMED", "TIMEOUT_SECONDS"]

SPEED = ResultColumn("speed", "GB/s", "GB/s", ratio=True)
CORES = ResultColumn("cpu", "cores", "CPU cores")
# Seconds for each reply of a contender process. The default of `Case` is longer, because a CPU case permutes a billion
# rows.
TIMEOUT_SECONDS = 90.0

# All entries of a case share one GPU, so no framework may reserve all of its memory.
ENVIRONMENT = {
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # torch finds the GPU without starting CUDA, so loaders can fork workers
}
# "numbered": each row contains its row number, so that consumers can check the rows.
# "comparable": whether the rows are those of `data.make_array`.
# "leaf": the leaf of a batch that the consumer reads, if batches are dicts.
# "chooses_rows": whether an epoch may lack some rows of the source, or repeat rows.
# "resident": whether Forebay keeps the rows on the GPU; "never" makes it copy every batch.
# "to": the framework that receives the batches. Its consumer reads them, unless "consumer" names another one:
# "torch_bytes" sums all bytes of a batch. The consumer "driver" reads nothing.
STREAMED = {"environment": ENVIRONMENT, "numbered": True, "device": "cuda", "resident": "never"}
RESIDENT = {**STREAMED, "resident": "always", "consumer": "torch_bytes"}
