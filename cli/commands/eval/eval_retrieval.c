/*
 * eval_retrieval.c - `gpuserve eval --task retrieval`: which documents a model finds for queries.
 *
 *   file of (query, relevant document) -> distinct queries and documents -> vectors ->
 *   similarities -> first ten documents of each query -> means over the queries
 *
 * Every document of the file is a candidate for every query. The search is exact. The means are
 * those of InformationRetrievalEvaluator of sentence-transformers, with binary relevance.
 */
#include "cli/commands/eval/eval.h"
#include "cli/io/output.h"
#include "cli/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ROWS 1000000
#define MAX_SIMILARITIES 10000000000.0
#define TOP 10

/* Texts of one column: first one for each row of the file, then the distinct ones. */
struct column {
    struct fit_set set;
    size_t *ids; /* [rows] index of the row's text among the distinct ones */
};

struct relevant {
    size_t query, document;
};

struct retrieval {
    struct column queries, documents;
    struct relevant *relevant; /* [n_relevant] distinct, sorted by query, then by document */
    size_t n_relevant, dim;
    double ndcg, mrr, recall, accuracy; /* sums over the queries */
};

static int read_rows(struct retrieval *r, struct cli_input *input)
{
    struct cli_record record;
    char *where;
    int found;

    while ((found = cli_input_next(input, &record)) > 0) {
        if (r->queries.set.n == MAX_ROWS) {
            where = cli_input_where(input);
            cli_fail("%s: retrieval takes at most %d pairs", where, MAX_ROWS);
            free(where);
            return CLI_FAILED;
        }
        cli_fit_add(&r->queries.set, record.text, record.text_size, 0);
        cli_fit_add(&r->documents.set, record.second, record.second_size, 0);
    }
    return found < 0 ? CLI_FAILED : CLI_OK;
}

/* ------------------------------------------------------------------------------ distinct texts */

struct row_text {
    const char *bytes;
    size_t size, row;
};

static int by_bytes(const void *a, const void *b)
{
    const struct row_text *x = a, *y = b;
    const size_t common = x->size < y->size ? x->size : y->size;
    const int order = common ? memcmp(x->bytes, y->bytes, common) : 0;

    return order ? order : (x->size > y->size) - (x->size < y->size);
}

static int by_bytes_and_row(const void *a, const void *b)
{
    const struct row_text *x = a, *y = b;
    const int order = by_bytes(a, b);

    return order ? order : (x->row > y->row) - (x->row < y->row);
}

/* Keeps the first of equal texts, in the order of the file. */
static void keep_distinct(struct column *column)
{
    struct fit_set rows = column->set, *distinct = &column->set;
    struct row_text *sorted = cli_alloc(rows.n, sizeof(*sorted));
    size_t *first = cli_alloc(rows.n, sizeof(*first)); /* first row of the same text */

    for (size_t i = 0; i < rows.n; i++)
        sorted[i] = (struct row_text){ .bytes = rows.bytes + rows.offsets[i],
                                       .size = rows.offsets[i + 1] - rows.offsets[i],
                                       .row = i };
    qsort(sorted, rows.n, sizeof(*sorted), by_bytes_and_row);
    for (size_t i = 0; i < rows.n; i++) {
        const bool again = i && by_bytes(&sorted[i - 1], &sorted[i]) == 0;

        first[sorted[i].row] = again ? first[sorted[i - 1].row] : sorted[i].row;
    }
    free(sorted);
    memset(distinct, 0, sizeof(*distinct));
    column->ids = cli_alloc(rows.n, sizeof(*column->ids));
    for (size_t i = 0; i < rows.n; i++) {
        if (first[i] == i) {
            column->ids[i] = distinct->n;
            cli_fit_add(distinct, rows.bytes + rows.offsets[i],
                        rows.offsets[i + 1] - rows.offsets[i], 0);
        } else {
            column->ids[i] = column->ids[first[i]];
        }
    }
    free(first);
    cli_fit_set_free(&rows);
}

static int by_query(const void *a, const void *b)
{
    const struct relevant *x = a, *y = b;

    if (x->query != y->query)
        return (x->query > y->query) - (x->query < y->query);
    return (x->document > y->document) - (x->document < y->document);
}

static void list_relevant(struct retrieval *r, size_t n_rows)
{
    r->relevant = cli_alloc(n_rows, sizeof(*r->relevant));
    for (size_t i = 0; i < n_rows; i++)
        r->relevant[i] = (struct relevant){ r->queries.ids[i], r->documents.ids[i] };
    qsort(r->relevant, n_rows, sizeof(*r->relevant), by_query);
    for (size_t i = 0; i < n_rows; i++) {
        if (!i || by_query(&r->relevant[i - 1], &r->relevant[i]) != 0)
            r->relevant[r->n_relevant++] = r->relevant[i];
    }
}

/* ------------------------------------------------------------------------------------- vectors */

/* The first of the names that is a prompt of the model; NULL if none is. */
static const char *find_prompt(const json_t *prompts, const char *const *names)
{
    for (; *names; names++) {
        if (json_object_get(prompts, *names))
            return *names;
    }
    return NULL;
}

/* Without a prompt of the command line, each side gets the model's own prompt, as gpuserve_rerank()
 * does. One given is of the queries. */
static int embed(struct retrieval *r, gpuserve_model *model, const struct cli_args *args)
{
    static const char *const for_queries[] = { "query", NULL };
    static const char *const for_documents[] = { "document", "passage", "corpus", NULL };
    struct cli_args *of_queries = cli_alloc(1, sizeof(*of_queries));
    struct cli_args *of_documents = cli_alloc(1, sizeof(*of_documents));
    struct eval_vectors vectors = { 0 };
    json_t *facts = cli_facts_parse(cli_model_facts(model));
    const json_t *prompts = json_object_get(facts, "prompts");
    int result = facts ? CLI_OK : CLI_FAILED;

    *of_queries = *of_documents = *args;
    if (!args->prompt && !args->prompt_name)
        of_queries->prompt_name = find_prompt(prompts, for_queries);
    of_documents->prompt = NULL;
    of_documents->prompt_name = find_prompt(prompts, for_documents);
    if (result == CLI_OK)
        result = cli_eval_vectors_open(&vectors, model, of_documents);
    r->dim = vectors.dim;
    if (result == CLI_OK)
        result = cli_eval_embed(&r->queries.set, model, "queries", &vectors, of_queries);
    if (result == CLI_OK)
        result = cli_eval_embed(&r->documents.set, model, "documents", &vectors, of_documents);
    cli_eval_vectors_close(&vectors);
    json_decref(facts);
    free(of_queries);
    free(of_documents);
    return result;
}

/* ---------------------------------------------------------------------------------------- scores
 */

struct hit {
    float similarity;
    size_t document;
};

/* The documents of the highest similarities, best first; of equal ones the first of the file. */
static size_t search(struct hit *top, const struct retrieval *r, size_t query)
{
    const float *of_query = r->queries.set.vectors + query * r->dim;
    size_t n = 0;

    for (size_t i = 0; i < r->documents.set.n; i++) {
        const float similarity =
            gpuserve_dot(of_query, r->documents.set.vectors + i * r->dim, r->dim);
        size_t at = n;

        if (n == TOP && !(similarity > top[TOP - 1].similarity))
            continue;
        if (n < TOP)
            n++;
        else
            at = TOP - 1;
        for (; at && similarity > top[at - 1].similarity; at--)
            top[at] = top[at - 1];
        top[at] = (struct hit){ .similarity = similarity, .document = i };
    }
    return n;
}

static void score_query(struct retrieval *r, const struct relevant *relevant, size_t n_relevant)
{
    struct hit top[TOP];
    const size_t n = search(top, r, relevant->query);
    double gain = 0, ideal = 0;
    size_t n_found = 0, first = 0;

    for (size_t i = 0; i < n; i++) {
        const struct relevant wanted = { relevant->query, top[i].document };

        if (!bsearch(&wanted, relevant, n_relevant, sizeof(wanted), by_query))
            continue;
        gain += 1 / log2((double)i + 2);
        if (!n_found++)
            first = i + 1;
    }
    for (size_t i = 0; i < n_relevant && i < TOP; i++)
        ideal += 1 / log2((double)i + 2);
    r->ndcg += gain / ideal;
    r->mrr += first ? 1 / (double)first : 0;
    r->recall += (double)n_found / (double)n_relevant;
    r->accuracy += first == 1;
}

static void score_all(struct retrieval *r)
{
    for (size_t i = 0, end; i < r->n_relevant; i = end) {
        for (end = i + 1; end < r->n_relevant && r->relevant[end].query == r->relevant[i].query;)
            end++;
        score_query(r, &r->relevant[i], end - i);
    }
}

static int measure(struct retrieval *r, struct cli_input *input, gpuserve_model *model,
                   const struct cli_args *args)
{
    size_t n_rows;

    if (read_rows(r, input) != CLI_OK)
        return CLI_FAILED;
    n_rows = r->queries.set.n;
    if (n_rows < 2)
        return cli_fail("%s: %zu pairs, eval needs two or more", args->input, n_rows);
    keep_distinct(&r->queries);
    keep_distinct(&r->documents);
    list_relevant(r, n_rows);
    if ((double)r->queries.set.n * (double)r->documents.set.n > MAX_SIMILARITIES)
        return cli_fail(
            "%s: %zu queries and %zu documents have more than %.0f similarities: use fewer",
            args->input, r->queries.set.n, r->documents.set.n, MAX_SIMILARITIES);
    if (embed(r, model, args) != CLI_OK)
        return CLI_FAILED;
    score_all(r);
    return CLI_OK;
}

int cli_eval_retrieval(json_t *row, struct cli_input *input, gpuserve_model *model,
                       const struct cli_args *args)
{
    struct retrieval r = { .ndcg = 0 };
    const int result = measure(&r, input, model, args);
    const double n = (double)r.queries.set.n;

    if (result == CLI_OK) {
        json_object_set_new(row, "n", json_integer((json_int_t)r.queries.set.n));
        json_object_set_new(row, "documents", json_integer((json_int_t)r.documents.set.n));
        json_object_set_new(row, "ndcg@10", json_real(r.ndcg / n));
        json_object_set_new(row, "mrr@10", json_real(r.mrr / n));
        json_object_set_new(row, "recall@10", json_real(r.recall / n));
        json_object_set_new(row, "accuracy@1", json_real(r.accuracy / n));
    }
    cli_fit_set_free(&r.queries.set);
    cli_fit_set_free(&r.documents.set);
    free(r.queries.ids);
    free(r.documents.ids);
    free(r.relevant);
    return result;
}
