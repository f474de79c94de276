/*
 * warmup.c - runs a model's first batches before it serves requests.
 *
 * Costs that occur once are paid here: first-touched pages, loaded device code, recorded graphs,
 * cold caches. The texts are lists of token ids, each different, so that the result cache and
 * request coalescing cannot answer one from another.
 */
#include "lib/runtime/models/load_steps.h"

#include "lib/base/clock.h"
#include "lib/base/error.h"

#define SHORT_TOKENS 8
#define ORDINARY_TOKENS 128
#define AUTO_ROUNDS 8       /* maximum */
#define AUTO_NS 2000000000u /* no new round after this total time */
#define AUTO_GAIN 0.95      /* stop when a round takes more than this share of the best time */

struct warmer {
    struct gsv_model *model;
    gpuserve_progress_fn progress; /* may be NULL */
    void *user;
    int32_t n_used; /* ids used in all rounds */
};

/* `n` texts of `length` tokens each, as ids end to end. */
struct texts {
    size_t n;
    size_t length;
    int32_t *ids;    /* [n * length] */
    size_t *offsets; /* [n + 1] */
    float *output;   /* [n, columns] */
    size_t columns;
};

static void texts_reset(struct texts *texts)
{
    free(texts->ids);
    free(texts->offsets);
    free(texts->output);
}

/* From the upper half of the vocabulary: special tokens have the low ids. */
static int32_t next_id(struct warmer *warmer)
{
    const int32_t vocab = warmer->model->plan.facts->vocab_size, half = vocab / 2;
    const int32_t id = half + warmer->n_used;

    warmer->n_used = (warmer->n_used + 1) % (vocab - half);
    return id;
}

static gpuserve_status texts_init(struct texts *texts, struct warmer *warmer, size_t n,
                                  size_t length, gpuserve_error *error)
{
    const struct gsv_spec_facts *facts = warmer->model->plan.facts;
    const size_t dim = (size_t)facts->dim;

    *texts = (struct texts){ .n = n, .length = length };
    texts->columns = dim > facts->n_labels ? dim : facts->n_labels;
    if (facts->labels_tokens && texts->columns < facts->n_labels * length)
        texts->columns = facts->n_labels * length;
    if (facts->is_late && texts->columns < (size_t)facts->token_dim * length)
        texts->columns = (size_t)facts->token_dim * length;
    if (facts->is_sparse && texts->columns < (size_t)facts->vocab_size)
        texts->columns = (size_t)facts->vocab_size;
    texts->ids = gsv_alloc_array(n * length, sizeof(*texts->ids));
    texts->offsets = gsv_alloc_array(n + 1, sizeof(*texts->offsets));
    texts->output = gsv_alloc_array(n * texts->columns, sizeof(*texts->output));
    if (!texts->ids || !texts->offsets || !texts->output) {
        texts_reset(texts);
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a warm-up of %zu texts", n);
    }
    for (size_t i = 0; i < n * length; i++)
        texts->ids[i] = next_id(warmer);
    for (size_t i = 1; i <= n && facts->reads_end; i++)
        texts->ids[i * length - 1] = facts->end_id;
    for (size_t i = 0; i <= n; i++)
        texts->offsets[i] = i * length;
    next_id(warmer); /* shift by one id, so that no two rounds are equal */
    return GPUSERVE_OK;
}

static gpuserve_status run_task(struct warmer *warmer, const struct texts *texts, uint32_t task,
                                gpuserve_error *error)
{
    gpuserve_job job = GPUSERVE_JOB_INIT;
    gpuserve_request *request = NULL;
    gpuserve_status st;

    job.task = task;
    job.n_items = texts->n;
    job.ids = texts->ids;
    job.id_offsets = texts->offsets;
    job.output = texts->output;
    job.output_capacity = texts->n * texts->columns;
    st = gsv_request_create(&request, warmer->model, &job, NULL, NULL, false, gsv_now_ns(), error);
    if (st == GPUSERVE_OK)
        st = gpuserve_wait(request, -1, error);
    gpuserve_request_free(&request);
    return st;
}

/* Runs each task of the model once on n texts of `length` tokens. */
static gpuserve_status run(struct warmer *warmer, size_t n, size_t length, uint64_t *spent_ns,
                           gpuserve_error *error)
{
    const struct gsv_spec_facts *facts = warmer->model->plan.facts;
    struct texts texts;
    gpuserve_status st = texts_init(&texts, warmer, n, length, error);
    const uint64_t begin = gsv_now_ns();

    if (st != GPUSERVE_OK)
        return st;
    if (facts->dim > 0)
        st = run_task(warmer, &texts, GPUSERVE_TASK_EMBED, error);
    if (st == GPUSERVE_OK && gsv_classifies(facts))
        st = run_task(warmer, &texts, GPUSERVE_TASK_CLASSIFY, error);
    if (st == GPUSERVE_OK && facts->labels_tokens)
        st = run_task(warmer, &texts, GPUSERVE_TASK_TOKEN_LABELS, error);
    if (st == GPUSERVE_OK && facts->is_late)
        st = run_task(warmer, &texts, GPUSERVE_TASK_TOKEN_VECTORS, error);
    if (st == GPUSERVE_OK && facts->is_late)
        st = run_task(warmer, &texts, GPUSERVE_TASK_MAX_SIM, error);
    if (st == GPUSERVE_OK && facts->is_sparse)
        st = run_task(warmer, &texts, GPUSERVE_TASK_SPARSE, error);
    *spent_ns = gsv_now_ns() - begin;
    texts_reset(&texts);
    return st == GPUSERVE_OK ? st : gsv_fail_in(error, st, "the warm-up");
}

static gpuserve_status tell(const struct warmer *warmer, uint32_t done, uint32_t total,
                            gpuserve_error *error)
{
    if (!warmer->progress ||
        warmer->progress(warmer->user, GPUSERVE_STAGE_WARMUP, done, total) == 0)
        return GPUSERVE_OK;
    return gsv_fail(error, GPUSERVE_E_CANCELLED, "the progress callback cancelled the warm-up");
}

/* Runs batches that fill every worker: `rounds` times, or while they get faster. */
static gpuserve_status run_rounds(struct warmer *warmer, uint32_t rounds, gpuserve_error *error)
{
    const struct gsv_plan *plan = &warmer->model->plan;
    const bool is_auto = rounds == GPUSERVE_WARMUP_AUTO;
    const uint32_t max_rounds = is_auto ? AUTO_ROUNDS : rounds;
    const size_t length =
        plan->max_tokens < ORDINARY_TOKENS ? (size_t)plan->max_tokens : ORDINARY_TOKENS;
    const size_t fill = (size_t)plan->narrow.max_tokens / length;
    const size_t max_sequences = (size_t)plan->narrow.max_sequences; /* few, if rows are wide */
    const size_t n = (size_t)plan->n_workers * (fill < max_sequences ? fill : max_sequences);
    uint64_t best_ns = UINT64_MAX, all_ns = 0;
    gpuserve_status st = tell(warmer, 0, max_rounds, error);

    for (uint32_t i = 0; i < max_rounds && st == GPUSERVE_OK; i++) {
        uint64_t spent_ns = 0;

        st = run(warmer, n, length, &spent_ns, error);
        if (st == GPUSERVE_OK)
            st = tell(warmer, i + 1, max_rounds, error);
        all_ns += spent_ns;
        if (is_auto && (all_ns > AUTO_NS || (double)spent_ns > (double)best_ns * AUTO_GAIN))
            break;
        best_ns = spent_ns;
    }
    return st == GPUSERVE_OK ? tell(warmer, max_rounds, max_rounds, error) : st;
}

static uint32_t rounds_of(const struct gsv_model *model, uint32_t wanted, uint32_t otherwise)
{
    if (wanted == GPUSERVE_WARMUP_GPU && !model->plan.device.is_cpu)
        return GPUSERVE_WARMUP_AUTO;
    return wanted == 0 || wanted == GPUSERVE_WARMUP_GPU ? otherwise : wanted;
}

gpuserve_status gsv_model_warm(struct gsv_model *model, const gpuserve_model_options *options,
                               uint32_t otherwise, gpuserve_error *error)
{
    const uint32_t rounds = rounds_of(model, options->warmup, otherwise);
    struct warmer warmer = { model, options->progress, options->progress_user, 0 };
    const size_t longest = (size_t)model->plan.max_tokens;
    uint64_t spent_ns;
    gpuserve_status st;

    if (rounds == GPUSERVE_WARMUP_OFF)
        return GPUSERVE_OK;
    st = run(&warmer, 1, longest < SHORT_TOKENS ? longest : SHORT_TOKENS, &spent_ns, error);
    if (st == GPUSERVE_OK)
        st = run(&warmer, 1, longest, &spent_ns, error);
    return st == GPUSERVE_OK ? run_rounds(&warmer, rounds, error) : st;
}
