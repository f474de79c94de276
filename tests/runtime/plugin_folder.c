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

void plugin_folder_make(char folder[PLUGIN_FOLDER_BYTES], const char *module)
{
    char from[1024], to[2 * PLUGIN_FOLDER_BYTES];

    strcpy(folder, "/tmp/gpuserve-plugin-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    if (!module)
        return;
    snprintf(from, sizeof(from), "%s/lib%s.so", PLUGINS, module);
    snprintf(to, sizeof(to), "%s/libgpuserve-cuda.so", folder);
    if (strcmp(module, "no-library") != 0)
        cr_assert_eq(symlink(from, to), 0);
    else
        fclose(fopen(to, "w")); /* an empty file */
}

void plugin_folder_remove(const char *folder)
{
    char file[2 * PLUGIN_FOLDER_BYTES];

    snprintf(file, sizeof(file), "%s/libgpuserve-cuda.so", folder);
    unlink(file);
    rmdir(folder);
}
