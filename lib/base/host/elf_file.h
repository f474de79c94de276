/*
 * elf_file.h - checks a shared object and reads its soname without loading it.
 */
#ifndef GSV_BASE_ELF_FILE_H
#define GSV_BASE_ELF_FILE_H

#include <stdbool.h>
#include <stddef.h>

#define GSV_SONAME_BYTES 128

/* Returns NULL if `fd` is a complete 64-bit shared object for this processor, else what is wrong
 * with it (static text). `soname` receives "libcuda.so.1", or "" if the file has none. */
const char *gsv_elf_check(int fd, char soname[GSV_SONAME_BYTES]);

/* Searches the file's first 256 MiB for `key` and copies what follows it, up to a NUL or
 * `capacity` - 1 bytes. `key` has at most 64 bytes. False if the key is not found. */
bool gsv_elf_find_text(int fd, const char *key, char *text, size_t capacity);

#endif
