/*
 * data.c - labelled texts in memory: reading, label order, split, sample and folds.
 *
 * Reads CSV or JSON Lines through io/input.c. Texts are stored concatenated, with an array of
 * offsets. Split, sample and folds depend only on a hash of each text and the seed, not on the
 * order of the file. The first position of each label is kept for messages.
 */
#include "cli/fit/fit.h"
#include "cli/io/input.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int32_t label_index(struct fit_labels *labels, const char *text, size_t size,
                           const struct cli_input *input)
{
    struct fit_label *label = labels->items;

    for (; label < labels->items + labels->n; label++) {
        if (strlen(label->given) == size && memcmp(label->given, text, size) == 0)
            return (int32_t)(label - labels->items);
    }
    if (labels->n == FIT_LABELS)
        return -1;
    *label = (struct fit_label){ .given = cli_copy(text, size), .where = cli_input_where(input) };
    return (int32_t)labels->n++;
}

void cli_fit_add(struct fit_set *set, const char *text, size_t size, int32_t label)
{
    set->bytes = cli_grow(set->bytes, &set->bytes_capacity, set->n_bytes + size, 1);
    set->offsets =
        cli_grow(set->offsets, &set->offsets_capacity, set->n + 2, sizeof(*set->offsets));
    set->labels = cli_grow(set->labels, &set->labels_capacity, set->n + 1, sizeof(*set->labels));
    if (size)
        memcpy(set->bytes + set->n_bytes, text, size);
    set->offsets[set->n] = set->n_bytes;
    set->n_bytes += size;
    set->labels[set->n++] = label;
    set->offsets[set->n] = set->n_bytes;
}

static int add_record(struct fit_set *set, struct fit_labels *labels,
                      const struct cli_record *record, const struct cli_input *input)
{
    int32_t label;
    char *where = NULL;

    if (memchr(record->second, '\0', record->second_size) || record->second_size == 0)
        label = -1;
    else
        label = label_index(labels, record->second, record->second_size, input);
    if (label >= 0) {
        cli_fit_add(set, record->text, record->text_size, label);
        return CLI_OK;
    }
    where = cli_input_where(input);
    if (labels->n == FIT_LABELS)
        cli_fail("%s: more than %d labels; is --label-column the right one?", where, FIT_LABELS);
    else
        cli_fail("%s: a label is empty", where);
    free(where);
    return CLI_FAILED;
}

int cli_fit_check_where(const struct cli_args *args)
{
    for (size_t i = 0; i < args->where.n; i++) {
        if (!strchr(args->where.items[i], '='))
            return cli_usage("--where %s: expected COLUMN=VALUE", args->where.items[i]);
    }
    return CLI_OK;
}

int cli_fit_read(struct fit_set *set, struct fit_labels *labels, const char *path,
                 const struct cli_args *args)
{
    struct cli_record record;
    struct cli_input input;
    int found = 0, result = CLI_OK;

    if (cli_input_open(&input, path, args->input_format, args->text_column,
                       args->label_column ? args->label_column : "label", NULL,
                       &args->where) != CLI_OK)
        return CLI_FAILED;
    if (input.format == CLI_INPUT_LINES) {
        cli_input_close(&input);
        return cli_fail("%s: a file of labelled texts must be .csv or .jsonl", path);
    }
    while (result == CLI_OK && (found = cli_input_next(&input, &record)) > 0)
        result = add_record(set, labels, &record, &input);
    cli_input_close(&input);
    if (found < 0)
        return CLI_FAILED;
    if (result == CLI_OK && set->n == 0)
        return cli_fail("%s: the file has no labelled texts", path);
    return result;
}

void cli_fit_set_free(struct fit_set *set)
{
    free(set->bytes);
    free(set->offsets);
    free(set->labels);
    free(set->vectors);
    memset(set, 0, sizeof(*set));
}

/* -------------------------------------------------------------------------------------- labels */

void cli_fit_labels_free(struct fit_labels *labels)
{
    for (size_t i = 0; i < labels->n; i++) {
        free(labels->items[i].given);
        free(labels->items[i].where);
    }
    labels->n = 0;
}

static bool is_integer(const char *text)
{
    char *end;

    errno = 0;
    strtol(text, &end, 10);
    return end != text && !*end && errno == 0;
}

static int by_number(const void *a, const void *b)
{
    const long x = strtol(((const struct fit_label *)a)->given, NULL, 10);
    const long y = strtol(((const struct fit_label *)b)->given, NULL, 10);

    return (x > y) - (x < y);
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(((const struct fit_label *)a)->given, ((const struct fit_label *)b)->given);
}

static size_t index_of(const struct fit_labels *labels, const char *text, size_t size)
{
    size_t i = 0;

    while (i < labels->n &&
           (strncmp(labels->items[i].given, text, size) != 0 || labels->items[i].given[size]))
        i++;
    return i;
}

static int rename_labels(struct fit_labels *labels, const struct cli_list *names)
{
    for (size_t i = 0; i < names->n; i++) {
        const char *equals = strchr(names->items[i], '=');
        size_t label;

        if (!equals || !equals[1])
            return cli_usage("--label-name %s: expected OLD=NEW", names->items[i]);
        label = index_of(labels, names->items[i], (size_t)(equals - names->items[i]));
        if (label == labels->n)
            return cli_fail("--label-name %s: the data has no label OLD", names->items[i]);
        labels->items[label].name = equals + 1;
    }
    return CLI_OK;
}

int cli_fit_order_labels(struct fit_labels *labels, struct fit_set *const *sets, size_t n_sets,
                         const struct cli_list *names)
{
    char **before = cli_alloc(labels->n, sizeof(*before));
    int32_t *sorted_ids = cli_alloc(labels->n, sizeof(*sorted_ids));
    bool numbers = true;

    for (size_t i = 0; i < labels->n; i++) {
        before[i] = labels->items[i].given;
        numbers = numbers && is_integer(before[i]);
    }
    qsort(labels->items, labels->n, sizeof(*labels->items), numbers ? by_number : by_bytes);
    for (size_t i = 0; i < labels->n; i++) {
        sorted_ids[i] = (int32_t)index_of(labels, before[i], strlen(before[i]));
        labels->items[i].name = labels->items[i].given;
    }
    for (size_t s = 0; s < n_sets; s++) {
        for (size_t i = 0; i < sets[s]->n; i++)
            sets[s]->labels[i] = sorted_ids[sets[s]->labels[i]];
    }
    free(before);
    free(sorted_ids);
    return rename_labels(labels, names);
}

static int unknown_label(const struct fit_label *label, const gpuserve_model *model)
{
    const size_t n = gpuserve_model_label_count(model);
    char names[256] = "";

    for (size_t i = 0; i < n; i++) {
        strncat(names, i ? ", " : "", sizeof(names) - strlen(names) - 1);
        strncat(names, gpuserve_model_label(model, i), sizeof(names) - strlen(names) - 1);
    }
    cli_fail("%s: label \"%s\": the model has no label \"%s\"", label->where, label->given,
             label->name);
    cli_hint("the model's labels are %s; --label-name OLD=NEW renames a label of the data", names);
    return CLI_FAILED;
}

int cli_fit_map_labels(int32_t *map, const struct fit_labels *labels, const gpuserve_model *model)
{
    const size_t n = gpuserve_model_label_count(model);

    for (size_t i = 0; i < labels->n; i++) {
        const struct fit_label *label = &labels->items[i];
        size_t j = 0;

        while (j < n && strcmp(gpuserve_model_label(model, j), label->name) != 0)
            j++;
        if (j == n)
            return unknown_label(label, model);
        map[i] = (int32_t)j;
    }
    return CLI_OK;
}

int cli_fit_check_labels(const struct fit_labels *labels, const struct fit_set *train,
                         const char *path)
{
    bool *is_trained = cli_alloc(labels->n, sizeof(*is_trained));
    int result = CLI_OK;

    for (size_t i = 0; i < train->n; i++)
        is_trained[train->labels[i]] = true;
    for (size_t i = 0; i < labels->n && result == CLI_OK; i++) {
        const struct fit_label *label = &labels->items[i];

        if (!is_trained[i])
            result =
                cli_fail("%s: label \"%s\" has no text in %s", label->where, label->given, path);
        for (size_t j = 0; j < i && result == CLI_OK; j++) {
            if (strcmp(label->name, labels->items[j].name) == 0)
                result =
                    cli_usage("--label-name: labels \"%s\" and \"%s\" have the same name \"%s\"",
                              labels->items[j].given, label->given, label->name);
        }
    }
    free(is_trained);
    return result;
}

/* ----------------------------------------------------------------------- split, sample and folds
 */

/* Added to the seed, so that split, sample and folds are independent of each other: after the split
 * all remaining hashes are above its threshold. */
enum { SPLIT_SEED, SAMPLE_SEED, FOLD_SEED };

static const char *text_of(const struct fit_set *set, size_t i, size_t *size)
{
    *size = set->offsets[i + 1] - set->offsets[i];
    return set->bytes + set->offsets[i];
}

/* FNV-1a hash with a final mixing step: the high bits of FNV-1a are too regular for short texts. */
static uint64_t text_hash(const struct fit_set *set, size_t i, uint64_t seed)
{
    uint64_t hash = 0xcbf29ce484222325u ^ (seed * 0x9e3779b97f4a7c15u);
    size_t size;
    const char *text = text_of(set, i, &size);

    for (size_t j = 0; j < size; j++)
        hash = (hash ^ (unsigned char)text[j]) * 0x100000001b3u;
    hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccdu;
    return hash ^ (hash >> 29);
}

void cli_fit_split(struct fit_set *from, struct fit_set *to, double part, uint64_t seed)
{
    struct fit_set kept = { 0 };
    size_t size;

    for (size_t i = 0; i < from->n; i++) {
        const double fraction = (double)(text_hash(from, i, seed + SPLIT_SEED) >> 11) * 0x1p-53;
        const char *text = text_of(from, i, &size);

        cli_fit_add(fraction < part ? to : &kept, text, size, from->labels[i]);
    }
    cli_fit_set_free(from);
    *from = kept;
}

struct hashed {
    uint64_t hash;
    size_t text;
    int32_t label;
};

static int by_hash(const void *a, const void *b)
{
    const struct hashed *x = a, *y = b;

    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    return (x->text > y->text) - (x->text < y->text);
}

/* Hashes of all texts, sorted. Owned. */
static struct hashed *hashes(const struct fit_set *set, uint64_t seed)
{
    struct hashed *all = cli_alloc(set->n, sizeof(*all));

    for (size_t i = 0; i < set->n; i++)
        all[i] = (struct hashed){ text_hash(set, i, seed), i, set->labels[i] };
    qsort(all, set->n, sizeof(*all), by_hash);
    return all;
}

static int by_label_and_hash(const void *a, const void *b)
{
    const struct hashed *x = a, *y = b;

    return x->label != y->label ? (x->label > y->label) - (x->label < y->label) : by_hash(a, b);
}

/* How many of the first of n sorted hashes are of `part`; never between equal ones. 0 if all are
 * equal. */
static size_t part_of(const struct hashed *all, size_t n, double part)
{
    size_t k = (size_t)(part * (double)n + 0.5);

    if (k == 0)
        k = 1;
    while (k < n && all[k].hash == all[k - 1].hash)
        k++;
    if (k < n)
        return k;
    for (k = n - 1; k && all[k].hash == all[k - 1].hash;)
        k--;
    return k;
}

/* Sets moves[i] of each text that moves. */
static int select_part(bool *moves, const struct fit_set *set, const struct fit_labels *labels,
                       double part, uint64_t seed)
{
    struct hashed *all = hashes(set, seed + SPLIT_SEED);
    int result = CLI_OK;

    qsort(all, set->n, sizeof(*all), by_label_and_hash);
    for (size_t i = 0, end; i < set->n && result == CLI_OK; i = end) {
        const struct fit_label *label = &labels->items[all[i].label];
        size_t n;

        for (end = i + 1; end < set->n && all[end].label == all[i].label;)
            end++;
        n = part_of(all + i, end - i, part);
        for (size_t j = i; j < i + n; j++)
            moves[all[j].text] = true;
        if (n == 0)
            result = cli_fail("%s: label \"%s\" has %s, a split needs two different texts or more",
                              label->where, label->given,
                              end - i == 1 ? "one text" : "equal texts only");
    }
    free(all);
    return result;
}

int cli_fit_split_labels(struct fit_set *from, struct fit_set *to, const struct fit_labels *labels,
                         double part, uint64_t seed)
{
    struct fit_set kept = { 0 };
    bool *moves = cli_alloc(from->n, sizeof(*moves));
    const int result = select_part(moves, from, labels, part, seed);
    size_t size;

    for (size_t i = 0; i < from->n && result == CLI_OK; i++) {
        const char *text = text_of(from, i, &size);

        cli_fit_add(moves[i] ? to : &kept, text, size, from->labels[i]);
    }
    free(moves);
    if (result != CLI_OK)
        return result;
    cli_fit_set_free(from);
    *from = kept;
    return CLI_OK;
}

void cli_fit_sample(struct fit_set *set, size_t limit, uint64_t seed)
{
    struct fit_set kept = { 0 };
    struct hashed *all;
    size_t size;

    if (set->n <= limit)
        return;
    all = hashes(set, seed + SAMPLE_SEED);
    for (size_t i = 0; i < limit; i++) {
        const char *text = text_of(set, all[i].text, &size);

        cli_fit_add(&kept, text, size, set->labels[all[i].text]);
    }
    free(all);
    cli_fit_set_free(set);
    *set = kept;
}

size_t cli_fit_common(const struct fit_set *a, const struct fit_set *b)
{
    struct hashed *in_a = hashes(a, 0), *in_b = hashes(b, 0);
    size_t n = 0;

    /* Equal 64-bit hashes count as equal texts: the number is only reported. */
    for (size_t i = 0, j = 0; i < a->n && j < b->n;) {
        if (in_a[i].hash == in_b[j].hash) {
            n++;
            i++;
        } else if (in_a[i].hash < in_b[j].hash) {
            i++;
        } else {
            j++;
        }
    }
    free(in_a);
    free(in_b);
    return n;
}

/* ---------------------------------------------------------------------------------------- folds */

/* Equal texts: all[first] to all[first + n - 1] of the sorted hashes. */
struct equal_texts {
    size_t first, n;
    uint64_t hash;
    int32_t label; /* the lowest of theirs */
};

/* Most texts first within a label: the single ones then even out the folds. */
static int by_label_and_size(const void *a, const void *b)
{
    const struct equal_texts *x = a, *y = b;

    if (x->label != y->label)
        return x->label < y->label ? -1 : 1;
    if (x->n != y->n)
        return x->n > y->n ? -1 : 1;
    return (x->hash > y->hash) - (x->hash < y->hash);
}

/* Groups of equal texts, sorted by label. Owned; NULL is never returned. */
static struct equal_texts *equal_texts(const struct hashed *all, size_t n, size_t *n_groups)
{
    struct equal_texts *groups = cli_alloc(n, sizeof(*groups));

    *n_groups = 0;
    for (size_t i = 0; i < n; i++) {
        struct equal_texts *group = groups + *n_groups;

        if (i && all[i].hash == all[i - 1].hash) {
            group[-1].n++;
            if (all[i].label < group[-1].label)
                group[-1].label = all[i].label;
            continue;
        }
        *group = (struct equal_texts){ i, 1, all[i].hash, all[i].label };
        ++*n_groups;
    }
    qsort(groups, *n_groups, sizeof(*groups), by_label_and_size);
    return groups;
}

/* The fold with the fewest texts of the label, then with the fewest texts, then the first. */
static size_t smallest_fold(const size_t *n_of_label, const size_t *sizes, size_t n)
{
    size_t best = 0;

    for (size_t k = 1; k < n; k++) {
        if (n_of_label[k] < n_of_label[best] ||
            (n_of_label[k] == n_of_label[best] && sizes[k] < sizes[best]))
            best = k;
    }
    return best;
}

/* Writes the fold of each text to fold_of[set->n] and the number of texts to sizes[n]. */
static void assign_folds(size_t *fold_of, size_t *sizes, const struct fit_set *set, size_t n,
                         uint64_t seed)
{
    struct hashed *all = hashes(set, seed + FOLD_SEED);
    size_t n_groups, *n_of_label = cli_alloc(n, sizeof(*n_of_label));
    struct equal_texts *groups = equal_texts(all, set->n, &n_groups);

    for (size_t i = 0; i < n_groups; i++) {
        size_t fold;

        if (i && groups[i].label != groups[i - 1].label)
            memset(n_of_label, 0, n * sizeof(*n_of_label));
        fold = smallest_fold(n_of_label, sizes, n);
        for (size_t j = 0; j < groups[i].n; j++)
            fold_of[all[groups[i].first + j].text] = fold;
        n_of_label[fold] += groups[i].n;
        sizes[fold] += groups[i].n;
    }
    free(groups);
    free(n_of_label);
    free(all);
}

void cli_fit_folds_init(struct fit_folds *folds, const struct fit_set *set, size_t n, uint64_t seed)
{
    size_t *fold_of = cli_alloc(set->n, sizeof(*fold_of)), *next = cli_alloc(n, sizeof(*next));

    folds->n = n;
    folds->starts = cli_alloc(n + 1, sizeof(*folds->starts));
    folds->rows = cli_alloc(set->n, 2 * sizeof(*folds->rows));
    assign_folds(fold_of, folds->starts + 1, set, n, seed);
    for (size_t k = 0; k < n; k++) {
        next[k] = folds->starts[k];
        folds->starts[k + 1] += folds->starts[k];
    }
    for (size_t i = 0; i < set->n; i++)
        folds->rows[next[fold_of[i]]++] = i;
    memcpy(folds->rows + set->n, folds->rows, set->n * sizeof(*folds->rows));
    free(fold_of);
    free(next);
}

void cli_fit_folds_free(struct fit_folds *folds)
{
    free(folds->starts);
    free(folds->rows);
    memset(folds, 0, sizeof(*folds));
}

struct fit_part cli_fit_fold(const struct fit_folds *folds, const struct fit_set *set, size_t k)
{
    return (struct fit_part){ .set = set,
                              .rows = folds->rows + folds->starts[k],
                              .n = folds->starts[k + 1] - folds->starts[k] };
}

struct fit_part cli_fit_other_folds(const struct fit_folds *folds, const struct fit_set *set,
                                    size_t k)
{
    return (struct fit_part){ .set = set,
                              .rows = folds->rows + folds->starts[k + 1],
                              .n = set->n - cli_fit_fold(folds, set, k).n };
}

size_t cli_fit_rarest_label(const struct fit_set *set, size_t *n_texts)
{
    struct hashed *all = hashes(set, 0);
    size_t rarest = 0;

    *n_texts = SIZE_MAX;
    qsort(all, set->n, sizeof(*all), by_label_and_hash);
    for (size_t i = 0, end, n; i < set->n; i = end) {
        for (end = i + 1, n = 1; end < set->n && all[end].label == all[i].label; end++)
            n += all[end].hash != all[end - 1].hash;
        if (n < *n_texts) {
            *n_texts = n;
            rarest = (size_t)all[i].label;
        }
    }
    free(all);
    return rarest;
}
