/*
 * completions.c - an eventfd that counts the completed requests of a model, created on demand.
 *
 * The object is reference counted. Two threads may race to create the eventfd: a compare-and-swap
 * decides, and the loser closes its own.
 */
#define _GNU_SOURCE
#include "lib/runtime/scheduler/batcher.h"

#include "lib/base/alloc.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct gsv_completions *gsv_completions_create(void)
{
    struct gsv_completions *completions = gsv_alloc_array(1, sizeof(*completions));

    if (!completions)
        return NULL;
    atomic_init(&completions->n_owners, 1);
    atomic_init(&completions->fd, -1);
    return completions;
}

struct gsv_completions *gsv_completions_ref(struct gsv_completions *completions)
{
    atomic_fetch_add(&completions->n_owners, 1);
    return completions;
}

void gsv_completions_unref(struct gsv_completions **completions)
{
    struct gsv_completions *ended = *completions;
    int fd;

    *completions = NULL;
    if (!ended || atomic_fetch_sub(&ended->n_owners, 1) != 1)
        return;
    fd = atomic_load(&ended->fd);
    if (fd >= 0)
        close(fd);
    free(ended);
}

int gsv_completions_fd(struct gsv_completions *completions)
{
    int fd = atomic_load(&completions->fd), none = -1;

    if (fd >= 0)
        return fd;
    fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0 || atomic_compare_exchange_strong(&completions->fd, &none, fd))
        return fd;
    close(fd); /* another thread was first */
    return none;
}

void gsv_completions_notify(struct gsv_completions *completions)
{
    const int fd = atomic_load(&completions->fd);

    if (fd >= 0)
        eventfd_write(fd, 1); /* at 2^64 - 1 unread completions it fails and stays readable */
}
