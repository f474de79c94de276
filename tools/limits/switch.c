/*
 * switch.c - linked into every program and library of the copy that tools/limits builds.
 *
 * All processes of a test share a page of memory, the file that GPUSERVE_CHECKS names: the number
 * of the check that is switched off (-1: none), then a byte for each check, 1 once its condition
 * was met. It is opened before main(), so that a process that gives up its rights later still has
 * it.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct checks {
    volatile int32_t off;
    volatile unsigned char met[];
};

static struct checks *checks;
static size_t size_bytes;

static __attribute__((constructor)) void open_page(void)
{
    const char *path = getenv("GPUSERVE_CHECKS");
    struct stat info;
    int fd;

    if (!path || (fd = open(path, O_RDWR | O_CLOEXEC)) < 0)
        return;
    if (fstat(fd, &info) == 0) {
        void *map = mmap(NULL, (size_t)info.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

        if (map != MAP_FAILED) {
            checks = map;
            size_bytes = (size_t)info.st_size;
        }
    }
    close(fd);
}

/* A program may load and unload a library many times. */
static __attribute__((destructor)) void close_page(void)
{
    struct checks *const page = checks;

    checks = NULL;
    if (page)
        munmap(page, size_bytes);
}

/* The condition of check `number` is met: 1 when it is to refuse, 0 when it is switched off. */
int gsv_check_acts(int number) __attribute__((visibility("hidden")));

int gsv_check_acts(int number)
{
    struct checks *const page = checks;

    if (!page)
        return 1;
    page->met[number] = 1;
    return page->off != number;
}
