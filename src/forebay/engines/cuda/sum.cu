// Reads a range of memory once and adds the sum of its 64-bit words to `total`. The sum wraps around.

typedef unsigned long long ulong64;

struct SumJob {
    const ulonglong2* pairs;    // pairs of words
    ulong64 count;              // number of pairs
    ulong64* total;
};

extern "C" __global__ void sum_words(SumJob job) {
    ulong64 sum = 0, step = (ulong64)gridDim.x * blockDim.x, at = (ulong64)blockIdx.x * blockDim.x + threadIdx.x;
    for (; at + 3 * step < job.count; at += 4 * step) {  // keep several reads in flight
        ulonglong2 held[4];
        #pragma unroll
        for (int k = 0; k < 4; k++) held[k] = job.pairs[at + k * step];
        #pragma unroll
        for (int k = 0; k < 4; k++) sum += held[k].x + held[k].y;
    }
    for (; at < job.count; at += step) sum += job.pairs[at].x + job.pairs[at].y;
    for (int lanes = 16; lanes; lanes /= 2) sum += __shfl_down_sync(~0u, sum, lanes);
    if (threadIdx.x % 32 == 0) atomicAdd(job.total, sum);
}
