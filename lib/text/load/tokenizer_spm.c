/*
 * tokenizer_spm.c - reads a SentencePiece file: the Unigram tokenizer of XLM-RoBERTa, CamemBERT,
 * DeBERTa-v2, T5 or ALBERT.
 *
 * The parts equal those of transformers' conversion: Unigram; the file's charsmap, then trailing
 * white space dropped and runs of spaces replaced by one U+2581; words split at white space;
 * <s> A </s> </s> B </s>. special_tokens.h handles the special and added tokens.
 *
 * DeBERTa-v2, T5 and ALBERT have other normalizers and templates: spm_families.c.
 *
 * Ids differ from the file's in XLM-RoBERTa and CamemBERT. The file begins with <unk> <s> </s>,
 * XLM-RoBERTa with <s> <pad> </s> <unk>, CamemBERT with five tokens of its own. <mask> is the last.
 *
 * Read from the file (sentencepiece_model.proto): pieces with scores and types, the model type, the
 * charsmap. The file is scanned twice, since added tokens need the complete vocabulary.
 */
#include "lib/base/error.h"
#include "lib/base/utf8.h"
#include "lib/text/load/protobuf.h"
#include "lib/text/load/special_tokens.h"
#include "lib/text/load/spm_families.h"

#include <math.h>
#include <string.h>

/* Field numbers of sentencepiece_model.proto. */
enum { MODEL_PIECE = 1, MODEL_TRAINER = 2, MODEL_NORMALIZER = 3 };
enum { PIECE_TEXT = 1, PIECE_SCORE = 2, PIECE_TYPE = 3 };
enum { TRAINER_MODEL_TYPE = 3, TRAINER_UNK_ID = 40, NORMALIZER_CHARSMAP = 2 };
/* Enum values of sentencepiece_model.proto. */
enum { PIECE_NORMAL = 1, PIECE_CONTROL = 3, PIECE_USER_DEFINED = 4, MODEL_UNIGRAM = 1 };

enum { UNKNOWN = 3, N_OWN = 3, MAX_BEFORE = 5 };

struct named_piece {
    const char *text;
    double score;
};

/* Pieces that precede those of the file. The first n_left_out pieces of the file are skipped. */
struct layout {
    struct named_piece before[MAX_BEFORE];
    size_t n_before, n_left_out;
    bool is_file; /* the file's pieces and ids, without more */
};

static const struct layout xlm_roberta = {
    .before = { { "<s>", 0 }, { "<pad>", 0 }, { "</s>", 0 }, { "<unk>", 0 } },
    .n_before = 4,
    .n_left_out = N_OWN,
};

static const struct layout camembert = {
    .before = { { "<s>NOTUSED", 0 },
                { "<pad>", 0 },
                { "</s>NOTUSED", 0 },
                { "<unk>", 0 },
                { "<unk>NOTUSED", -100 } },
    .n_before = 5,
    .n_left_out = 1,
};

static const struct layout own_layout = { .is_file = true };

enum { BOS, EOS, UNK, SEP, PAD, CLS, MASK, N_KEYS };

static const struct gsv_special keys[N_KEYS] = {
    [BOS] = { .key = "bos_token", .usual = "<s>" },
    [EOS] = { .key = "eos_token", .usual = "</s>" },
    [UNK] = { .key = "unk_token", .usual = "<unk>" },
    [SEP] = { .key = "sep_token", .usual = "</s>" },
    [PAD] = { .key = "pad_token", .usual = "<pad>" },
    [CLS] = { .key = "cls_token", .usual = "<s>" },
    [MASK] = { .key = "mask_token", .usual = "<mask>", .flagged = true, .lstrip = true },
};

struct piece {
    struct gsv_proto_bytes text;
    float score;
    uint64_t type;
};

/* State while the file is read. */
struct tokenizer_spm_reading {
    struct gsv_tokenizer *t;
    const struct layout *layout;
    const char *name;
    size_t n_pieces;
    const struct gsv_spm_family *family; /* NULL: XLM-RoBERTa or CamemBERT */
    uint64_t model_type, unk_id;
    struct gsv_proto_bytes charsmap;
};

/* ------------------------------------------------------------------ fields */

static gpuserve_status broken(const struct tokenizer_spm_reading *r, const char *what,
                              gpuserve_error *error)
{
    return gsv_fail(error, GPUSERVE_E_FORMAT,
                    "%s: invalid %s after %zu pieces: not a SentencePiece file, or truncated",
                    r->name, what, r->n_pieces);
}

static bool is_field(const struct gsv_proto_field *field, uint32_t number, enum gsv_proto_wire wire)
{
    return field->number == number && field->wire == wire;
}

static gpuserve_status parse_piece(const struct tokenizer_spm_reading *r,
                                   struct gsv_proto_bytes message, struct piece *piece,
                                   gpuserve_error *error)
{
    struct gsv_proto_field field;

    *piece = (struct piece){ .type = PIECE_NORMAL };
    while (gsv_proto_next(&message, &field)) {
        const uint32_t bits = (uint32_t)field.value;

        if (is_field(&field, PIECE_TEXT, GSV_PROTO_BYTES))
            piece->text = field.bytes;
        else if (is_field(&field, PIECE_SCORE, GSV_PROTO_FIXED32))
            memcpy(&piece->score, &bits, sizeof(piece->score));
        else if (is_field(&field, PIECE_TYPE, GSV_PROTO_VARINT))
            piece->type = field.value;
    }
    return message.size == 0 ? GPUSERVE_OK : broken(r, "piece", error);
}

/* Find a field of a nested message; the last occurrence wins. */
static gpuserve_status find_field(const struct tokenizer_spm_reading *r,
                                  struct gsv_proto_bytes message, uint32_t number,
                                  enum gsv_proto_wire wire, struct gsv_proto_field *found,
                                  gpuserve_error *error)
{
    struct gsv_proto_field field;

    while (gsv_proto_next(&message, &field))
        if (is_field(&field, number, wire))
            *found = field;
    return message.size == 0 ? GPUSERVE_OK : broken(r, "message", error);
}

/* ------------------------------------------------------------------ the vocabulary */

static gpuserve_status add_piece(const struct tokenizer_spm_reading *r, const char *text,
                                 size_t size, double score, gpuserve_error *error)
{
    const gpuserve_status status = gsv_vocab_add_text(&r->t->vocab, text, size, r->name, error);

    return status == GPUSERVE_OK
               ? gsv_unigram_add_score(&r->t->model.unigram, score, r->name, error)
               : status;
}

static gpuserve_status add_named(const struct tokenizer_spm_reading *r, struct named_piece piece,
                                 gpuserve_error *error)
{
    return add_piece(r, piece.text, strlen(piece.text), piece.score, error);
}

static gpuserve_status take_piece(struct tokenizer_spm_reading *r, const struct piece *piece,
                                  gpuserve_error *error)
{
    static const char *const own[N_OWN] = { "<unk>", "<s>", "</s>" };
    const char *text = (const char *)piece->text.at;
    const size_t size = piece->text.size, i = r->n_pieces++;
    double score = (double)piece->score;

    if (!r->layout->is_file && i < N_OWN &&
        (size != strlen(own[i]) || memcmp(text, own[i], size) != 0))
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "%s: piece %zu is not %s, as XLM-RoBERTa requires", r->name, i, own[i]);
    if (i < r->layout->n_left_out)
        return GPUSERVE_OK;
    if (size == 0 || gsv_utf8_valid_length(text, size) != size)
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: piece %zu is %s", r->name, i,
                        size == 0 ? "empty" : "not UTF-8");
    if (!isfinite(piece->score))
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: piece %zu: the score is not a finite number",
                        r->name, i);
    if (r->family && r->family->score)
        score = r->family->score(text, size, score);
    return add_piece(r, text, size, score, error);
}

static gpuserve_status take_field(struct tokenizer_spm_reading *r,
                                  const struct gsv_proto_field *field, gpuserve_error *error)
{
    struct gsv_proto_field found = { 0 };
    gpuserve_status status = GPUSERVE_OK;
    struct piece piece;

    if (is_field(field, MODEL_PIECE, GSV_PROTO_BYTES)) {
        status = parse_piece(r, field->bytes, &piece, error);
        return status == GPUSERVE_OK ? take_piece(r, &piece, error) : status;
    }
    if (is_field(field, MODEL_TRAINER, GSV_PROTO_BYTES)) {
        found.value = r->model_type;
        status = find_field(r, field->bytes, TRAINER_MODEL_TYPE, GSV_PROTO_VARINT, &found, error);
        r->model_type = found.value;
        found.value = r->unk_id;
        if (status == GPUSERVE_OK)
            status = find_field(r, field->bytes, TRAINER_UNK_ID, GSV_PROTO_VARINT, &found, error);
        r->unk_id = found.value;
    } else if (is_field(field, MODEL_NORMALIZER, GSV_PROTO_BYTES)) {
        found.bytes = r->charsmap;
        status = find_field(r, field->bytes, NORMALIZER_CHARSMAP, GSV_PROTO_BYTES, &found, error);
        r->charsmap = found.bytes;
    }
    return status;
}

static gpuserve_status read_pieces(struct tokenizer_spm_reading *r, struct gsv_proto_bytes file,
                                   gpuserve_error *error)
{
    struct gsv_proto_field field;
    gpuserve_status status = GPUSERVE_OK;

    while (status == GPUSERVE_OK && gsv_proto_next(&file, &field))
        status = take_field(r, &field, error);
    if (status == GPUSERVE_OK && file.size > 0)
        return broken(r, "field", error);
    if (status == GPUSERVE_OK && r->n_pieces < N_OWN)
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: the file has only %zu pieces", r->name,
                        r->n_pieces);
    if (status == GPUSERVE_OK && r->model_type != MODEL_UNIGRAM)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "%s: model type %llu is not supported, only Unigram (1)", r->name,
                        (unsigned long long)r->model_type);
    return status;
}

static gpuserve_status read_vocab(struct tokenizer_spm_reading *r, struct gsv_proto_bytes file,
                                  gpuserve_error *error)
{
    struct gsv_vocab *const vocab = &r->t->vocab;
    /* The pieces' text is no larger than the file; 64 bytes more hold the named pieces. */
    gpuserve_status status = gsv_vocab_reserve(vocab, file.size + 64, r->name, error);

    for (size_t i = 0; i < r->layout->n_before && status == GPUSERVE_OK; i++)
        status = add_named(r, r->layout->before[i], error);
    if (status == GPUSERVE_OK)
        status = read_pieces(r, file, error);
    if (status == GPUSERVE_OK && !r->layout->is_file)
        status = add_named(r, (struct named_piece){ "<mask>", 0 }, error);
    return status == GPUSERVE_OK ? gsv_vocab_finish(vocab, r->name, error) : status;
}

/* Add control pieces as special tokens and user-defined pieces as added tokens. */
static gpuserve_status add_tokens(const struct tokenizer_spm_reading *r,
                                  struct gsv_proto_bytes file, gpuserve_error *error)
{
    struct gsv_tokenizer *const t = r->t;
    struct gsv_proto_field field;
    gpuserve_status status = GPUSERVE_OK;

    while (status == GPUSERVE_OK && gsv_proto_next(&file, &field)) {
        struct piece piece;

        if (!is_field(&field, MODEL_PIECE, GSV_PROTO_BYTES))
            continue;
        status = parse_piece(r, field.bytes, &piece, error);
        if (status == GPUSERVE_OK &&
            (piece.type == PIECE_CONTROL || piece.type == PIECE_USER_DEFINED))
            status =
                gsv_added_add(&t->added,
                              (struct gsv_added_token){ .content = (char *)(uintptr_t)piece.text.at,
                                                        .size = piece.text.size,
                                                        .special = piece.type == PIECE_CONTROL },
                              &t->vocab, r->name, error);
    }
    return status;
}

/* Add CamemBERT's unused tokens as special tokens, unless a file has
 * "additional_special_tokens". */
static gpuserve_status add_unused(const struct tokenizer_spm_reading *r,
                                  const struct gsv_vocab_files *files, gpuserve_error *error)
{
    static const char key[] = "additional_special_tokens";
    static const char *const unused[] = { "<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED" };
    gpuserve_status status = GPUSERVE_OK;

    if (gsv_json_member(files->config, key) || gsv_json_member(files->specials, key))
        return GPUSERVE_OK;
    for (size_t i = 0; i < sizeof(unused) / sizeof(unused[0]) && status == GPUSERVE_OK; i++)
        status = gsv_added_add(&r->t->added,
                               (struct gsv_added_token){ .content = (char *)(uintptr_t)unused[i],
                                                         .size = strlen(unused[i]),
                                                         .special = true },
                               &r->t->vocab, r->name, error);
    return status;
}

static gpuserve_status read_family(struct gsv_tokenizer *t, const struct gsv_spm_family *family,
                                   const struct gsv_text_file *model,
                                   const struct gsv_vocab_files *files, gpuserve_error *error)
{
    const struct gsv_proto_bytes file = { (const unsigned char *)model->text, model->size };
    struct tokenizer_spm_reading r = { .t = t,
                                       .layout = &own_layout,
                                       .family = family,
                                       .name = model->name,
                                       .model_type = MODEL_UNIGRAM };
    gpuserve_status status = gsv_vocab_reserve(&t->vocab, file.size, r.name, error);

    t->model.kind = GSV_UNIGRAM;
    if (status == GPUSERVE_OK)
        status = read_pieces(&r, file, error);
    if (status == GPUSERVE_OK && family->add_pieces)
        status = family->add_pieces(t, files, r.name, error);
    if (status == GPUSERVE_OK)
        status = gsv_vocab_finish(&t->vocab, r.name, error);
    if (status == GPUSERVE_OK && r.unk_id >= r.n_pieces)
        status = gsv_fail(error, GPUSERVE_E_FORMAT, "%s: unk_id is %llu, the file has %zu pieces",
                          r.name, (unsigned long long)r.unk_id, r.n_pieces);
    t->model.unigram.unknown = (int32_t)r.unk_id;
    if (status == GPUSERVE_OK)
        status = add_tokens(&r, file, error);
    return status == GPUSERVE_OK ? family->finish(t, files, r.charsmap, r.name, error) : status;
}

gpuserve_status gsv_tokenizer_read_spm(struct gsv_tokenizer *t, enum gsv_tokenizer_class class,
                                       const struct gsv_text_file *model,
                                       const struct gsv_vocab_files *files, gpuserve_error *error)
{
    const struct gsv_proto_bytes file = { (const unsigned char *)model->text, model->size };
    const bool is_camembert = class == GSV_CLASS_CAMEMBERT;
    struct tokenizer_spm_reading r = { .t = t,
                                       .layout = is_camembert ? &camembert : &xlm_roberta,
                                       .name = model->name,
                                       .model_type = MODEL_UNIGRAM };
    const struct gsv_spm_family *family = gsv_spm_family_of(class);
    int32_t ids[N_KEYS];
    gpuserve_status status;

    if (family)
        return read_family(t, family, model, files, error);
    status = read_vocab(&r, file, error);
    t->model.kind = GSV_UNIGRAM;
    t->model.unigram.unknown = UNKNOWN;
    if (status == GPUSERVE_OK)
        status = add_tokens(&r, file, error);
    if (status == GPUSERVE_OK)
        status = gsv_specials_read(t, files, keys, N_KEYS, ids, r.name, error);
    if (status == GPUSERVE_OK && is_camembert)
        status = add_unused(&r, files, error);
    if (status == GPUSERVE_OK)
        status = gsv_normalizer_spm(&t->normalizer, r.charsmap.at, r.charsmap.size, r.name, error);
    if (status == GPUSERVE_OK)
        status = gsv_decoder_metaspace(&t->decoder, r.name, error);
    if (status != GPUSERVE_OK)
        return status;
    gsv_pretokenizer_metaspace(&t->pretokenizer);
    /* always <s> and </s>, independent of cls_token and sep_token, as in transformers */
    gsv_post_processor_roberta(&t->post, gsv_vocab_id(&t->vocab, "<s>", 3),
                               gsv_vocab_id(&t->vocab, "</s>", 4));
    return GPUSERVE_OK;
}
