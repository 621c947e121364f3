// Stands in for libcupti: passes given records to the registered callbacks, in buffers that the callbacks provide.

#include <stdint.h>
#include <string.h>

static void (*requested)(uint8_t**, size_t*, size_t*);
static void (*completed)(void*, uint32_t, uint8_t*, size_t, size_t);
static const uint8_t* records;
static size_t records_nbytes, sizes[64], dropped;
static int refusing, silenced, detached;

void stand_in_records(const uint8_t* given, size_t nbytes) { records = given; records_nbytes = nbytes; }
void stand_in_size(uint32_t kind, size_t nbytes) { sizes[kind] = nbytes; }
void stand_in_refuse(int code) { refusing = code; }
int stand_in_silenced(void) { return silenced; }
int stand_in_detached(void) { return detached; }

int cuptiActivityRegisterCallbacks(void* ask, void* give) { requested = ask; completed = give; return refusing; }
int cuptiActivityEnable(int kind) { (void)kind; return 0; }
int cuptiActivityDisable(int kind) { (void)kind; return 0; }
int cuptiActivityEnableRuntimeApi(uint32_t call, uint8_t on) { (void)call; silenced += !on; return 0; }
int cuptiActivityEnableDriverApi(uint32_t call, uint8_t on) { (void)call; silenced += !on; return 0; }
int cuptiFinalize(void) { detached++; return 0; }
int cuptiGetVersion(uint32_t* version) { *version = 26; return 0; }
int cuptiGetResultString(int code, const char** text) { (void)code; *text = "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS"; return 0; }

int cuptiGetTimestamp(uint64_t* now) {
    static uint64_t time = 0;
    *now = time;
    time += 1000;
    return 0;
}

int cuptiActivityFlushAll(uint32_t flag) {
    (void)flag;
    size_t at = 0;
    while (at < records_nbytes) {
        uint8_t* buffer;
        size_t nbytes, most, used = 0;
        requested(&buffer, &nbytes, &most);
        while (buffer && at < records_nbytes) {
            uint32_t kind;
            memcpy(&kind, records + at, 4);
            if (used + sizes[kind] > nbytes) break;
            memcpy(buffer + used, records + at, sizes[kind]);
            used += sizes[kind];
            at += sizes[kind];
        }
        if (!buffer) { dropped++; break; }
        completed(0, 0, buffer, nbytes, used);
    }
    return 0;
}

int cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid, uint8_t** record) {
    uint32_t kind;
    size_t at = 0;
    if (*record) {
        memcpy(&kind, *record, 4);
        at = (size_t)(*record - buffer) + sizes[kind];
    }
    if (at >= valid) return 12;  // CUPTI_ERROR_MAX_LIMIT_REACHED
    *record = buffer + at;
    return 0;
}

int cuptiActivityGetNumDroppedRecords(void* context, uint32_t stream, size_t* count) {
    (void)context; (void)stream;
    *count = dropped;
    return 0;
}
