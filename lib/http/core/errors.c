/*
 * errors.c - one table with the HTTP status of each problem and its names in each dialect.
 */
#include "lib/http/core/errors.h"

#include "lib/http/core/json_write.h"

struct errors_row {
    unsigned status;     /* for most dialects */
    unsigned tei_status; /* 0: same as status */
    unsigned kserve_status;
    const char *openai_type, *openai_code;
    const char *tei_type;
};

#define INVALID "invalid_request_error"

/* clang-format off */
static const struct errors_row rows[GSV_N_PROBLEMS] = {
    [GSV_P_FRAMING]      = { 400, 0, 0, INVALID, "bad_request", "Validation" },
    [GSV_P_SYNTAX]       = { 400, 0, 0, INVALID, "invalid_json", "Validation" },
    [GSV_P_INVALID]      = { 400, 422, 0, INVALID, "invalid_value", "Validation" },
    [GSV_P_EMPTY]        = { 400, 0, 0, INVALID, "empty_input", "Empty" },
    [GSV_P_TOKENIZER]    = { 400, 422, 0, INVALID, "invalid_value", "Tokenizer" },
    [GSV_P_TOO_LONG]     = { 400, 422, 0, INVALID, "context_length_exceeded", "Validation" },
    [GSV_P_TOO_MANY]     = { 400, 422, 0, INVALID, "too_many_inputs", "Validation" },
    [GSV_P_TOO_LARGE]    = { 413, 0, 0, INVALID, "request_too_large", "Validation" },
    [GSV_P_UNAUTHORIZED] = { 401, 0, 0, INVALID, "invalid_api_key", "Unauthorized" },
    [GSV_P_FORBIDDEN]    = { 403, 0, 0, INVALID, "forbidden", "Unauthorized" },
    [GSV_P_NO_ROUTE]     = { 404, 0, 0, INVALID, "unknown_url", "NotFound" },
    [GSV_P_NO_MODEL]     = { 404, 0, 0, INVALID, "model_not_found", "NotFound" },
    [GSV_P_METHOD]       = { 405, 0, 0, INVALID, "method_not_allowed", "Validation" },
    [GSV_P_CONFLICT]     = { 409, 0, 0, INVALID, "vector_space_differs", "Validation" },
    [GSV_P_NO_OBJECT]    = { 404, 0, 0, INVALID, NULL, "NotFound" },
    [GSV_P_STATE]        = { 409, 0, 0, INVALID, "conflict", "Validation" },
    [GSV_P_STORAGE]      = { 413, 0, 0, INVALID, "storage_limit_exceeded", "Validation" },
    [GSV_P_UNSUPPORTED]  = { 400, 422, 501, INVALID, "unsupported", "Validation" },
    [GSV_P_MEDIA]        = { 415, 0, 0, INVALID, "unsupported_media_type", "Validation" },
    [GSV_P_OVERLOADED]   = { 429, 0, 503, "rate_limit_error", "rate_limit_exceeded", "Overloaded" },
    [GSV_P_RATE_LIMIT]   = { 429, 0, 0, "rate_limit_error", "rate_limit_exceeded", "Overloaded" },
    [GSV_P_UNAVAILABLE]  = { 503, 0, 0, "server_error", "unavailable", "Unhealthy" },
    [GSV_P_EXPIRED]      = { 504, 0, 0, "server_error", "deadline_exceeded", "Overloaded" },
    [GSV_P_BACKEND]      = { 500, 424, 0, "server_error", "backend", "Backend" },
    [GSV_P_INTERNAL]     = { 500, 0, 0, "server_error", "internal", "Backend" },
};
/* clang-format on */

unsigned gsv_problem_status(enum gsv_problem kind, enum gsv_dialect dialect)
{
    const struct errors_row *row = &rows[kind];

    if (dialect == GSV_TEI && row->tei_status)
        return row->tei_status;
    if (dialect == GSV_KSERVE && row->kserve_status)
        return row->kserve_status;
    return row->status;
}

bool gsv_problem_stays(enum gsv_problem kind)
{
    return kind == GSV_P_CONFLICT || kind == GSV_P_STATE || kind == GSV_P_UNSUPPORTED;
}

static void write_openai(struct gsv_buffer *buffer, const struct gsv_complaint *complaint,
                         bool has_detail)
{
    gsv_buffer_text(buffer, "{\"error\":{\"message\":");
    gsv_put_text(buffer, complaint->message);
    gsv_buffer_text(buffer, ",\"type\":");
    gsv_put_text(buffer, rows[complaint->kind].openai_type);
    gsv_buffer_text(buffer, ",\"param\":");
    gsv_put_text(buffer, complaint->param);
    gsv_buffer_text(buffer, ",\"code\":");
    gsv_put_text(buffer, rows[complaint->kind].openai_code);
    gsv_buffer_text(buffer, "}");
    if (has_detail) {
        gsv_buffer_text(buffer, ",\"detail\":");
        gsv_put_text(buffer, complaint->message);
    }
    gsv_buffer_text(buffer, "}");
}

void gsv_problem_write(struct gsv_buffer *buffer, const struct gsv_complaint *complaint,
                       enum gsv_dialect dialect)
{
    static const char *const fields[] = { [GSV_OPENAI] = "error",
                                          [GSV_TEI] = "error",
                                          [GSV_KSERVE] = "error",
                                          [GSV_COHERE] = "message",
                                          [GSV_JINA] = "message" };

    if (dialect == GSV_OPENAI || dialect == GSV_VOYAGE) {
        write_openai(buffer, complaint, dialect == GSV_VOYAGE);
        return;
    }
    gsv_buffer_format(buffer, "{\"%s\":", fields[dialect]);
    gsv_put_text(buffer, complaint->message);
    if (dialect == GSV_TEI) {
        gsv_buffer_text(buffer, ",\"error_type\":");
        gsv_put_text(buffer, rows[complaint->kind].tei_type);
    }
    if (dialect == GSV_JINA) {
        gsv_buffer_text(buffer, ",\"detail\":");
        gsv_put_text(buffer, complaint->message);
    }
    gsv_buffer_text(buffer, "}");
}
