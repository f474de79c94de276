/*
 * lora.h - LoRA adapters in PEFT's format, merged into the weights of their base model.
 *
 *   DIR/adapter_config.json, DIR/adapter_model.safetensors   W' = W + scale B A
 *   with "use_dora": V = W + scale B A                       W' = m V / |V|
 *
 * A model directory with adapter_config.json is an adapter: what it lacks is in the directory of
 * its base model (gsv_dir_set_base()). Its weights are the base's, with each targeted tensor
 * computed when it is read. Formula: "LoRA: Low-Rank Adaptation of Large Language Models",
 * arXiv:2106.09685, section 4.1; scale: alpha / rank, or alpha / sqrt(rank) (rsLoRA,
 * arXiv:2312.03732). DoRA has a magnitude m for each row of W, and for each column of an embedding
 * table, divided by the length of that row or column (arXiv:2402.09353, equation 5, and PEFT).
 */
#ifndef GSV_MODEL_LORA_H
#define GSV_MODEL_LORA_H

#include "lib/model/formats/checkpoint.h"

#define GSV_LORA_CONFIG "adapter_config.json"

/* The name or path of the base model that adapter_config.json states, owned, NAME@REVISION if it
 * states a revision; NULL: the directory is no adapter. */
gpuserve_status gsv_lora_base(char **base, const struct gsv_dir *dir, gpuserve_error *error);

/* The end of the name of the class that the adapter was trained in ("ForSequenceClassification"),
 * static; NULL if the directory is no adapter, has a config.json of its own, or computes
 * embeddings. */
gpuserve_status gsv_lora_class(const char **ending, const struct gsv_dir *dir,
                               gpuserve_error *error);

/* The settings of adapter_config.json that the scales depend on. */
struct gsv_lora_settings {
    struct gsv_json_value *json;
    double alpha;
    bool is_rank_stabilized;
    bool has_magnitudes;                 /* DoRA */
    const struct gsv_json_value *alphas; /* "alpha_pattern", of `json` */
};

/* GPUSERVE_E_UNSUPPORTED names a setting that changes the formula and is not implemented. */
gpuserve_status gsv_lora_settings_read(struct gsv_lora_settings *settings,
                                       const struct gsv_dir *dir, gpuserve_error *error);
void gsv_lora_settings_reset(struct gsv_lora_settings *settings);

/* The factor of the product for a module with factors of this rank. */
gpuserve_status gsv_lora_scale(float *scale, const struct gsv_lora_settings *settings,
                               const char *module, size_t rank, gpuserve_error *error);

/* Open the tensors of the adapter in `dir`: the merged ones under the names of `base`, which stays
 * open longer, and those that the adapter has whole (modules_to_save). GPUSERVE_E_FORMAT or
 * GPUSERVE_E_UNSUPPORTED names the tensor or field that does not fit. */
gpuserve_status gsv_lora_open(struct gsv_weight_file **file, const struct gsv_dir *dir,
                              const struct gsv_checkpoint *base, gpuserve_error *error);

/* The two factors of a tensor of the base, or of some rows of one: W' = W + left right. Borrowed
 * from the file. */
struct gsv_lora_factors {
    const float *left;  /* [rows, rank], with the scale */
    const float *right; /* [rank, columns] */
    size_t rank;
};
/* False if the adapter has none for the tensor. */
bool gsv_lora_factors(const struct gsv_weight_file *file, const struct gsv_tensor *tensor,
                      struct gsv_lora_factors *factors);

/* Facts of a file that gsv_lora_open() has opened. */
struct gsv_lora_facts {
    size_t n_whole;      /* tensors that the adapter has whole */
    bool has_magnitudes; /* DoRA: the factors alone do not give the sum */
    uint64_t scales;     /* changes with any scale */
    uint64_t bytes;      /* of the factors in memory */
};
void gsv_lora_read_facts(const struct gsv_weight_file *file, struct gsv_lora_facts *facts);

#endif
