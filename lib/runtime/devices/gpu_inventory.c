/*
 * gpu_inventory.c - queries the NVIDIA driver for its GPUs with a time limit.
 *
 * A GPU in a bad state can block any driver call for hours. A separate thread with its own memory
 * therefore makes the NVML calls. If it does not answer in time, the thread and its memory are
 * abandoned, and this library stays mapped for the rest of the process. If NVML fails, nvidia-smi
 * is tried.
 */
#define _GNU_SOURCE
#include "lib/runtime/devices/gpu_inventory.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#define TIMEOUT_SECONDS 3
#define THREAD_STACK_BYTES (1u << 20) /* mostly used by the driver's library */
#define MAX_MAPS_BYTES (1u << 20)
#define MAX_PCI_DEVICES 1024

struct gsv_gpu *gsv_gpus_add(struct gsv_gpus *gpus, int32_t index)
{
    struct gsv_gpu *gpu;

    if (gpus->n == GSV_MAX_GPUS)
        return NULL;
    gpu = &gpus->all[gpus->n++];
    memset(gpu, 0, sizeof(*gpu));
    gpu->index = index;
    gpu->instance = -1;
    gpu->load_percent = gpu->temperature_celsius = GSV_GPU_UNKNOWN;
    gpu->power_milliwatts = gpu->power_limit_milliwatts = GSV_GPU_UNKNOWN;
    gpu->capability = gpu->n_processes = GSV_GPU_UNKNOWN;
    return gpu;
}

int32_t gsv_gpus_find(const struct gsv_gpus *gpus, const char *uuid)
{
    const size_t prefix = strlen("GPU-");

    if (strlen(uuid) <= prefix)
        return -1;
    for (int32_t i = 0; i < gpus->n; i++) {
        if (strlen(gpus->all[i].uuid) > prefix &&
            strcasecmp(gpus->all[i].uuid + prefix, uuid + prefix) == 0)
            return i;
    }
    return -1;
}

/* ---------------------------------------------------------------------------------- processes */

/* Read the beginning of a file in /proc, NUL-terminated; returns its length. */
static size_t read_proc(int32_t pid, const char *file, char *text, size_t capacity)
{
    char path[64];
    size_t length = 0;
    ssize_t got = 1;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && got > 0 && length < capacity - 1) {
        got = read(fd, text + length, capacity - 1 - length);
        length += got > 0 ? (size_t)got : 0;
    }
    if (fd >= 0)
        close(fd);
    text[length] = '\0';
    return length;
}

static bool maps_our_library(int32_t pid)
{
    char *maps = malloc(MAX_MAPS_BYTES);
    bool found = false;

    if (maps && read_proc(pid, "maps", maps, MAX_MAPS_BYTES) > 0)
        found = strstr(maps, "/libgpuserve.so") != NULL;
    free(maps);
    return found;
}

void gsv_gpus_add_process(struct gsv_gpus *gpus, int32_t gpu, int32_t pid, uint64_t memory_bytes,
                          const char *name)
{
    struct gsv_gpu_process *process;

    if (gpus->n_processes == GSV_MAX_GPU_PROCESSES || pid <= 0)
        return;
    process = &gpus->processes[gpus->n_processes++];
    *process = (struct gsv_gpu_process){ .gpu = gpu, .pid = pid, .memory_bytes = memory_bytes };
    if (name)
        snprintf(process->name, sizeof(process->name), "%s", name);
    else
        read_proc(pid, "comm", process->name, sizeof(process->name));
    process->name[strcspn(process->name, "\n")] = '\0';
    process->is_gpuserve = maps_our_library(pid);
}

/* ------------------------------------------------------------------------------- query thread */

/* Shared by the calling thread and the query thread; the last one frees it. */
struct gpu_inventory_question {
    pthread_mutex_t lock;
    pthread_cond_t answered;
    bool detail, is_answered, is_abandoned;
    gpuserve_status status;
    gpuserve_error error;
    struct gsv_gpus *gpus;
};

static void question_free(struct gpu_inventory_question *question)
{
    pthread_cond_destroy(&question->answered);
    pthread_mutex_destroy(&question->lock);
    free(question->gpus);
    free(question);
}

static struct gpu_inventory_question *question_make(bool detail)
{
    struct gpu_inventory_question *question = gsv_alloc_array(1, sizeof(*question));
    pthread_condattr_t monotonic;

    if (!question)
        return NULL;
    pthread_mutex_init(&question->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&question->answered, &monotonic);
    pthread_condattr_destroy(&monotonic);
    question->detail = detail;
    question->error = (gpuserve_error)GPUSERVE_ERROR_INIT;
    question->gpus = gsv_alloc_array(1, sizeof(*question->gpus));
    if (question->gpus)
        return question;
    question_free(question);
    return NULL;
}

static void *answer(void *argument)
{
    struct gpu_inventory_question *question = argument;
    bool is_abandoned;

    question->status = gsv_nvml_read(question->gpus, question->detail, &question->error);
    pthread_mutex_lock(&question->lock);
    question->is_answered = true;
    is_abandoned = question->is_abandoned;
    pthread_cond_signal(&question->answered);
    pthread_mutex_unlock(&question->lock);
    if (is_abandoned)
        question_free(question);
    return NULL;
}

/* Start the thread with all signals blocked: they belong to the host program. */
static int start(pthread_t *thread, struct gpu_inventory_question *question)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    int failed;

    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, THREAD_STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(thread, &attributes, answer, question);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return failed;
}

/* True if the answer came in time. */
static bool wait_for_answer(struct gpu_inventory_question *question)
{
    struct timespec end;
    int result = 0;

    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += TIMEOUT_SECONDS;
    pthread_mutex_lock(&question->lock);
    while (!question->is_answered && result != ETIMEDOUT)
        result = pthread_cond_timedwait(&question->answered, &question->lock, &end);
    question->is_abandoned = !question->is_answered;
    result = question->is_answered;
    pthread_mutex_unlock(&question->lock);
    return result;
}

/* An abandoned thread still runs code of this library, which must stay mapped. */
static void stay_mapped(void)
{
    Dl_info info;

    if (dladdr((const void *)(uintptr_t)&answer, &info) && info.dli_fname)
        (void)dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

static gpuserve_status ask_nvml(struct gsv_gpus **gpus, bool detail, bool *hangs,
                                gpuserve_error *error)
{
    struct gpu_inventory_question *question = question_make(detail);
    pthread_t thread;
    gpuserve_status st;

    if (!question || start(&thread, question) != 0) {
        if (question)
            question_free(question);
        return gsv_fail(error, GPUSERVE_E_NOMEM,
                        "out of memory for the query of the NVIDIA driver");
    }
    if (!wait_for_answer(question)) {
        stay_mapped();
        pthread_detach(thread);
        *hangs = true;
        gsv_fail(error, GPUSERVE_E_DEVICE, "the NVIDIA driver did not answer within %d s",
                 TIMEOUT_SECONDS);
        return gsv_hint(error, GPUSERVE_E_DEVICE,
                        "a GPU hangs: check the kernel log (dmesg | grep -i xid), then reset the "
                        "GPU or restart the machine");
    }
    pthread_join(thread, NULL);
    st = question->status;
    gsv_error_copy(error, &question->error);
    if (st == GPUSERVE_OK) {
        *gpus = question->gpus;
        question->gpus = NULL;
    }
    question_free(question);
    return st;
}

gpuserve_status gsv_gpus_read(struct gsv_gpus **gpus, bool detail, bool *hangs,
                              gpuserve_error *error)
{
    struct gsv_gpus *own;
    gpuserve_status st, smi;

    *gpus = NULL;
    *hangs = false;
    st = ask_nvml(gpus, detail, hangs, error);
    if (st == GPUSERVE_OK || st == GPUSERVE_E_NOMEM || *hangs)
        return st;
    own = gsv_alloc_array(1, sizeof(*own));
    if (!own)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the list of GPUs");
    /* NVML's error message is kept: it says more than that of nvidia-smi. */
    smi = gsv_smi_read(own, detail, NULL);
    if (smi == GPUSERVE_OK) {
        *gpus = own;
        return GPUSERVE_OK;
    }
    *hangs = smi == GPUSERVE_E_TIMEOUT;
    free(own);
    return st;
}

/* ------------------------------------------------------------------------------ files of a root */

static bool begins(const struct gsv_rootfs *rootfs, const char *device, const char *file,
                   const char *prefix)
{
    char path[128], text[32];

    snprintf(path, sizeof(path), "/sys/bus/pci/devices/%.31s/%s", device, file);
    return gsv_rootfs_read(rootfs, path, text, sizeof(text)) > 0 &&
           strncmp(text, prefix, strlen(prefix)) == 0;
}

bool gsv_find_nvidia_pci(const struct gsv_rootfs *rootfs, char *address)
{
    struct gsv_names names;
    bool found = false;

    if (!gsv_rootfs_list(rootfs, "/sys/bus/pci/devices", "", MAX_PCI_DEVICES, &names))
        return false;
    for (size_t i = 0; i < names.n && !found; i++) {
        const char *const name = names.names[i];

        found = strlen(name) < GSV_PCI_ADDRESS_BYTES && begins(rootfs, name, "vendor", "0x10de") &&
                begins(rootfs, name, "class", "0x03");
        if (found)
            snprintf(address, GSV_PCI_ADDRESS_BYTES, "%s", name);
    }
    gsv_names_free(&names);
    return found;
}

bool gsv_has_nvidia_device(const char *root)
{
    static const char *const files[] = { "/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg",
                                         "/proc/driver/nvidia/version" };
    char address[GSV_PCI_ADDRESS_BYTES];
    struct gsv_rootfs rootfs;
    bool found;

    if (gsv_rootfs_open(&rootfs, root, NULL) != GPUSERVE_OK)
        return true;
    found = gsv_find_nvidia_pci(&rootfs, address);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]) && !found; i++)
        found = gsv_rootfs_find(&rootfs, files[i], NULL, NULL);
    gsv_rootfs_close(&rootfs);
    return found;
}
