/*
 * build_id.h - identifies the build of this library, for caches on disk.
 */
#ifndef GSV_RUNTIME_BUILD_ID_H
#define GSV_RUNTIME_BUILD_ID_H

#include <stddef.h>

/* The GNU build id that the linker wrote into the object which holds this library: two builds of
 * different code differ. Returns its number of bytes; 0 if the object has none. */
size_t gsv_build_id(unsigned char *bytes, size_t capacity);

#endif
