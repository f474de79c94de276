/*
 * elf_file.c - reads the header, the program headers and the dynamic section of a shared object.
 *
 * Every offset of the file is checked against the file's size before use; a file of any content
 * gives a result in bounded time.
 */
#define _GNU_SOURCE
#include "lib/base/host/rootfs.h"

#include "lib/base/error.h"
#include "lib/base/dir.h"

#include <elf.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_HEADERS 128
#define MAX_DYNAMIC 1024
#define MAX_SEARCH_BYTES (UINT64_C(256) << 20)
#define MAX_KEY_BYTES 64

#if defined(__aarch64__)
#define OWN_MACHINE EM_AARCH64
#else
#define OWN_MACHINE EM_X86_64
#endif

struct elf_view {
    int fd;
    uint64_t size_bytes;
    Elf64_Phdr headers[MAX_HEADERS];
    size_t n_headers;
};

static bool read_at(const struct elf_view *elf, void *to, size_t size, uint64_t offset)
{
    return offset <= elf->size_bytes && size <= elf->size_bytes - offset &&
           gsv_fd_read(elf->fd, to, size, offset, "", NULL) == GPUSERVE_OK;
}

static const char *read_headers(struct elf_view *elf)
{
    Elf64_Ehdr header;

    if (elf->size_bytes == 0)
        return "the file is empty";
    if (!read_at(elf, &header, sizeof(header), 0) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_type != ET_DYN)
        return "the file is not a shared object";
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != OWN_MACHINE)
        return "the file is for another processor";
    if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum > MAX_HEADERS ||
        !read_at(elf, elf->headers, header.e_phnum * sizeof(Elf64_Phdr), header.e_phoff))
        return "the file is truncated";
    elf->n_headers = header.e_phnum;
    for (size_t i = 0; i < elf->n_headers; i++) {
        const Elf64_Phdr *const part = &elf->headers[i];

        if (part->p_type == PT_LOAD &&
            (part->p_offset > elf->size_bytes || part->p_filesz > elf->size_bytes - part->p_offset))
            return "the file is truncated";
    }
    return NULL;
}

/* The file offset of an address; false if no segment of the file has it. */
static bool offset_of(const struct elf_view *elf, uint64_t address, uint64_t *offset)
{
    for (size_t i = 0; i < elf->n_headers; i++) {
        const Elf64_Phdr *const part = &elf->headers[i];

        if (part->p_type != PT_LOAD || address < part->p_vaddr ||
            address - part->p_vaddr >= part->p_filesz)
            continue;
        *offset = part->p_offset + (address - part->p_vaddr);
        return true;
    }
    return false;
}

/* Copies a NUL-terminated text of the file, cut at `capacity`. */
static void copy_text(const struct elf_view *elf, uint64_t offset, char *text, size_t capacity)
{
    size_t n = 0;

    while (n + 1 < capacity && read_at(elf, text + n, 1, offset + n) && text[n] != '\0')
        n++;
    text[n] = '\0';
}

/* Leaves `soname` empty if the file has none or its tables are damaged. */
static void read_soname(const struct elf_view *elf, const Elf64_Phdr *dynamic,
                        char soname[GSV_SONAME_BYTES])
{
    uint64_t name = 0, strings = 0, offset;
    bool has_name = false, has_strings = false;
    Elf64_Dyn entry;

    for (uint64_t i = 0; i < MAX_DYNAMIC && i < dynamic->p_filesz / sizeof(entry); i++) {
        if (!read_at(elf, &entry, sizeof(entry), dynamic->p_offset + i * sizeof(entry)) ||
            entry.d_tag == DT_NULL)
            break;
        if (entry.d_tag == DT_SONAME) {
            name = entry.d_un.d_val;
            has_name = true;
        } else if (entry.d_tag == DT_STRTAB) {
            strings = entry.d_un.d_ptr;
            has_strings = true;
        }
    }
    if (!has_name || !has_strings || !offset_of(elf, strings, &offset) ||
        __builtin_add_overflow(offset, name, &offset))
        return;
    copy_text(elf, offset, soname, GSV_SONAME_BYTES);
}

const char *gsv_elf_check(int fd, char soname[GSV_SONAME_BYTES])
{
    struct elf_view elf = { .fd = fd };
    struct stat info;
    const char *fault;

    soname[0] = '\0';
    if (fstat(fd, &info) != 0 || info.st_size < 0)
        return "the file cannot be read";
    elf.size_bytes = (uint64_t)info.st_size;
    fault = read_headers(&elf);
    for (size_t i = 0; !fault && i < elf.n_headers; i++) {
        if (elf.headers[i].p_type == PT_DYNAMIC && elf.headers[i].p_offset <= elf.size_bytes)
            read_soname(&elf, &elf.headers[i], soname);
    }
    return fault;
}

bool gsv_elf_find_text(int fd, const char *key, char *text, size_t capacity)
{
    struct elf_view elf = { .fd = fd };
    const size_t length = strlen(key);
    char block[16384];
    struct stat info;

    if (length > MAX_KEY_BYTES || fstat(fd, &info) != 0 || info.st_size < 0)
        return false;
    elf.size_bytes = (uint64_t)info.st_size;
    for (uint64_t at = 0; at < elf.size_bytes && at < MAX_SEARCH_BYTES;
         at += sizeof(block) - MAX_KEY_BYTES) {
        const uint64_t left = elf.size_bytes - at;
        const size_t size = left < sizeof(block) ? (size_t)left : sizeof(block);
        const char *found;

        if (!read_at(&elf, block, size, at))
            return false;
        found = memmem(block, size, key, length);
        if (found) {
            copy_text(&elf, at + (uint64_t)(found - block) + length, text, capacity);
            return true;
        }
    }
    return false;
}
