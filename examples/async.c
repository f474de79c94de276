/*
 * async.c - several threads submit asynchronous requests; one callback counts the results.
 *
 *   async MODEL
 *
 * The library computes requests of all threads in common batches. The callback runs on a library
 * thread, so it only records the result. The submitting thread waits for its requests and frees
 * them.
 */
#include <gpuserve/gpuserve.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { N_THREADS = 4, N_REQUESTS = 8 };

struct producer {
    pthread_t thread;
    gpuserve_model *model;
    atomic_int *n_done; /* shared by all threads */
    int n_failed;
};

static void on_completion(void *user, gpuserve_request *request, gpuserve_status status)
{
    (void)request;
    if (status == GPUSERVE_OK)
        atomic_fetch_add((atomic_int *)user, 1);
}

static int submit(struct producer *producer, gpuserve_request **request, const char *const *text,
                  float *vector)
{
    gpuserve_job job = GPUSERVE_JOB_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    job.n_items = 1;
    job.texts = text;
    job.output = vector;
    job.output_capacity = gpuserve_model_dim(producer->model);
    if (gpuserve_submit(request, producer->model, &job, on_completion, producer->n_done, &error) ==
        GPUSERVE_OK)
        return 0;
    fprintf(stderr, "%s\n%s\n", error.message, error.hint);
    return 1;
}

static void *produce(void *argument)
{
    static const char *const texts[] = { "one", "two sheep", "three green bottles",
                                         "four calling birds and a partridge" };
    struct producer *producer = argument;
    const size_t dim = gpuserve_model_dim(producer->model);
    gpuserve_request *requests[N_REQUESTS] = { NULL };
    float *vectors = calloc(N_REQUESTS * dim, sizeof(*vectors));

    for (int i = 0; vectors && i < N_REQUESTS; i++)
        producer->n_failed += submit(producer, &requests[i], &texts[i % 4], vectors + i * dim);
    for (int i = 0; vectors && i < N_REQUESTS; i++) {
        gpuserve_error error = GPUSERVE_ERROR_INIT;

        if (requests[i] && gpuserve_wait(requests[i], -1, &error) != GPUSERVE_OK) {
            fprintf(stderr, "%s\n", error.message);
            producer->n_failed++;
        }
        gpuserve_request_free(&requests[i]); /* returns after the callback has run */
    }
    producer->n_failed += vectors ? 0 : N_REQUESTS;
    free(vectors);
    return NULL;
}

int main(int argc, char **argv)
{
    struct producer producers[N_THREADS] = { 0 };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = NULL;
    atomic_int n_done = 0;
    int n_started = 0, n_failed = 0;

    if (argc != 2) {
        fprintf(stderr, "usage: async MODEL\n");
        return 2;
    }
    if (gpuserve_model_open(&model, NULL, argv[1], NULL, &error) != GPUSERVE_OK) {
        fprintf(stderr, "%s\n%s\n", error.message, error.hint);
        return 1;
    }
    for (; n_started < N_THREADS; n_started++) {
        producers[n_started].model = model;
        producers[n_started].n_done = &n_done;
        if (pthread_create(&producers[n_started].thread, NULL, produce, &producers[n_started]) != 0)
            break;
    }
    for (int i = 0; i < n_started; i++) {
        pthread_join(producers[i].thread, NULL);
        n_failed += producers[i].n_failed;
    }
    gpuserve_model_close(&model);
    printf("%d requests of %d threads\n", atomic_load(&n_done), n_started);
    return n_failed > 0 || n_started < N_THREADS;
}
