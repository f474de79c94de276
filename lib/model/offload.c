/*
 * offload.c - offloads a net's weights from device memory and reloads them.
 *
 * The packed bytes are copied unchanged to host memory and back, to another device address. All
 * pointers into them are then rebased. No file is read, and nothing is packed or checked again.
 *
 * Threading: the caller ensures that no gsv_exec of the net exists.
 */
#include "lib/model/weights.h"

#include "lib/base/alloc.h"

gpuserve_status gsv_net_offload(struct gsv_net *net, void *host, gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;

    if (host)
        st = net->backend->memory_read(net->device, host, net->memory, net->bytes, error);
    if (st != GPUSERVE_OK)
        return st;
    net->backend->memory_free(net->device, net->memory);
    net->offloaded_from = net->memory;
    net->memory = NULL;
    return GPUSERVE_OK;
}

static void move(struct gsv_net *net)
{
    for (size_t i = 0; i < net->spec->n_items; i++) {
        net->places[i] = gsv_moved(net->places[i], net->offloaded_from, net->memory);
        if (net->linears[i])
            net->backend->linear_move(net->linears[i], net->offloaded_from, net->memory);
    }
    net->offloaded_from = NULL;
}

gpuserve_status gsv_net_reload(struct gsv_net *net, const void *host, gpuserve_error *error)
{
    void *memory;
    gpuserve_status st = net->backend->memory_alloc(net->device, &memory, net->bytes, error);

    if (st != GPUSERVE_OK)
        return st;
    st = net->backend->memory_write(net->device, memory, host, net->bytes, error);
    if (st != GPUSERVE_OK) {
        net->backend->memory_free(net->device, memory);
        return st;
    }
    net->memory = memory;
    move(net);
    return GPUSERVE_OK;
}
