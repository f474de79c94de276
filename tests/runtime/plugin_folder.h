/*
 * plugin_folder.h - a folder to look for plugins in, with a libgpuserve-cuda.so of
 * plugins/plugin.c.
 */
#ifndef TEST_RUNTIME_PLUGIN_FOLDER_H
#define TEST_RUNTIME_PLUGIN_FOLDER_H

#define PLUGIN_FOLDER_BYTES 64

/* `module` is "plugin-small" and the like; "no-library": an empty file; NULL: nothing is there. */
void plugin_folder_make(char folder[PLUGIN_FOLDER_BYTES], const char *module);
void plugin_folder_remove(const char *folder);

#endif
