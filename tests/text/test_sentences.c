/*
 * test_sentences.c - sentence ends: the rules of sentences.h, one by one, and linear time.
 */
#include "lib/text/unicode/sentences.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* Each text is given with '|' at the ends of its sentences, except that of the text. */
static void expect_sentences(const char *marked)
{
    char text[512], found[512];
    size_t size = 0, n = 0, at = 0;

    for (const char *p = marked; *p; p++)
        if (*p != '|')
            text[size++] = *p;
    while (at < size) {
        const size_t end = gsv_sentence_end(text, size, at);

        cr_assert(end > at && end <= size, "%s: %zu after %zu", marked, end, at);
        memcpy(found + n, text + at, end - at);
        n += end - at;
        if (end < size)
            found[n++] = '|';
        at = end;
    }
    found[n] = '\0';
    cr_expect_str_eq(found, marked);
}

Test(sentences, rules)
{
    static const char *const marked[] = {
        "One.",
        "One. |Two! |Three?",
        "What?! |Yes... |No",
        "He said \"No.\" |She left. |(Why?) |Because.",
        "3.5 and .5 and 1.000.000, v2.1",
        "The U.S. |Army left.", /* a known limit */
        "In the U.S. they vote, e.g. the people. |Etc. and so on.",
        "Mr. |Smith", /* also */
        "Ask: who? |Me, or you?",
        "He asked \"who?\", then left. |End",
        "a.b.c. d",
        "file.txt and www.example.com/a.html. |Next",
        "No space.Next",
        "No space!|Next",
        "wrapped\nline. |And\r\nnext",
        "Title\n\n|Text\r\n\r\n|More\n \n|End",
        "One\xe2\x80\xa9|Two",
        "\xe9\xa3\x9f\xe3\x81\xb9\xe7\x89\xa9\xe3\x80\x82|\xe7\x8a\xac\xef\xbc\x9f|\xe7\x8c\xab",
        "\xe3\x80\x8c\xe7\x8a\xac\xe3\x80\x82\xe3\x80\x8d|\xe7\x8c\xab",
        "\xe0\xa4\x8f\xe0\xa4\x95\xe0\xa5\xa4 |\xe0\xa4\xa6\xe0\xa5\x8b\xe0\xa5\xa4",
        "Ende. |\xc3\x9c"
        "ber uns.",
        "z. |B. \xc3\xbc"
        "ber uns.",
        "\xd0\xa0\xd0\xb0\xd0\xb7. |\xd0\x94\xd0\xb2\xd0\xb0. \xd0\xb4\xd0\xb2\xd0\xb0.",
        "  . ",
        "",
    };

    for (size_t i = 0; i < sizeof(marked) / sizeof(marked[0]); i++)
        expect_sentences(marked[i]);
}

Test(sentences, blanks)
{
    static const char *const text = "  \t\xc2\xa0"
                                    "a b\n ";
    size_t begin = 0, end = strlen(text);

    gsv_trim_blanks(text, &begin, &end);
    cr_expect_eq(begin, 5);
    cr_expect_eq(end, 8);
    begin = 0;
    end = 3;
    gsv_trim_blanks(text, &begin, &end);
    cr_expect_eq(begin, end);
}

/* Texts that would be quadratic with an unbounded lookahead or lookbehind. */
Test(sentences, linear, .timeout = 20)
{
    static const char *const parts[] = { ".", ". ", ".1", ".)", "\n", " ", ". ,", "a." };
    enum { SIZE = 1 << 21 };
    char *text = malloc(SIZE);

    cr_assert_not_null(text);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        size_t at = 0;

        for (size_t j = 0; j < SIZE; j++)
            text[j] = parts[i][j % strlen(parts[i])];
        while (at < SIZE)
            at = gsv_sentence_end(text, SIZE, at);
        cr_expect_eq(at, SIZE);
    }
    free(text);
}
