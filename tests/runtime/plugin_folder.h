/*
 * plugin_folder.h - a temporary plugin folder with a libgpuserve-cuda.so built from
 * plugins/plugin.c.
 */
#ifndef TEST_RUNTIME_PLUGIN_FOLDER_H
#define TEST_RUNTIME_PLUGIN_FOLDER_H

#define PLUGIN_FOLDER_BYTES 64

/* `module`: "plugin-small" etc.; "no-library": an empty file; NULL: an empty folder. */
void plugin_folder_make(char folder[PLUGIN_FOLDER_BYTES], const char *module);
/* Adds the build libgpuserve-cuda12.so. */
void plugin_folder_add_cuda12(const char *folder, const char *module);
void plugin_folder_remove(const char *folder);

#endif
