/*
 * errors.h - what can go wrong with a request, and how each dialect says it.
 */
#ifndef GSV_HTTP_ERRORS_H
#define GSV_HTTP_ERRORS_H

#include <stdbool.h>

struct gsv_buffer;

/* Whose words an error is told in. */
enum gsv_dialect {
    GSV_OPENAI, /* {"error":{"message","type","param","code"}} */
    GSV_TEI,    /* {"error","error_type"} */
    GSV_KSERVE, /* {"error"}; TF Serving, Ollama and Hugging Face too */
    GSV_COHERE, /* {"message"} */
    GSV_JINA    /* {"message","detail"}: Cohere v1 and Jina share paths */
};

enum gsv_problem {
    GSV_P_FRAMING,      /* no HTTP, or not in time */
    GSV_P_SYNTAX,       /* no JSON */
    GSV_P_INVALID,      /* a field is wrong */
    GSV_P_EMPTY,        /* no input */
    GSV_P_TOKENIZER,    /* the tokenizer has no such id, or makes nothing of a text */
    GSV_P_TOO_LONG,     /* a text has too many tokens */
    GSV_P_TOO_MANY,     /* too many inputs */
    GSV_P_TOO_LARGE,    /* the body */
    GSV_P_UNAUTHORIZED, /* no key, or none of ours */
    GSV_P_FORBIDDEN,    /* from another site, or by another host's name */
    GSV_P_NO_ROUTE,     /* no such path */
    GSV_P_NO_MODEL,     /* no such model */
    GSV_P_METHOD,       /* not with this method */
    GSV_P_CONFLICT,     /* the vector space is another */
    GSV_P_UNSUPPORTED,  /* this model cannot do it */
    GSV_P_MEDIA,        /* content encoding or type that is not known */
    GSV_P_OVERLOADED,   /* the queue is full */
    GSV_P_RATE_LIMIT,   /* a key has sent too many */
    GSV_P_UNAVAILABLE,  /* draining, loading, out of memory */
    GSV_P_EXPIRED,      /* the client's deadline has passed */
    GSV_P_BACKEND,      /* the device failed, or the result is no number */
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
/* Whether the same request can only fail again, though clients repeat what has this status. */
bool gsv_problem_stays(enum gsv_problem kind);
/* The body. */
void gsv_problem_write(struct gsv_buffer *buffer, const struct gsv_complaint *complaint,
                       enum gsv_dialect dialect);

#endif
