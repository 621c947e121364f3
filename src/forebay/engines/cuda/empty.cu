// An empty kernel, to measure the time of a launch. `Kernel.launch` passes one struct to every kernel.

struct EmptyJob {
    int unused;
};

extern "C" __global__ void do_nothing(EmptyJob job) {}
