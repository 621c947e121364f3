// An empty kernel, to measure the time of a launch. Its argument is unused: `Kernel.launch` passes one struct to every
// kernel.

struct EmptyJob {
    int unused;
};

extern "C" __global__ void do_nothing(EmptyJob job) {}
