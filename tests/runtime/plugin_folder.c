/*
 * plugin_folder.c - creates a temporary plugin folder with a libgpuserve-cuda.so built from
 * plugins/plugin.c.
 *
 * PLUGINS is the folder with the built modules.
 */
#include "tests/runtime/plugin_folder.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void put(const char *folder, const char *file, const char *module)
{
    char from[1024], to[2 * PLUGIN_FOLDER_BYTES];

    snprintf(from, sizeof(from), "%s/lib%s.so", PLUGINS, module);
    snprintf(to, sizeof(to), "%s/%s", folder, file);
    if (strcmp(module, "no-library") != 0)
        cr_assert_eq(symlink(from, to), 0);
    else
        fclose(fopen(to, "w")); /* an empty file */
}

void plugin_folder_make(char folder[PLUGIN_FOLDER_BYTES], const char *module)
{
    strcpy(folder, "/tmp/gpuserve-plugin-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    if (module)
        put(folder, "libgpuserve-cuda.so", module);
}

void plugin_folder_add_cuda12(const char *folder, const char *module)
{
    put(folder, "libgpuserve-cuda12.so", module);
}

void plugin_folder_remove(const char *folder)
{
    static const char *const files[] = { "libgpuserve-cuda.so", "libgpuserve-cuda12.so" };
    char file[2 * PLUGIN_FOLDER_BYTES];

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        snprintf(file, sizeof(file), "%s/%s", folder, files[i]);
        unlink(file);
    }
    rmdir(folder);
}
