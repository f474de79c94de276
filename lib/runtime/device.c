/*
 * device.c - from a selector to a device.
 *
 * The CPU's backend is compiled in; the GPU's comes from a plugin (plugin.c). An explicit device
 * that cannot be had is an error; `auto` falls to the CPU and keeps the reason.
 */
#include "lib/runtime/device.h"

#include "kernels/kernels.h"
#include "lib/base/error.h"
#include "lib/runtime/context.h"
#include "lib/runtime/structs.h"

#include <stdio.h>
#include <string.h>

gpuserve_status gsv_device_cuda(gpuserve_context *context, const struct gpuserve_backend **backend,
                                int32_t *count, gpuserve_error *error)
{
    gpuserve_status st;

    *backend = NULL;
    *count = 0;
    pthread_mutex_lock(&context->lock);
    st = gsv_plugin_load(&context->cuda, error);
    if (st == GPUSERVE_OK)
        *backend = context->cuda.backend;
    pthread_mutex_unlock(&context->lock);
    if (st != GPUSERVE_OK)
        return st;
    st = (*backend)->device_count(count, error);
    if (st == GPUSERVE_OK && *count < 1)
        st = gsv_fail(error, GPUSERVE_E_DEVICE, "the CUDA backend works but finds no device");
    return st;
}

static gpuserve_status read_facts(struct gsv_device_choice *choice, int32_t index,
                                  gpuserve_error *error)
{
    memset(&choice->facts, 0, sizeof(choice->facts));
    choice->facts.struct_size = sizeof(choice->facts);
    return choice->backend->device_facts(index, &choice->facts, error);
}

static gpuserve_status choose_cpu(struct gsv_device_choice *choice, gpuserve_error *error)
{
    choice->backend = gsv_backend_cpu();
    choice->is_cpu = true;
    return read_facts(choice, 0, error);
}

static gpuserve_status choose_cuda(gpuserve_context *context, int32_t index,
                                   struct gsv_device_choice *choice, gpuserve_error *error)
{
    int32_t count;
    gpuserve_status st = gsv_device_cuda(context, &choice->backend, &count, error);

    if (st != GPUSERVE_OK)
        return st;
    choice->is_cpu = false;
    if (index >= count) {
        gsv_fail(error, GPUSERVE_E_DEVICE, "cuda:%d: there %s %d, from cuda:0 to cuda:%d", index,
                 count == 1 ? "is" : "are", count, count - 1);
        return gsv_hint(error, GPUSERVE_E_DEVICE,
                        "`gpuserve devices` lists them; CUDA_VISIBLE_DEVICES may hide some");
    }
    return read_facts(choice, index, error);
}

static gpuserve_status choose_auto(gpuserve_context *context, struct gsv_device_choice *choice,
                                   gpuserve_error *error)
{
    gpuserve_error why = GPUSERVE_ERROR_INIT;
    gpuserve_status st = choose_cuda(context, 0, choice, &why);

    choice->was_auto = true;
    if (st == GPUSERVE_OK) {
        snprintf(choice->reason, sizeof(choice->reason), "the first CUDA device works");
        return GPUSERVE_OK;
    }
    snprintf(choice->reason, sizeof(choice->reason), "no GPU: %.480s", why.message);
    gsv_log(context, GPUSERVE_LOG_INFO, "device auto: the CPU, %s", choice->reason);
    return choose_cpu(choice, error);
}

/* "cuda:N"; false when it is no number of up to six digits. */
static bool parse_index(const char *digits, int32_t *index)
{
    const size_t n = strspn(digits, "0123456789");

    if (n == 0 || n > 6 || digits[n] != '\0')
        return false;
    *index = 0;
    for (size_t i = 0; i < n; i++)
        *index = *index * 10 + (digits[i] - '0');
    return true;
}

gpuserve_status gsv_device_choose(gpuserve_context *context, const char *selector,
                                  struct gsv_device_choice *choice, gpuserve_error *error)
{
    int32_t index = 0;

    memset(choice, 0, sizeof(*choice));
    if (!selector || strcmp(selector, "auto") == 0)
        return choose_auto(context, choice, error);
    snprintf(choice->reason, sizeof(choice->reason), "asked for");
    if (strcmp(selector, "cpu") == 0)
        return choose_cpu(choice, error);
    if (strcmp(selector, "cuda") == 0 ||
        (strncmp(selector, "cuda:", 5) == 0 && parse_index(selector + 5, &index)))
        return choose_cuda(context, index, choice, error);
    gsv_fail(error, GPUSERVE_E_INVALID, "\"%s\" is no device", selector);
    return gsv_hint(error, GPUSERVE_E_INVALID, "say \"auto\", \"cpu\", \"cuda\" or \"cuda:N\"");
}

void gsv_device_selector(const struct gsv_device_choice *choice, char *selector, size_t capacity)
{
    if (choice->is_cpu)
        snprintf(selector, capacity, "cpu");
    else
        snprintf(selector, capacity, "%s:%d", choice->backend->name, choice->facts.index);
}

static void fill_info(const struct gsv_device_choice *choice, gpuserve_device_info *info)
{
    const struct gpuserve_device_facts *facts = &choice->facts;

    info->index = facts->index;
    gsv_device_selector(choice, info->selector, sizeof(info->selector));
    snprintf(info->name, sizeof(info->name), "%s", facts->name);
    snprintf(info->uuid, sizeof(info->uuid), "%s", facts->uuid);
    snprintf(info->isa, sizeof(info->isa), "%s", facts->isa);
    info->memory_bytes = facts->memory_bytes;
    info->memory_free_bytes = facts->memory_free_bytes;
    info->n_cores = facts->n_cores;
    info->reserved = 0;
}

/* Element `i` of the caller's array, whose elements are as large as their struct_size says. */
static gpuserve_device_info *element(gpuserve_device_info *devices, size_t i)
{
    return (gpuserve_device_info *)(void *)((char *)devices + i * devices->struct_size);
}

static void put_info(gpuserve_device_info *devices, size_t capacity, size_t i,
                     const struct gsv_device_choice *choice)
{
    if (i >= capacity)
        return;
    element(devices, i)->struct_size = devices->struct_size;
    fill_info(choice, element(devices, i));
}

GPUSERVE_API gpuserve_status gpuserve_device_list(gpuserve_context *context,
                                                  gpuserve_device_info *devices, size_t capacity,
                                                  size_t *n, gpuserve_error *error)
{
    struct gsv_device_choice choice;
    int32_t n_cuda = 0;
    gpuserve_status st = gsv_context_check(context, error);

    if (st != GPUSERVE_OK)
        return st;
    if (!n)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`n` is NULL");
    if (capacity > 0)
        st = gsv_check_struct(devices, sizeof(*devices), "gpuserve_device_info", error);
    if (st == GPUSERVE_OK)
        st = gsv_device_choose(context, "cpu", &choice, error);
    if (st != GPUSERVE_OK)
        return st;
    put_info(devices, capacity, 0, &choice);
    *n = 1;
    if (gsv_device_cuda(context, &choice.backend, &n_cuda, NULL) != GPUSERVE_OK)
        return GPUSERVE_OK;
    for (int32_t i = 0; i < n_cuda; i++) {
        if (choose_cuda(context, i, &choice, NULL) != GPUSERVE_OK)
            continue;
        put_info(devices, capacity, *n, &choice);
        ++*n;
    }
    return GPUSERVE_OK;
}

GPUSERVE_API gpuserve_status gpuserve_device_select(gpuserve_context *context, const char *selector,
                                                    gpuserve_device_info *device, char *reason,
                                                    size_t reason_bytes, gpuserve_error *error)
{
    struct gsv_device_choice choice;
    gpuserve_status st = gsv_context_check(context, error);

    if (st == GPUSERVE_OK)
        st = gsv_check_struct(device, sizeof(*device), "gpuserve_device_info", error);
    if (st == GPUSERVE_OK && !reason && reason_bytes > 0)
        st = gsv_fail(error, GPUSERVE_E_INVALID, "`reason` is NULL but reason_bytes is not 0");
    if (st == GPUSERVE_OK)
        st = gsv_device_choose(context, selector, &choice, error);
    if (st != GPUSERVE_OK)
        return st;
    fill_info(&choice, device);
    if (reason_bytes > 0)
        snprintf(reason, reason_bytes, "%s", choice.reason);
    return GPUSERVE_OK;
}
