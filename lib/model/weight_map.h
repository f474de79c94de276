/*
 * weight_map.h - functions shared by the files that find the weights of a model by name and add
 * them to the items of a gsv_spec.
 */
#ifndef GSV_MODEL_WEIGHT_MAP_H
#define GSV_MODEL_WEIGHT_MAP_H

#include "lib/model/spec.h"

#define GSV_TENSOR_NAME_BYTES 192

/* Context of the search, to keep argument lists short. */
struct gsv_collector {
    struct gsv_spec *spec;
    const struct gsv_checkpoint *from;
    const char *prefix;
    gpuserve_error *error;
};

/* The first of the names "a|b" that the checkpoint has with this suffix; false if it has none.
 * `full` receives the tensor's name, or the first name. */
bool gsv_lookup(const struct gsv_collector *c, struct gsv_tensor *tensor, const char *names,
                const char *suffix, char full[GSV_TENSOR_NAME_BYTES]);

/* As gsv_lookup(), but a weight with adapters has a longer name. */
bool gsv_lookup_weight(const struct gsv_collector *c, struct gsv_tensor *tensor, const char *names,
                       const char *suffix, char full[GSV_TENSOR_NAME_BYTES]);

/* Check type and shape; rows 0: a vector of `cols` elements. */
gpuserve_status gsv_check_tensor(const struct gsv_tensor *t, uint64_t rows, uint64_t cols,
                                 gpuserve_error *error);

/* Find the tensor PREFIX NAME SUFFIX, or with suffix `other` if that is not NULL. rows 0: a vector
 * of `cols` elements. Leaves a tensor that may be absent as it is. */
gpuserve_status gsv_find_tensor(const struct gsv_collector *c, struct gsv_tensor *tensor,
                                const char *name, const char *suffix, const char *other,
                                int32_t rows, int32_t cols, enum gsv_presence presence);

/* Rows [first, first + n) of a tensor with a checked shape. */
struct gsv_tensor gsv_tensor_rows(const struct gsv_tensor *whole, int32_t first, int32_t n);

/* Add an item of one part; gsv_spec.items is large enough. */
struct gsv_weight *gsv_add_item(struct gsv_spec *spec, enum gsv_weight_kind kind, int32_t n,
                                int32_t k);

/* Add gamma, then beta. A name NULL: no norm. */
gpuserve_status gsv_add_norm(const struct gsv_collector *c, const char *name, int32_t cols,
                             struct gsv_norm_items *norm);

/* Add a linear of one tensor. */
gpuserve_status gsv_add_linear(const struct gsv_collector *c, enum gsv_weight_kind kind,
                               const char *name, enum gsv_presence bias, int32_t rows, int32_t cols,
                               int32_t activation);

/* Add a table of `rows` rows; none if the name is NULL or `rows` is 0. */
gpuserve_status gsv_add_table(const struct gsv_collector *c, enum gsv_weight_kind kind,
                              const char *name, int32_t rows, int32_t cols, int32_t *index);

/* The parts of a linear: `n` tensors stacked, or, with one name for several parts, one tensor of
 * all rows. */
struct gsv_linear_parts {
    const char *names[3];
    int32_t rows[3];
    int32_t n;
    enum gsv_presence bias;
};

gpuserve_status gsv_add_parts(const struct gsv_collector *c, enum gsv_weight_kind kind,
                              const struct gsv_linear_parts *parts, int32_t cols,
                              int32_t activation);

/* `before` and `format`, whose "%d" becomes `number`. */
void gsv_name_numbered(char prefix[GSV_TENSOR_NAME_BYTES], const char *before, const char *format,
                       int32_t number);

/* The prefix of the names of layer `number`. */
void gsv_name_layer(char prefix[GSV_TENSOR_NAME_BYTES], const struct gsv_tensor_names *names,
                    const char *encoder, int32_t number);

/* Add the items of all layers and the final norm; implemented in layer_map.c. */
gpuserve_status gsv_add_layers(const struct gsv_collector *c);

/* Refuse a tensor that no item uses and that is not known to have no effect; implemented in
 * unread_tensors.c. */
gpuserve_status gsv_check_surplus(const struct gsv_spec *spec, gpuserve_error *error);

/* Add a vector of floats, unless it may be absent and is: then *index is -1. */
gpuserve_status gsv_add_vector(const struct gsv_collector *c, const char *name, const char *suffix,
                               const char *other, int32_t cols, enum gsv_presence presence,
                               int32_t *index);

/* Add the modules between the encoder and the output; implemented in step_map.c. */
gpuserve_status gsv_collect_steps(struct gsv_spec *spec, gpuserve_error *error);
/* Add the classifier of facts.scores_answers; implemented in answer_classifier.c. */
gpuserve_status gsv_collect_answers(struct gsv_spec *spec, gpuserve_error *error);

/* Add the layers of an LSTM; implemented in recurrent_map.c. */
gpuserve_status gsv_recurrent_add_layers(const struct gsv_collector *c);

/* The prefix of the encoder's tensors in a model with an entity head. */
#define GSV_ENTITY_PREFIX "token_rep_layer.bert_layer.model."
/* Add the items of the entity head, if the model has one; implemented in entity_map.c. */
gpuserve_status gsv_collect_entity_head(struct gsv_spec *spec, gpuserve_error *error);

/* Add the items after the encoder; implemented in head_map.c. */
gpuserve_status gsv_collect_heads(struct gsv_spec *spec, gpuserve_error *error);

#endif
