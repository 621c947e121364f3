"""The device ledger: copies, kernels, waits and CUDA calls that CUPTI records."""
