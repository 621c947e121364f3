"""The device ledger: copies, kernels, waits and calls as the GPU itself saw them, through CUPTI."""
