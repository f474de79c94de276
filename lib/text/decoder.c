/*
 * decoder.c - tokens back to text.
 */
#include "lib/text/decoder.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/json_tree.h"

#include <stdlib.h>
#include <string.h>

gpuserve_status gsv_decoder_wordpiece(struct gsv_decoder *d, const char *prefix, bool cleanup,
                                      const char *name, gpuserve_error *error)
{
    d->wordpiece = true;
    d->cleanup = cleanup;
    d->prefix = gsv_copy_text(prefix, strlen(prefix));
    return d->prefix ? GPUSERVE_OK
                     : gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory for a decoder", name);
}

gpuserve_status gsv_decoder_parse(struct gsv_decoder *d, const struct gsv_json_value *json,
                                  const char *name, gpuserve_error *error)
{
    const char *type = gsv_json_text(gsv_json_member(json, "type")), *prefix = "##";
    bool cleanup = true;
    gpuserve_status status;

    if (!json || gsv_json_is(json, GSV_JSON_NULL))
        return GPUSERVE_OK;
    if (!type || strcmp(type, "WordPiece") != 0)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "%s: decoder \"%s\"", name,
                        type ? type : "");
    status = gsv_json_need(json, "prefix", GSV_JSON_TEXT, name, error);
    if (status == GPUSERVE_OK)
        status = gsv_json_need(json, "cleanup", GSV_JSON_TRUTH, name, error);
    if (status == GPUSERVE_OK)
        status = gsv_json_string(json, "prefix", name, &prefix, error);
    if (status == GPUSERVE_OK)
        status = gsv_json_bool(json, "cleanup", name, &cleanup, error);
    return status == GPUSERVE_OK ? gsv_decoder_wordpiece(d, prefix, cleanup, name, error) : status;
}

void gsv_decoder_reset(struct gsv_decoder *d)
{
    free(d->prefix);
    *d = (struct gsv_decoder){ 0 };
}

/* Every `from`, left to right, becomes `to`, which is not longer. Returns the new size. */
static size_t replace_all(char *text, size_t size, const char *from, const char *to)
{
    const size_t from_size = strlen(from), to_size = strlen(to);
    size_t kept = 0;

    for (size_t i = 0; i < size;) {
        if (size - i >= from_size && memcmp(text + i, from, from_size) == 0) {
            memcpy(text + kept, to, to_size);
            kept += to_size;
            i += from_size;
        } else {
            text[kept++] = text[i++];
        }
    }
    return kept;
}

size_t gsv_decoder_token(const struct gsv_decoder *d, const char *token, size_t size, bool first,
                         char *out)
{
    /* In the order of `tokenizers`. */
    static const char *const replaced[][2] = {
        { " .", "." },   { " ?", "?" },     { " !", "!" },     { " ,", "," },
        { " ' ", "'" },  { " n't", "n't" }, { " 'm", "'m" },   { " do not", " don't" },
        { " 's", "'s" }, { " 've", "'ve" }, { " 're", "'re" },
    };
    const size_t prefix_size = d->wordpiece ? strlen(d->prefix) : 0;
    size_t n = 0;

    if (!first && d->wordpiece && size >= prefix_size &&
        memcmp(token, d->prefix, prefix_size) == 0) {
        token += prefix_size;
        size -= prefix_size;
    } else if (!first) {
        out[n++] = ' ';
    }
    memcpy(out + n, token, size);
    n += size;
    for (size_t i = 0; i < sizeof(replaced) / sizeof(replaced[0]) && d->wordpiece && d->cleanup;
         i++)
        n = replace_all(out, n, replaced[i][0], replaced[i][1]);
    return n;
}
