/* An NVML library without a driver: one GPU whose clock is limited by heat, on half of its PCIe lanes. */
#include <string.h>

static int device;

int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) { *handle = &device; return index ? 2 : 0; }
int nvmlDeviceGetName(void *handle, char *name, unsigned room) { strncpy(name, "Stand-in 1", room); return 0; }
int nvmlDeviceGetMaxClockInfo(void *handle, unsigned clock, unsigned *mhz) { *mhz = 2000; return 0; }
int nvmlDeviceGetClockInfo(void *handle, unsigned clock, unsigned *mhz) { *mhz = clock == 1 ? 1200 : 1; return 0; }
int nvmlDeviceGetMaxPcieLinkGeneration(void *handle, unsigned *value) { *value = 5; return 0; }
int nvmlDeviceGetMaxPcieLinkWidth(void *handle, unsigned *value) { *value = 16; return 0; }
int nvmlDeviceGetCurrPcieLinkGeneration(void *handle, unsigned *value) { *value = 5; return 0; }
int nvmlDeviceGetCurrPcieLinkWidth(void *handle, unsigned *value) { *value = 8; return 0; }
int nvmlDeviceGetEnforcedPowerLimit(void *handle, unsigned *milliwatts) { *milliwatts = 700000; return 0; }
int nvmlDeviceGetPowerUsage(void *handle, unsigned *milliwatts) { return 3; /* not supported */ }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *handle, unsigned long long *bits) { *bits = 0x40; return 0; }

int nvmlDeviceGetPcieThroughput(void *handle, unsigned direction, unsigned *kilobytes) {
    *kilobytes = direction ? 4000000 : 1000;
    return 0;
}

int nvmlDeviceGetUtilizationRates(void *handle, unsigned *rates) {
    rates[0] = 43;
    rates[1] = 7;
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *handle, unsigned long long *memory) {
    memory[0] = 80ULL << 30;
    memory[1] = 60ULL << 30;
    memory[2] = 20ULL << 30;
    return 0;
}
