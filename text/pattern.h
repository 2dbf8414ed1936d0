/* SPDX-License-Identifier: MIT
 * pattern.h - what is looked for in a text: a literal text, a regular expression, or characters of a kind. */
#ifndef BS_TEXT_PATTERN_H
#define BS_TEXT_PATTERN_H
#include "core/base/text.h"

enum {
  BS_TOK_MAX_PATTERN = 8192,         /* bytes of a regular expression */
  BS_TOK_MATCH_LIMIT = 10 * 1000000, /* steps of one match */
  BS_TOK_HEAP_LIMIT = 32 * 1024      /* KiB */
};

/* One of regex, text and is. */
typedef struct bs_tok_pattern {
  struct pcre2_real_code_8 *regex;
  char *text;
  size_t bytes;
  int (*is)(uint32_t c);
} bs_tok_pattern;

/* What one thread needs to match. */
typedef struct bs_tok_matcher {
  struct pcre2_real_match_data_8 *data;
  struct pcre2_real_match_context_8 *context;
  struct pcre2_real_jit_stack_8 *stack;
} bs_tok_matcher;

/* Where a search of all matches stands; zero-filled it is at the beginning. */
typedef struct bs_tok_search {
  size_t from, matched_to;
  int has_matched;
} bs_tok_search;

/* A regular expression as Oniguruma reads it, which Hugging Face's tokenizers uses. What PCRE2 would read in
 * another way is BS-TOK-REGEX. */
int32_t bs_tok_pattern_regex(const char *pattern, size_t bytes, bs_tok_pattern *out_pattern, bs_error *err);
int32_t bs_tok_pattern_text(const char *text, size_t bytes, bs_tok_pattern *out_pattern, bs_error *err);
void bs_tok_pattern_free(bs_tok_pattern *pattern);

int32_t bs_tok_matcher_make(bs_tok_matcher *out_matcher, bs_error *err);
void bs_tok_matcher_free(bs_tok_matcher *matcher);

/* The next match: *out_begin and *out_end, or *out_found 0. The text is UTF-8. */
int32_t bs_tok_pattern_next(const bs_tok_pattern *pattern, bs_tok_matcher *matcher, const char *text,
                            size_t bytes, bs_tok_search *search, int *out_found, size_t *out_begin,
                            size_t *out_end, bs_error *err);

/* spell.c: the pattern as PCRE2 must read it. */
int32_t bs_tok_spell(const char *pattern, size_t bytes, bs_text *out, bs_error *err);
#endif
