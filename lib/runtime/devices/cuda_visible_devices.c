/*
 * cuda_visible_devices.c - parses CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER as CUDA does.
 *
 * The rules follow the CUDA programming guide and the driver's behaviour: words are read like
 * strtoul does ("1gpu" is 1), and a negative number ends the list.
 */
#include "lib/runtime/devices/cuda_devices.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static bool is_whole(const struct gsv_gpu *gpu)
{
    return gpu->instance < 0 && !gpu->is_lost;
}

/* The whole GPUs in CUDA's order without CUDA_VISIBLE_DEVICES. FASTEST_FIRST puts the fastest first
 * and keeps the others in bus order; the highest compute capability is a guess at the fastest. */
static int32_t cuda_order(const struct gsv_gpus *gpus, bool by_bus, int32_t order[], bool *is_exact)
{
    int32_t n = 0, fastest = 0;

    for (int32_t i = 0; i < gpus->n; i++) {
        if (is_whole(&gpus->all[i]))
            order[n++] = i;
    }
    for (int32_t i = 1; i < n && !by_bus; i++) {
        if (gpus->all[order[i]].capability > gpus->all[order[fastest]].capability)
            fastest = i;
        if (strcmp(gpus->all[order[i]].name, gpus->all[order[0]].name) != 0)
            *is_exact = false;
    }
    for (; fastest > 0; fastest--) {
        const int32_t other = order[fastest - 1];

        order[fastest - 1] = order[fastest];
        order[fastest] = other;
    }
    return n;
}

/* A GPU in MIG mode stands for its first MIG device; without one it is unusable. */
static int32_t usable(const struct gsv_gpus *gpus, int32_t gpu)
{
    if (!gpus->all[gpu].mig_mode)
        return gpu;
    for (int32_t i = 0; i < gpus->n; i++) {
        if (gpus->all[i].instance == 0 && gpus->all[i].index == gpus->all[gpu].index)
            return i;
    }
    return -1;
}

/* The only GPU whose UUID starts with the word; -1 for none or several. */
static int32_t find_uuid(const struct gsv_gpus *gpus, const char *word, size_t length)
{
    int32_t found = -1;

    for (int32_t i = 0; i < gpus->n; i++) {
        if (gpus->all[i].is_lost || strncasecmp(gpus->all[i].uuid, word, length) != 0)
            continue;
        if (found >= 0)
            return -1;
        found = i;
    }
    return found >= 0 ? usable(gpus, found) : -1;
}

static int32_t find_number(const struct gsv_gpus *gpus, const int32_t order[], int32_t n,
                           const char *word, size_t length)
{
    size_t at = length > 0 && word[0] == '+';
    const size_t begin = at;
    int32_t number = 0;

    for (; at < length && word[at] >= '0' && word[at] <= '9'; at++) {
        if (number < n)
            number = number * 10 + (word[at] - '0');
    }
    return at > begin && number < n ? usable(gpus, order[number]) : -1;
}

/* Append a GPU. No GPU is appended twice, so the capacity suffices; a repeated one empties the
 * list. */
static bool add(struct gsv_visible *visible, int32_t gpu)
{
    for (int32_t i = 0; i < visible->n; i++) {
        if (visible->gpus[i] == gpu) {
            visible->repeated = true;
            visible->n = 0;
            return false;
        }
    }
    visible->gpus[visible->n++] = gpu;
    return true;
}

static void read_list(struct gsv_visible *visible, const struct gsv_gpus *gpus, const char *list,
                      const int32_t order[], int32_t n)
{
    const bool by_uuid = strncmp(list, "GPU-", 4) == 0 || strncmp(list, "MIG-", 4) == 0;
    const char *const kind = list;

    for (;;) {
        const char *word = list + strspn(list, " \t");
        const size_t whole = strcspn(word, ","), length = strcspn(word, ", \t");
        int32_t gpu;

        if (by_uuid) /* UUIDs and numbers are not mixed */
            gpu = strncmp(word, kind, 4) == 0 ? find_uuid(gpus, word, length) : -1;
        else
            gpu = find_number(gpus, order, n, word, length);
        if (gpu < 0) {
            snprintf(visible->stopped, sizeof(visible->stopped), "%.*s", (int)whole, word);
            return;
        }
        if (!add(visible, gpu) || word[whole] == '\0')
            return;
        list = word + whole + 1;
    }
}

void gsv_visible_resolve(struct gsv_visible *visible, const struct gsv_gpus *gpus,
                         const char *devices, const char *order)
{
    const bool by_bus = order && strcmp(order, "PCI_BUS_ID") == 0;
    int32_t in_order[GSV_MAX_GPUS];
    int32_t n;

    memset(visible, 0, sizeof(*visible));
    visible->is_exact = true;
    n = cuda_order(gpus, by_bus, in_order, &visible->is_exact);
    for (int32_t i = 0; i < gpus->n; i++)
        visible->is_exact = visible->is_exact && !gpus->all[i].mig_mode;
    if (devices && *devices)
        read_list(visible, gpus, devices, in_order, n);
    for (int32_t i = 0; !devices && i < n; i++) {
        const int32_t gpu = usable(gpus, in_order[i]);

        if (gpu >= 0)
            add(visible, gpu);
    }
}
