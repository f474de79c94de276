/*
 * lstm.c - an LSTM with hand-set weights that counts bits, so that its output is easy to verify.
 *
 *   lstm [DEVICE [BITS...]]     DEVICE is auto (the default), cpu, cuda or cuda:N
 *
 * The input of a step is one bit. Unit 0 counts the ones of its sequence, unit 1 the zeros: the
 * input gate opens for a one or a zero, the forget gate stays open, so the cell increases by one.
 * Sequences of any lengths are packed without padding (cu_seqlens); the final cell states are the
 * counts.
 */
#include <gpuserve/gpuserve.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNITS 2
#define OPEN 20.0f /* in float32 sigmoid(20) is 1 and sigmoid(-20) is 0, up to the last digit */

/* Row order of torch.nn.LSTM: input, forget, cell and output gate, each for both units. */
static const float weight_ih[4 * UNITS] = { 2 * OPEN, -2 * OPEN };
static const float weight_hh[4 * UNITS * UNITS];
static const float bias_ih[4 * UNITS] = { -OPEN, OPEN, OPEN, OPEN, OPEN, OPEN, OPEN, OPEN };

struct sequences {
    int n;
    char **bits;
    int32_t *cu_seqlens; /* [n + 1] */
    float *input;        /* [steps, 1] */
    float *counts;       /* [n, UNITS] */
};

static int complain(const gpuserve_error *error)
{
    fprintf(stderr, "%s\n%s\n", error->message, error->hint);
    return 1;
}

/* Concatenates the bits of all sequences and stores the end of each in cu_seqlens. */
static int pack(struct sequences *s)
{
    int32_t at = 0;

    for (int i = 0; i < s->n; i++) {
        const size_t length = strlen(s->bits[i]);

        if (length > 1000 || strspn(s->bits[i], "01") != length) {
            fprintf(stderr, "\"%s\" is no sequence of at most 1000 zeros and ones\n", s->bits[i]);
            return 1;
        }
        for (size_t j = 0; j < length; j++)
            s->input[at++] = s->bits[i][j] == '1' ? 1.0f : 0.0f;
        s->cu_seqlens[i + 1] = at;
    }
    return 0;
}

static int run(gpuserve_compute *compute, const struct sequences *s)
{
    const gpuserve_lstm_weights weights = { weight_ih, weight_hh, bias_ih, NULL };
    gpuserve_lstm_network network = GPUSERVE_LSTM_NETWORK_INIT;
    gpuserve_lstm_job job = GPUSERVE_LSTM_JOB_INIT;
    gpuserve_compute_result result = GPUSERVE_COMPUTE_RESULT_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_lstm *lstm;
    gpuserve_status status;

    network.input_size = 1;
    network.hidden_size = UNITS;
    network.weights = &weights;
    network.n_weights = 1;
    if (gpuserve_lstm_create(&lstm, compute, &network, &error) != GPUSERVE_OK)
        return complain(&error);
    job.n_sequences = s->n;
    job.cu_seqlens = s->cu_seqlens;
    job.input = s->input;
    job.c_n = s->counts;
    job.c_n_capacity = (size_t)s->n * UNITS;
    status = gpuserve_lstm_run(lstm, &job, &result, &error);
    gpuserve_lstm_free(&lstm);
    if (status != GPUSERVE_OK)
        return complain(&error);
    for (int i = 0; i < s->n; i++)
        printf("%s: %ld ones, %ld zeros\n", s->bits[i], lroundf(s->counts[i * UNITS]),
               lroundf(s->counts[i * UNITS + 1]));
    return 0;
}

int main(int argc, char **argv)
{
    static char *some[] = { "1", "10110", "000000000011", "" };
    gpuserve_compute_options options = GPUSERVE_COMPUTE_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_compute *compute;
    struct sequences s = { argc > 2 ? argc - 2 : 4, argc > 2 ? argv + 2 : some, NULL, NULL, NULL };
    int failed = 1;

    options.device = argc > 1 ? argv[1] : "auto";
    if (gpuserve_compute_open(&compute, NULL, &options, &error) != GPUSERVE_OK)
        return complain(&error);
    s.cu_seqlens = calloc((size_t)s.n + 1, sizeof(*s.cu_seqlens));
    s.input = calloc((size_t)s.n * 1000, sizeof(*s.input));
    s.counts = calloc((size_t)s.n * UNITS, sizeof(*s.counts));
    if (!s.cu_seqlens || !s.input || !s.counts)
        fprintf(stderr, "out of memory for %d sequences\n", s.n);
    else if (pack(&s) == 0)
        failed = run(compute, &s);
    free(s.cu_seqlens), free(s.input), free(s.counts);
    gpuserve_compute_close(&compute);
    return failed;
}
