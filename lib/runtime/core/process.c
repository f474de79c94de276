/*
 * process.c - the GNU build id of this library, and the fork check.
 */
#define _GNU_SOURCE /* dl_iterate_phdr */

#include "lib/runtime/core/process.h"

#include "lib/base/error.h"

#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/*
 * Reads the build id from the notes of the loaded object.
 */

struct build_id {
    unsigned char *bytes;
    size_t capacity, size;
};

static const char inside_this_object = 0;

static size_t padded(uint32_t size)
{
    return ((size_t)size + 3) & ~(size_t)3;
}

static void read_notes(struct build_id *id, const char *notes, size_t size)
{
    ElfW(Nhdr) note;

    for (size_t at = 0; size - at >= sizeof(note);) {
        size_t name, whole;

        memcpy(&note, notes + at, sizeof(note));
        name = sizeof(note) + padded(note.n_namesz);
        whole = name + padded(note.n_descsz);
        if (whole > size - at)
            return;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof(ELF_NOTE_GNU) &&
            memcmp(notes + at + sizeof(note), ELF_NOTE_GNU, sizeof(ELF_NOTE_GNU)) == 0 &&
            note.n_descsz <= id->capacity) {
            memcpy(id->bytes, notes + at + name, note.n_descsz);
            id->size = note.n_descsz;
        }
        at += whole;
    }
}

static bool holds_this_code(const struct dl_phdr_info *info)
{
    const uintptr_t address = (uintptr_t)&inside_this_object;

    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        const uintptr_t begin = info->dlpi_addr + part->p_vaddr;

        if (part->p_type == PT_LOAD && address >= begin && address - begin < part->p_memsz)
            return true;
    }
    return false;
}

static int visit(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size;
    if (!holds_this_code(info))
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];

        if (part->p_type == PT_NOTE)
            read_notes(user, (const char *)(info->dlpi_addr + part->p_vaddr), part->p_memsz);
    }
    return 1;
}

size_t gsv_build_id(unsigned char *bytes, size_t capacity)
{
    struct build_id id = { .bytes = bytes, .capacity = capacity };

    dl_iterate_phdr(visit, &id);
    return id.size;
}

/*
 * Detects that the process is a fork() child of the one that created a handle.
 *
 * Uses a page with MADV_WIPEONFORK; falls back to the process id where madvise() rejects it, or
 * accepts anything and does nothing: QEMU's user mode does.
 */

#define NO_ADVICE (-1) /* no kernel accepts it */

gpuserve_status gsv_fork_check_init(struct gsv_fork_check *fork_check, gpuserve_error *error)
{
    const size_t size = (size_t)sysconf(_SC_PAGESIZE);
    void *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    fork_check->word = NULL;
    fork_check->maker = getpid();
    if (page == MAP_FAILED)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a page");
    if (madvise(page, size, NO_ADVICE) == 0 || madvise(page, size, MADV_WIPEONFORK) != 0) {
        munmap(page, size);
        return GPUSERVE_OK;
    }
    fork_check->word = page;
    *fork_check->word = 1;
    return GPUSERVE_OK;
}

void gsv_fork_check_reset(struct gsv_fork_check *fork_check)
{
    if (fork_check->word)
        munmap((void *)fork_check->word, (size_t)sysconf(_SC_PAGESIZE));
    fork_check->word = NULL;
}

gpuserve_status gsv_fail_forked(gpuserve_error *error)
{
    gsv_fail(error, GPUSERVE_E_FORKED, "the parent process created this handle before fork()");
    return gsv_hint(error, GPUSERVE_E_FORKED, "create the context and open the model in the child");
}
