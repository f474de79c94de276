/*
 * json.h - bounded JSON in as jansson's values, for the HTTP front end.
 *
 * The text is read by json_tree.h and its tree made into jansson's, because jansson's own parser
 * may go on with a damaged string where memory runs out. jansson's trees take 12 to 79 times the
 * text, so values and depth are counted before parsing. Duplicate keys are refused.
 */
#ifndef GSV_BASE_JSON_H
#define GSV_BASE_JSON_H

#include "lib/base/json_tree.h"

#include <jansson.h>

/* Parse `size` bytes; `name` is for messages ("body"). *json is owned: json_decref(). */
gpuserve_status gsv_json_parse(json_t **json, const char *text, size_t size, const char *name,
                               struct gsv_json_limits limits, gpuserve_error *error);

#endif
