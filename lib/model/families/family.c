/*
 * family.c - finds an encoder family by its model type or by the name of its class.
 */
#include "lib/model/families/family.h"

#include <string.h>

/* Family `i` of all tables in order; NULL after the last one. */
static const struct gsv_family *family_at(size_t i)
{
    const struct {
        const struct gsv_family *rows;
        size_t n;
    } tables[] = {
        { gsv_bert_families, gsv_bert_families_count },
        { gsv_deberta_families, gsv_deberta_families_count },
        { gsv_rotary_families, gsv_rotary_families_count },
        { gsv_decoder_families, gsv_decoder_families_count },
        { gsv_pair_families, gsv_pair_families_count },
    };

    for (size_t t = 0; t < sizeof(tables) / sizeof(tables[0]); t++) {
        if (i < tables[t].n)
            return &tables[t].rows[i];
        i -= tables[t].n;
    }
    return NULL;
}

bool gsv_family_has_class(const struct gsv_family *family, const char *architecture)
{
    for (const char *const *class = family->classes; *class; class ++) {
        const size_t length = strlen(*class);
        const char *rest = architecture + length;

        if (strncmp(architecture, *class, length) != 0)
            continue;
        if (*rest == '\0' || strcmp(rest, "Model") == 0 || strcmp(rest, "TextModel") == 0 ||
            strcmp(rest, "EncoderModel") == 0 || strncmp(rest, "For", 3) == 0)
            return true;
    }
    return false;
}

const struct gsv_family *gsv_family_find(const char *model_type, const char *architecture)
{
    const struct gsv_family *family;

    for (size_t i = 0; (family = family_at(i)) != NULL; i++) {
        if (!model_type && architecture && gsv_family_has_class(family, architecture))
            return family;
        for (const char *const *type = family->model_types; model_type && *type; type++)
            if (strcmp(*type, model_type) == 0 &&
                (!architecture || gsv_family_has_class(family, architecture)))
                return family;
    }
    return NULL;
}

const char *gsv_family_names(void)
{
    return "bert, roberta, xlm-roberta, camembert, mpnet, distilbert, albert, electra, ernie, "
           "big_bird, megatron-bert, roberta-prelayernorm, xlm-roberta-xl, rembert, mobilebert, "
           "longformer, "
           "deberta, deberta-v2, modernbert, eurobert, nomic_bert, gte, new, jina_embeddings_v3, "
           "jina_bert_v2, t5, mt5, "
           "umt5, clip_text_model, qwen2, qwen3, mistral, llama, llama_bidirec, gemma2, "
           "gemma3_text, bart";
}
