/*
 * test_spm.c - SentencePiece files that are damaged, truncated, or unlike XLM-RoBERTa's.
 *
 * Results of valid files are compared in test_merges_files.c.
 */
#include "lib/text/load/protobuf.h"
#include "lib/text/tokenizer_parts.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A protobuf message under construction. */
struct message {
    unsigned char bytes[4096];
    size_t n;
};

static void put_varint(struct message *m, uint64_t value)
{
    for (; value > 0x7F; value >>= 7)
        m->bytes[m->n++] = (unsigned char)(value | 0x80);
    m->bytes[m->n++] = (unsigned char)value;
}

static void put_bytes(struct message *m, uint32_t number, const void *bytes, size_t size)
{
    put_varint(m, number << 3 | GSV_PROTO_BYTES);
    put_varint(m, size);
    memcpy(m->bytes + m->n, bytes, size);
    m->n += size;
}

static void put_number(struct message *m, uint32_t number, uint64_t value)
{
    put_varint(m, number << 3 | GSV_PROTO_VARINT);
    put_varint(m, value);
}

static void put_piece(struct message *m, const char *text, float score, uint64_t type)
{
    struct message piece = { .n = 0 };
    uint32_t bits;

    put_bytes(&piece, 1, text, strlen(text));
    memcpy(&bits, &score, sizeof(bits));
    put_varint(&piece, 2 << 3 | GSV_PROTO_FIXED32);
    for (int i = 0; i < 4; i++)
        piece.bytes[piece.n++] = (unsigned char)(bits >> 8 * i);
    if (type)
        put_number(&piece, 3, type);
    put_bytes(m, 1, piece.bytes, piece.n);
}

static struct message sound(void)
{
    struct message m = { .n = 0 };

    put_piece(&m, "<unk>", 0, 2);
    put_piece(&m, "<s>", 0, 3);
    put_piece(&m, "</s>", 0, 3);
    put_piece(&m, "\xE2\x96\x81", -2, 0);
    put_piece(&m, "a", -1, 1);
    return m;
}

static gpuserve_status load_into(struct gsv_tokenizer *t, const struct message *m,
                                 gpuserve_error *error)
{
    /* A heap block of exact size, so that a sanitizer detects reads past its end. */
    char *copy = malloc(m->n + 1);
    const struct gsv_text_file file = { "x.model", memcpy(copy, m->bytes, m->n), m->n };
    const struct gsv_vocab_files none = { 0 };
    gpuserve_status status = gsv_tokenizer_read_spm(t, GSV_CLASS_XLM_ROBERTA, &file, &none, error);

    if (status == GPUSERVE_OK)
        status = gsv_tokenizer_finish(t, file.name, error);
    free(copy);
    return status;
}

static void expect(const struct message *m, gpuserve_status wanted, const char *says)
{
    struct gsv_tokenizer *t = calloc(1, sizeof(*t));
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    const gpuserve_status status = load_into(t, m, &error);

    cr_expect_eq(status, wanted, "%s: status %d, \"%s\"", says, status, error.message);
    if (wanted != GPUSERVE_OK)
        cr_expect(strstr(error.message, says), "\"%s\", not \"%s\"", error.message, says);
    gsv_tokenizer_free(&t);
}

Test(spm, a_sound_one_has_the_models_ids)
{
    struct message m = sound();
    struct gsv_tokenizer *t = calloc(1, sizeof(*t));
    struct gsv_encoding e = { 0 };
    static const int32_t ids[] = { 0, 4, 5, 2 }; /* <s> _ a </s> */

    put_number(&m, 100, 7); /* unknown fields are skipped */
    put_bytes(&m, 101, "x", 1);
    put_varint(&m, 102 << 3 | GSV_PROTO_FIXED64);
    memset(m.bytes + m.n, 1, 8);
    m.n += 8;
    cr_assert_eq(load_into(t, &m, NULL), GPUSERVE_OK);
    cr_assert_eq(gsv_tokenizer_vocab_size(t), 7);
    cr_assert_eq(gsv_tokenizer_encode(t, &e, "a", 1, NULL, 0, NULL, NULL), GPUSERVE_OK);
    cr_assert_eq(e.n, 4);
    cr_expect_arr_eq(e.ids, ids, sizeof(ids));
    cr_expect_eq(gsv_tokenizer_id(t, "<mask>"), 6);
    gsv_encoding_reset(&e);
    gsv_tokenizer_free(&t);
}

Test(spm, wherever_it_is_cut_it_is_refused_or_a_whole_shorter_one)
{
    const struct message whole = sound();
    size_t n_sound = 0;

    for (size_t n = 0; n < whole.n; n++) {
        struct gsv_tokenizer *t = calloc(1, sizeof(*t));
        struct message m = whole;
        gpuserve_status status;

        m.n = n;
        status = load_into(t, &m, NULL);
        cr_expect(status == GPUSERVE_OK || status == GPUSERVE_E_FORMAT, "%zu: %d", n, status);
        n_sound += status == GPUSERVE_OK;
        gsv_tokenizer_free(&t);
    }
    cr_expect_eq(n_sound, 2); /* without the last piece, and without the last two */
}

Test(spm, pieces_are_checked)
{
    struct message m = { .n = 0 };

    expect(&m, GPUSERVE_E_FORMAT, "x.model: the file has only 0 pieces");
    put_piece(&m, "<unk>", 0, 2);
    put_piece(&m, "<s>", 0, 3);
    expect(&m, GPUSERVE_E_FORMAT, "x.model: the file has only 2 pieces");
    put_piece(&m, "<pad>", 0, 3);
    expect(&m, GPUSERVE_E_UNSUPPORTED, "x.model: piece 2 is not </s>, as XLM-RoBERTa requires");
    m = sound();
    put_piece(&m, "", 0, 1);
    expect(&m, GPUSERVE_E_FORMAT, "x.model: piece 5 is empty");
    m = sound();
    put_piece(&m, "\xFF", 0, 1);
    expect(&m, GPUSERVE_E_FORMAT, "x.model: piece 5 is not UTF-8");
    m = sound();
    put_piece(&m, "b", NAN, 1);
    expect(&m, GPUSERVE_E_FORMAT, "x.model: piece 5: the score is not a finite number");
    m = sound();
    put_piece(&m, "b", -INFINITY, 1);
    expect(&m, GPUSERVE_E_FORMAT, "x.model: piece 5: the score is not a finite number");
    m = sound();
    put_bytes(&m, 1, "\x0A\x05only", 6); /* a text of 5 bytes, of which 4 are there */
    expect(&m, GPUSERVE_E_FORMAT, "x.model: invalid piece after 5 pieces");
}

Test(spm, other_algorithms_and_broken_messages_are_refused)
{
    static const struct {
        const char *bytes;
        size_t size;
    } broken[] = {
        { "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F", 10 }, /* a number over 64 bits */
        { "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01", 11 },
        { "\x0B", 1 },                     /* a group */
        { "\x0F\x01", 2 },                 /* invalid wire type */
        { "\x00\x01", 2 },                 /* field 0 */
        { "\x80\x80\x80\x80\x10\x01", 6 }, /* a field's number over 29 bits */
        { "\x10", 1 },                     /* nothing after the tag */
        { "\x15\x01\x02", 3 },             /* half of 32 bits */
        { "\x11\x01\x02", 3 },             /* and of 64 */
        { "\x12\x7F\x01", 3 },             /* 127 bytes, only one present */
    };
    struct message trainer = { .n = 0 }, m = sound();

    put_number(&trainer, 3, 2);
    put_bytes(&m, 2, trainer.bytes, trainer.n);
    expect(&m, GPUSERVE_E_UNSUPPORTED, "x.model: model type 2 is not supported, only Unigram");
    for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
        m = sound();
        memcpy(m.bytes + m.n, broken[i].bytes, broken[i].size);
        m.n += broken[i].size;
        expect(&m, GPUSERVE_E_FORMAT, "x.model: invalid field after 5 pieces");
        m = sound(); /* the same within a message */
        put_bytes(&m, 3, broken[i].bytes, broken[i].size);
        expect(&m, GPUSERVE_E_FORMAT, "x.model: invalid message after 5 pieces");
    }
    m = sound();
    put_bytes(&m, 3, "\x12\x04\x00\x01\x00\x00", 6); /* charsmap of 256 bytes, none present */
    expect(&m, GPUSERVE_E_FORMAT, "precompiled_charsmap");
}
