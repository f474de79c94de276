/*
 * test_json_reader.c - the in-place JSON reader; vocabularies from JSON and from lines.
 */
#include "lib/base/json_reader.h"
#include "lib/text/models/vocab.h"

#include <criterion/criterion.h>
#include <string.h>

static gpuserve_status read_vocab(struct gsv_vocab *vocab, const char *text, gpuserve_error *error)
{
    return gsv_vocab_read_json(vocab, (struct gsv_json_slice){ text, strlen(text) }, "v", error);
}

Test(json_reader, reads_tokens_with_every_escape)
{
    struct gsv_vocab vocab = { 0 };

    cr_assert_eq(
        read_vocab(&vocab,
                   " { \"a\\u00e9\\n\\\"\" : 0 ,\n\"\\ud83d\\ude00\":7,\"\\u0000\":2, \"\":3 } ",
                   NULL),
        GPUSERVE_OK);
    cr_expect_eq(gsv_vocab_id(&vocab, "a\xC3\xA9\n\"", 5), 0);
    cr_expect_eq(gsv_vocab_id(&vocab, "\xF0\x9F\x98\x80", 4), 7);
    cr_expect_eq(gsv_vocab_id(&vocab, "\0", 1), 2);
    cr_expect_eq(gsv_vocab_id(&vocab, "", 0), 3);
    cr_expect_eq(gsv_vocab_id(&vocab, "b", 1), -1);
    cr_expect_eq(vocab.n_ids, 8);
    gsv_vocab_reset(&vocab);
}

Test(json_reader, refuses_what_is_broken)
{
    static const struct {
        const char *text;
        gpuserve_status status;
    } cases[] = {
        { "", GPUSERVE_E_FORMAT },
        { "[", GPUSERVE_E_FORMAT },
        { "{", GPUSERVE_E_FORMAT },
        { "{\"a\"", GPUSERVE_E_FORMAT },
        { "{\"a\":", GPUSERVE_E_FORMAT },
        { "{\"a\":1", GPUSERVE_E_FORMAT },
        { "{\"a\":1 \"b\":2}", GPUSERVE_E_FORMAT },
        { "{\"a\":1,}", GPUSERVE_E_FORMAT },
        { "{\"a\":-1}", GPUSERVE_E_FORMAT },
        { "{\"a\":1.5}", GPUSERVE_E_FORMAT },
        { "{\"a\":\"1\"}", GPUSERVE_E_FORMAT },
        { "{\"a\":1,\"a\":2}", GPUSERVE_E_FORMAT },
        { "{\"\\x\":1}", GPUSERVE_E_FORMAT },
        { "{\"\\u12\":1}", GPUSERVE_E_FORMAT },
        { "{\"\\ud800\":1}", GPUSERVE_E_FORMAT },
        { "{\"\\ud800\\u0041\":1}", GPUSERVE_E_FORMAT },
        { "{\"\\udc00\":1}", GPUSERVE_E_FORMAT },
        { "{\"a\\", GPUSERVE_E_FORMAT },
        { "{\"a\n\":1}", GPUSERVE_E_FORMAT },
        { "{\"a\":16777216}", GPUSERVE_E_TOO_LARGE },
        { "{\"a\":99999999999999999999999}", GPUSERVE_E_TOO_LARGE },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        struct gsv_vocab vocab = { 0 };

        cr_expect_eq(read_vocab(&vocab, cases[i].text, &error), cases[i].status, "%s: %s",
                     cases[i].text, error.message);
        gsv_vocab_reset(&vocab);
    }
}

Test(json_reader, says_what_it_expected)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        { "", "an object" },
        { "[", "an object" },
        { "{1", "a string" },
        { "{\"a", "the end of a string" },
        { "{\"a\"", "a colon" },
        { "{\"a\":", "an id" },
        { "{\"a\":1", "a comma or a closing brace" },
        { "{\"a\":01}", "an id" },
        { "{\"a\n\":1}", "a string without control" },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        struct gsv_vocab vocab = { 0 };

        cr_expect_eq(read_vocab(&vocab, cases[i].text, &error), GPUSERVE_E_FORMAT);
        cr_expect(strstr(error.message, cases[i].says), "%s: %s", cases[i].text, error.message);
        gsv_vocab_reset(&vocab);
    }
}

Test(json_reader, steps_over_values_of_every_kind)
{
    static const char text[] = "{\"a\": [1, {\"b\": \"]}\\\"\"}, []], \"c\": -1.5e3, \"d\": true}";
    struct gsv_json_reader reader = { text, text, text + strlen(text), "t" };
    struct gsv_json_slice key, value;
    size_t n = 0;
    bool more = true;

    cr_assert_eq(gsv_json_reader_open(&reader, '{', NULL), GPUSERVE_OK);
    for (;; n++) {
        cr_assert_eq(gsv_json_reader_key(&reader, n == 0, &more, &key, NULL), GPUSERVE_OK);
        if (!more)
            break;
        cr_assert_eq(gsv_json_reader_value(&reader, &value, NULL), GPUSERVE_OK);
        if (n == 0)
            cr_expect_eq(value.size, strlen("[1, {\"b\": \"]}\\\"\"}, []]"));
        if (n == 1)
            cr_expect_eq(memcmp(value.at, "-1.5e3", value.size), 0);
    }
    cr_expect_eq(n, 3);
    cr_expect_eq(gsv_json_reader_end(&reader, NULL), GPUSERVE_OK);
}

Test(json_reader, refuses_brackets_that_do_not_match_or_go_too_deep)
{
    char deep[200];
    const char *const texts[] = { "[}", "{]", "[[]", "[\"a]", deep };

    memset(deep, '[', 65);
    memset(deep + 65, ']', 65);
    deep[130] = '\0';
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct gsv_json_reader reader = { texts[i], texts[i], texts[i] + strlen(texts[i]), "t" };
        struct gsv_json_slice value;

        cr_expect_eq(gsv_json_reader_value(&reader, &value, NULL), GPUSERVE_E_FORMAT, "%s",
                     texts[i]);
    }
}

/* The reader looks at eight bytes at once: each byte at each position, among bytes that differ from
 * the wanted ones by one, or by the high bit. */
enum { N_AROUND = 17 };
static const char around[] = " !#Z^z|~\x7F\x80\xA2\xDB\xDC\xDD\xFB\xFD\xFF";

/* The size of the value that begins `text`; 0 if it is refused. */
static size_t value_size(const char *text, size_t size)
{
    struct gsv_json_reader reader = { text, text, text + size, "t" };
    struct gsv_json_slice value;

    return gsv_json_reader_value(&reader, &value, NULL) == GPUSERVE_OK ? value.size : 0;
}

static size_t expected_size(char open, unsigned char byte, size_t at)
{
    if (open == '"')
        return byte == '"' ? at + 2 : byte < 0x20 ? 0 : N_AROUND + 2;
    return byte == ']' ? at + 2 : strchr("\"[{}", byte) && byte ? 0 : N_AROUND + 2;
}

Test(json_reader, finds_each_byte_at_each_position)
{
    char text[N_AROUND + 2];

    for (size_t filler = 0; around[filler]; filler++) {
        for (int byte = 0; byte < 256; byte++) {
            for (size_t at = 0; at < N_AROUND; at++) {
                for (int kind = 0; kind < 2; kind++) {
                    const char open = kind ? '[' : '"';

                    memset(text, around[filler], sizeof(text));
                    text[0] = open;
                    text[1 + at] = (char)byte;
                    text[N_AROUND + 1] = kind ? ']' : '"';
                    /* A backslash at the end of a string takes its quote away. */
                    cr_assert_eq(value_size(text, sizeof(text)),
                                 byte == '\\' && !kind && at + 1 == N_AROUND
                                     ? 0
                                     : expected_size(open, (unsigned char)byte, at),
                                 "%c %#x at %zu among %#x", open, (unsigned)byte, at,
                                 (unsigned char)around[filler]);
                }
            }
        }
    }
}

Test(vocab, lines_lose_the_white_space_at_their_end_and_the_later_twin_wins)
{
    static const char text[] = "a\r\nb \xE3\x80\x80\n\na\nlast";
    struct gsv_vocab vocab = { 0 };
    size_t size = 0;

    cr_assert_eq(gsv_vocab_read_lines(&vocab, text, strlen(text), "lines", NULL), GPUSERVE_OK);
    cr_expect_eq(gsv_vocab_id(&vocab, "a", 1), 3);
    cr_expect_eq(gsv_vocab_id(&vocab, "b", 1), 1);
    cr_expect_eq(gsv_vocab_id(&vocab, "", 0), 2);
    cr_expect_eq(gsv_vocab_id(&vocab, "last", 4), 4);
    cr_expect_null(gsv_vocab_text(&vocab, 0, &size));
    cr_expect_null(gsv_vocab_text(&vocab, -1, &size));
    cr_expect_null(gsv_vocab_text(&vocab, 5, &size));
    gsv_vocab_reset(&vocab);
}
