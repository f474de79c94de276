/*
 * offload.c - moves a net's weights from device memory to the host and back.
 *
 * The packed bytes are copied unchanged to host memory and back, to another device address. All
 * pointers into them are then rebased. The bytes of a pipeline's devices follow each other on the
 * host. No file is read, and nothing is packed or checked again.
 *
 * Threading: the caller ensures that no gsv_exec of the net exists.
 */
#include "lib/model/weights/weights.h"

#include "lib/base/alloc.h"

/* Bytes at net->memory: a mapped file ends after the last item or linear in use. */
static size_t bytes_in_memory(const struct gsv_net *net)
{
    const size_t mapped =
        net->mapped ? net->mapped_bytes - (size_t)(net->memory - net->mapped) : net->bytes;

    return mapped < net->bytes ? mapped : net->bytes;
}

static void drop_memory(struct gsv_net *net)
{
    for (int32_t i = 0; i < net->n_before; i++)
        drop_memory(net->before[i]);
    net->offloaded_from = net->memory;
    if (net->mapped)
        gsv_net_unmap(net);
    else
        net->backend->memory_free(net->device, net->memory);
    net->memory = NULL;
}

gpuserve_status gsv_net_offload(struct gsv_net *net, void *host, gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;
    char *to = host;

    for (int32_t i = 0; i < net->n_before && to && st == GPUSERVE_OK; i++) {
        const struct gsv_net *before = net->before[i];

        st = net->backend->memory_read(before->device, to, before->memory, before->bytes, error);
        to += before->bytes;
    }
    if (to && st == GPUSERVE_OK)
        st = net->backend->memory_read(net->device, to, net->memory, bytes_in_memory(net), error);
    if (st == GPUSERVE_OK)
        drop_memory(net);
    return st;
}

static void move(struct gsv_net *net)
{
    for (size_t i = 0; i < net->spec->n_items; i++) {
        net->addresses[i] = gsv_moved(net->addresses[i], net->offloaded_from, net->memory);
        if (net->linears[i])
            net->backend->linear_move(net->linears[i], net->offloaded_from, net->memory);
        if (net->recurrent[i])
            net->backend->lstm_layer_move(net->recurrent[i], net->offloaded_from, net->memory);
    }
    net->offloaded_from = NULL;
}

gpuserve_status gsv_net_reload(struct gsv_net *net, const void *host, gpuserve_error *error)
{
    const char *from = host;
    void *memory;
    gpuserve_status st = GPUSERVE_OK;

    for (int32_t i = 0; i < net->n_before && st == GPUSERVE_OK; i++) {
        st = gsv_net_reload(net->before[i], from, error);
        from += net->before[i]->bytes;
    }
    if (st == GPUSERVE_OK)
        st = net->backend->memory_alloc(net->device, &memory, net->bytes, error);
    if (st != GPUSERVE_OK)
        return st;
    st = net->backend->memory_write(net->device, memory, from, net->bytes, error);
    if (st != GPUSERVE_OK) {
        net->backend->memory_free(net->device, memory);
        return st;
    }
    net->memory = memory;
    move(net);
    return GPUSERVE_OK;
}
