"""The device ledger: copies, kernels, waits and API calls, recorded by CUPTI."""
