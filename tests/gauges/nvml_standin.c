/* A stand-in for libnvidia-ml.so.1: the functions that frtop calls, with figures from a file.
 *
 * The file is named by NVML_STANDIN and read at each call: lines of a name and a value, such as
 * `count 2`, `0.power 96000`, `1.pids 77 78`. Instead of a number, `!3` makes the call return
 * the error 3 (NOT_SUPPORTED), and `hang` makes it never return. Nothing here knows a GPU.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { OK = 0, UNINITIALIZED = 1, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, TIMEOUT = 10 };
typedef struct { unsigned int pid; unsigned long long memory; unsigned int gpu, compute; } process;

static int opened;

/* Waits in state D, as in a driver: so does whoever has called vfork. SIGKILL still ends it. */
static void hang(void)
{
    if (!vfork()) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
}

/* The text behind a name, or an error's number. */
static int look(long gpu, const char *name, char *text, size_t size)
{
    char line[4096], key[128];
    FILE *file = fopen(getenv("NVML_STANDIN") ? getenv("NVML_STANDIN") : "", "r");
    int found = NOT_SUPPORTED;

    if (gpu < 0)
        snprintf(key, sizeof key, "%s ", name);
    else
        snprintf(key, sizeof key, "%ld.%s ", gpu, name);
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, key, strlen(key))) {
            snprintf(text, size, "%s", line + strlen(key));
            text[strcspn(text, "\n")] = 0;
            found = text[0] == '!' ? atoi(text + 1) : OK;
        }
    if (file)
        fclose(file);
    if (found == OK && !strcmp(text, "hang"))
        hang();
    return found;
}

static int number(long gpu, const char *name, unsigned long long *value)
{
    char text[64];
    int found = look(gpu, name, text, sizeof text);

    if (found == OK)
        *value = strtoull(text, NULL, 10);
    return found;
}

static int small(void *gpu, const char *name, unsigned int *value)
{
    unsigned long long found;
    int result = number((long)gpu - 1, name, &found);

    if (result == OK)
        *value = (unsigned int)found;
    return result;
}

int nvmlInitWithFlags(unsigned int flags)
{
    unsigned long long value;
    int result = number(-1, "init", &value);

    (void)flags;
    opened = result == OK || result == NOT_SUPPORTED;
    return opened ? OK : result;
}

int nvmlShutdown(void) { opened = 0; return OK; }

const char *nvmlErrorString(int error)
{
    return error == 9 ? "Driver Not Loaded" : error == 15 ? "GPU is lost" : "Not Supported";
}

int nvmlDeviceGetCount_v2(unsigned int *count)
{
    unsigned long long value;
    int result = opened ? number(-1, "count", &value) : UNINITIALIZED;

    if (result == OK)
        *count = (unsigned int)value;
    return result;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **gpu)
{
    *gpu = (void *)(long)(index + 1);
    return OK;
}

int nvmlDeviceGetUUID(void *gpu, char *text, unsigned int size)
{
    return look((long)gpu - 1, "uuid", text, size);
}

int nvmlDeviceGetName(void *gpu, char *text, unsigned int size)
{
    return look((long)gpu - 1, "name", text, size);
}

int nvmlDeviceGetUtilizationRates(void *gpu, unsigned int *rates)
{
    rates[1] = 0;
    return small(gpu, "utilization", rates);
}

int nvmlDeviceGetPowerUsage(void *gpu, unsigned int *value) { return small(gpu, "power", value); }

int nvmlDeviceGetEnforcedPowerLimit(void *gpu, unsigned int *value)
{
    return small(gpu, "limit", value);
}

int nvmlDeviceGetClockInfo(void *gpu, unsigned int kind, unsigned int *value)
{
    return kind == 1 ? small(gpu, "sm", value) : NOT_SUPPORTED;
}

int nvmlDeviceGetMaxClockInfo(void *gpu, unsigned int kind, unsigned int *value)
{
    return kind == 1 ? small(gpu, "sm_max", value) : NOT_SUPPORTED;
}

int nvmlDeviceGetTemperature(void *gpu, unsigned int sensor, unsigned int *value)
{
    return sensor == 0 ? small(gpu, "temperature", value) : NOT_SUPPORTED;
}

int nvmlDeviceGetIndex(void *gpu, unsigned int *index)
{
    *index = (unsigned int)((long)gpu - 1);
    return OK;
}

/* Events: a line `xids 3 79 0 31` has pairs of a GPU and an XID, each of which is told once. */
static unsigned int told;
typedef struct { void *gpu; unsigned long long kind, data; unsigned int instance, part; } event;

int nvmlEventSetCreate(void **set)
{
    *set = &told;
    return OK;
}

int nvmlDeviceRegisterEvents(void *gpu, unsigned long long kinds, void *set)
{
    unsigned int value;
    int result = small(gpu, "listen", &value);

    (void)set;
    return result == OK && !value ? NOT_SUPPORTED : kinds == 8 ? OK : NOT_SUPPORTED;
}

int nvmlEventSetWait_v2(void *set, event *found, unsigned int wait)
{
    char text[1024], *next = text, *end;
    unsigned int count = 0;

    (void)set, (void)wait;
    if (look(-1, "xids", text, sizeof text) != OK)
        return TIMEOUT;
    for (;; count++, next = end) {
        unsigned long gpu = strtoul(next, &end, 10), xid;

        if (end == next)
            return TIMEOUT;
        xid = strtoul(end, &end, 10);
        if (count == told) {
            told++;
            *found = (event){(void *)(gpu + 1), 8, xid, 0, 0};
            return OK;
        }
    }
}

int nvmlDeviceGetMemoryInfo(void *gpu, unsigned long long *memory)
{
    int total = number((long)gpu - 1, "total", memory), used;

    used = number((long)gpu - 1, "used", memory + 2);
    return total ? total : used;
}

int nvmlDeviceGetMigMode(void *gpu, unsigned int *current, unsigned int *pending)
{
    *pending = 0;
    return small(gpu, "mig", current);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *gpu, unsigned long long *bits)
{
    return number((long)gpu - 1, "throttle", bits);
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *gpu, unsigned int *count, process *list)
{
    char text[2048], *next = text, *end;
    unsigned int room = *count, found = 0;
    int result = look((long)gpu - 1, "pids", text, sizeof text);

    if (result != OK)
        return result;
    for (;; found++, next = end) {
        unsigned long pid = strtoul(next, &end, 10);

        if (end == next)
            break;
        if (found < room && list)
            list[found] = (process){(unsigned int)pid, 1 << 30, 0, 0};
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : OK;
}
