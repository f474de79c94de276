/*
 * test_code_key.cpp - the key of a cached kernel: source, options, processor and compiler version.
 *
 * Only an intact file with an equal key is used; each part of the key is changed in turn. Includes
 * the source of the emulated backend, which hides its functions.
 */
#include "kernels/cuda/runtime/kernel_cache.cu"

#include <criterion/criterion.h>

namespace
{

const char *const options[] = { "--use_fast_math", "-std=c++17" };
const struct gsv_code_key key = { "void kernel() {}", options, 2, 90, 12008 };
const char code[] = "machine code";

struct gsv_code_cache cache;

void begin()
{
    char folder[] = "/tmp/gpuserve-key-XXXXXX";

    cr_assert_not_null(mkdtemp(folder));
    setenv("GPUSERVE_KERNEL_CACHE", folder, 1);
    gsv_code_cache_open(&cache);
}

void end()
{
    char command[PATH_MAX + 16];

    snprintf(command, sizeof(command), "rm -r '%s'", cache.folder);
    cr_expect_eq(system(command), 0);
}

bool is_kept(const struct gsv_code_key *wanted, const void *bytes, size_t size)
{
    size_t found_size = 0;
    void *const found = gsv_code_cache_read(&cache, wanted, &found_size);
    const bool same = found && found_size == size && memcmp(found, bytes, size) == 0;

    cr_expect(same || !found, "other code");
    free(found);
    return found != NULL;
}

/* Path of the key's file, and its content. */
size_t read_kept(char *path, char *bytes, size_t most)
{
    char *const text = write_key(&key);
    size_t size = 0;

    cr_assert(write_code_path(&cache, text, path));
    free(text);
    char *const whole = read_file(path, &size);
    cr_assert(whole && size <= most);
    memcpy(bytes, whole, size);
    free(whole);
    return size;
}

void overwrite(const char *path, const char *bytes, size_t size)
{
    const struct kernel_cache_part part = { bytes, size };

    cr_assert(replace_file(&cache, path, &part, 1));
}

} /* namespace */

TestSuite(code_key, .init = begin, .fini = end);

/* Each key has its own code, and all are cached side by side. */
Test(code_key, each_member_of_the_key_tells_kernels_apart)
{
    const char *const others[] = { "--use_fast_math", "-std=c++20" };
    const char *const fewer[] = { "--use_fast_math" };
    const struct {
        const char *member;
        struct gsv_code_key key;
    } keys[] = {
        { "none", key },
        { "source", { "void kernel() { }", options, 2, 90, 12008 } },
        { "an option", { key.source, others, 2, 90, 12008 } },
        { "options", { key.source, fewer, 1, 90, 12008 } },
        { "processor", { key.source, options, 2, 100, 12008 } },
        { "compiler", { key.source, options, 2, 90, 12009 } },
    };
    const int n = sizeof(keys) / sizeof(keys[0]);

    for (int i = 0; i < n; i++) {
        const int mine[] = { i, -i };

        cr_expect_not(is_kept(&keys[i].key, mine, sizeof(mine)), "%s is not looked at",
                      keys[i].member);
        gsv_code_cache_write(&cache, &keys[i].key, mine, sizeof(mine));
    }
    for (int i = 0; i < n; i++) {
        const int mine[] = { i, -i };

        cr_expect(is_kept(&keys[i].key, mine, sizeof(mine)), "%s", keys[i].member);
    }
}

/* The checksum does not cover the sizes in the header, but all other bytes. */
Test(code_key, a_byte_that_differs_anywhere)
{
    char path[PATH_MAX], bytes[512] = {};

    gsv_code_cache_write(&cache, &key, code, sizeof(code));
    cr_expect(is_kept(&key, code, sizeof(code)));
    const size_t size = read_kept(path, bytes, sizeof(bytes));
    for (size_t i = 0; i < 2 * size; i++) {
        const char change = i % 2 ? 1 : 2; /* one of them increases a size */

        bytes[i / 2] ^= change;
        overwrite(path, bytes, size);
        cr_expect_not(is_kept(&key, code, sizeof(code) - 2), "byte %zu of %zu", i / 2, size);
        bytes[i / 2] ^= change;
    }
    overwrite(path, bytes, size);
    cr_expect(is_kept(&key, code, sizeof(code)));
    for (size_t left = 0; left < size; left++) {
        overwrite(path, bytes, left);
        cr_expect_not(is_kept(&key, code, 1), "%zu bytes of %zu", left, size);
    }
    overwrite(path, bytes, size + 1);
    cr_expect_not(is_kept(&key, code, sizeof(code)), "a byte more");
}

/* File names are hashes, so two keys may collide. The file is intact, with a valid checksum. */
Test(code_key, a_file_of_the_same_name_may_be_of_another_key)
{
    char path[PATH_MAX], bytes[512] = {};
    struct kernel_cache_header h;

    gsv_code_cache_write(&cache, &key, code, sizeof(code));
    const size_t size = read_kept(path, bytes, sizeof(bytes));
    char *const source = static_cast<char *>(memmem(bytes, size, key.source, strlen(key.source)));
    cr_assert_not_null(source);
    *source = 'V';
    memcpy(&h, bytes, sizeof(h));
    h.sum = add_to_sum(SUM_OF_NOTHING, bytes + sizeof(h), size - sizeof(h));
    memcpy(bytes, &h, sizeof(h));
    overwrite(path, bytes, size);
    cr_expect_not(is_kept(&key, code, sizeof(code)));
}

/* The compiler version is cached while size and time of the compiler's file are unchanged. */
Test(code_key, a_compiler_that_was_replaced_is_not_known)
{
    struct timespec times[2] = { { 100, 0 }, { 100, 7 } };
    char library[PATH_MAX];

    cr_assert(write_path(&cache, "libnvrtc.so", library));
    overwrite(library, "one", 3);
    cr_assert_eq(utimensat(AT_FDCWD, library, times, 0), 0);
    gsv_code_cache_know_version(&cache, library, 12008);
    cr_expect_eq(gsv_code_cache_known_version(&cache), 12008);
    overwrite(library, "three", 5);
    cr_assert_eq(utimensat(AT_FDCWD, library, times, 0), 0);
    cr_expect_eq(gsv_code_cache_known_version(&cache), 0, "of another size");
    overwrite(library, "two", 3);
    for (int i = 0; i < 2; i++) { /* differ in seconds, then in nanoseconds */
        times[1].tv_sec = i ? 100 : 101;
        times[1].tv_nsec = i ? 8 : 7;
        cr_assert_eq(utimensat(AT_FDCWD, library, times, 0), 0);
        cr_expect_eq(gsv_code_cache_known_version(&cache), 0, "of another time");
    }
    times[1].tv_nsec = 7;
    cr_assert_eq(utimensat(AT_FDCWD, library, times, 0), 0);
    cr_expect_eq(gsv_code_cache_known_version(&cache), 12008);
}

Test(code_key, no_code_is_not_kept_code)
{
    gsv_code_cache_write(&cache, &key, code, 0);
    cr_expect_not(is_kept(&key, code, 0));
}
