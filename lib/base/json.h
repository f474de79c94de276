/*
 * json.h - bounded JSON parsing into jansson values, for the HTTP server.
 *
 * json_tree.h parses the text; its tree is then converted to jansson values. jansson's own parser
 * may continue with a damaged string when memory runs out. jansson trees take 12 to 79 times the
 * size of the text, so values and depth are counted before parsing. Duplicate keys are refused.
 */
#ifndef GSV_BASE_JSON_H
#define GSV_BASE_JSON_H

#include "lib/base/json_tree.h"

#include <jansson.h>

/* Parses `size` bytes; `name` is for messages ("body"). *json is owned: json_decref(). */
gpuserve_status gsv_json_parse(json_t **json, const char *text, size_t size, const char *name,
                               struct gsv_json_limits limits, gpuserve_error *error);

#endif
