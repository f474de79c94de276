/*
 * errors.h - the kinds of request errors and their form in each dialect.
 */
#ifndef GSV_HTTP_ERRORS_H
#define GSV_HTTP_ERRORS_H

#include <stdbool.h>

struct gsv_buffer;

/* Error format of a dialect. */
enum gsv_dialect {
    GSV_OPENAI, /* {"error":{"message","type","param","code"}} */
    GSV_TEI,    /* {"error","error_type"} */
    GSV_KSERVE, /* {"error"}; also TF Serving, Ollama, Hugging Face */
    GSV_COHERE, /* {"message"} */
    GSV_JINA,   /* {"message","detail"}: Cohere v1 and Jina share paths */
    GSV_VOYAGE  /* {"error":{..},"detail"}: a request to OpenAI's path with Voyage's fields */
};

enum gsv_problem {
    GSV_P_FRAMING,      /* not HTTP, or a timeout */
    GSV_P_SYNTAX,       /* not JSON */
    GSV_P_INVALID,      /* a field is invalid */
    GSV_P_EMPTY,        /* no input */
    GSV_P_TOKENIZER,    /* unknown token id, or a text without a tokenization */
    GSV_P_TOO_LONG,     /* a text has too many tokens */
    GSV_P_TOO_MANY,     /* too many inputs */
    GSV_P_TOO_LARGE,    /* the body is too large */
    GSV_P_UNAUTHORIZED, /* missing or unknown API key */
    GSV_P_FORBIDDEN,    /* cross-site request or foreign Host */
    GSV_P_NO_ROUTE,     /* unknown path */
    GSV_P_NO_MODEL,     /* unknown model */
    GSV_P_METHOD,       /* method not allowed */
    GSV_P_CONFLICT,     /* another vector space */
    GSV_P_NO_OBJECT,    /* unknown file or batch */
    GSV_P_STATE,        /* not in this state of the file or batch */
    GSV_P_STORAGE,      /* the directory of batches is full */
    GSV_P_UNSUPPORTED,  /* the model does not support it */
    GSV_P_MEDIA,        /* unknown content encoding or type */
    GSV_P_OVERLOADED,   /* the queue is full */
    GSV_P_RATE_LIMIT,   /* over the rate of the key */
    GSV_P_UNAVAILABLE,  /* draining, loading, out of memory */
    GSV_P_EXPIRED,      /* the client's deadline has passed */
    GSV_P_BACKEND,      /* the device failed, or the result is NaN or infinite */
    GSV_P_INTERNAL,
    GSV_N_PROBLEMS
};

struct gsv_complaint {
    enum gsv_problem kind;
    const char *message;
    const char *param; /* or NULL */
};

/* The HTTP status of a problem in a dialect. */
unsigned gsv_problem_status(enum gsv_problem kind, enum gsv_dialect dialect);
/* True if a retry cannot succeed, although clients retry this status. */
bool gsv_problem_stays(enum gsv_problem kind);
/* Writes the error body. */
void gsv_problem_write(struct gsv_buffer *buffer, const struct gsv_complaint *complaint,
                       enum gsv_dialect dialect);

#endif
