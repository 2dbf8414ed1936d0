/* SPDX-License-Identifier: MIT
 * pattern.c - looks for a pattern in a text; regular expressions by PCRE2 with its compiler to machine code.
 * Called by split.c and rewrite.c. A pattern is only read while it is used; each thread has its own matcher.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pattern.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "text/utf8.h"

int32_t bs_tok_pattern_regex(const char *pattern, size_t bytes, bs_tok_pattern *out, bs_error *err) {
  bs_text spelt = {0};
  int code = 0;
  PCRE2_SIZE at = 0;
  memset(out, 0, sizeof *out);
  int32_t rc = bs_tok_spell(pattern, bytes, &spelt, err);
  if (rc == BS_OK) {
    out->regex = pcre2_compile((PCRE2_SPTR)spelt.data, spelt.size,
                               PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code, &at, NULL);
    if (out->regex == NULL) {
      char why[160] = "";
      pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
      rc = bs_error_set(err, BS_UNSUPPORTED, "BS-TOK-REGEX", "PCRE2 does not take the pattern '%.200s': %s",
                        pattern, why);
    } else {
      pcre2_jit_compile(out->regex, PCRE2_JIT_COMPLETE); /* without it matches are slower and the same */
    }
  }
  bs_text_free(&spelt);
  return rc;
}

int32_t bs_tok_pattern_text(const char *text, size_t bytes, bs_tok_pattern *out, bs_error *err) {
  memset(out, 0, sizeof *out);
  out->text = malloc(bytes + 1);
  if (out->text == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for a pattern");
  memcpy(out->text, text, bytes);
  out->text[bytes] = '\0';
  out->bytes = bytes;
  return BS_OK;
}

void bs_tok_pattern_free(bs_tok_pattern *pattern) {
  pcre2_code_free(pattern->regex);
  free(pattern->text);
  memset(pattern, 0, sizeof *pattern);
}

int32_t bs_tok_matcher_make(bs_tok_matcher *out, bs_error *err) {
  out->data = pcre2_match_data_create(1, NULL);
  out->context = pcre2_match_context_create(NULL);
  out->stack = pcre2_jit_stack_create(32 * 1024, 1024 * 1024, NULL);
  if (out->data == NULL || out->context == NULL || out->stack == NULL) {
    bs_tok_matcher_free(out);
    return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for matching");
  }
  pcre2_set_match_limit(out->context, BS_TOK_MATCH_LIMIT);
  pcre2_set_heap_limit(out->context, BS_TOK_HEAP_LIMIT);
  pcre2_jit_stack_assign(out->context, NULL, out->stack);
  return BS_OK;
}

void bs_tok_matcher_free(bs_tok_matcher *matcher) {
  pcre2_match_data_free(matcher->data);
  pcre2_match_context_free(matcher->context);
  pcre2_jit_stack_free(matcher->stack);
  memset(matcher, 0, sizeof *matcher);
}

/* The first match at or after `from`. */
static int32_t first(const bs_tok_pattern *p, bs_tok_matcher *m, const char *text, size_t bytes, size_t from,
                     int *out_found, size_t *out_begin, size_t *out_end, bs_error *err) {
  *out_found = 0;
  if (p->regex != NULL) {
    const int rc =
        pcre2_match(p->regex, (PCRE2_SPTR)text, bytes, from, PCRE2_NO_UTF_CHECK, m->data, m->context);
    if (rc == PCRE2_ERROR_NOMATCH) return BS_OK;
    if (rc < 0) {
      char why[160] = "";
      pcre2_get_error_message(rc, (PCRE2_UCHAR *)why, sizeof why);
      return bs_error_set(err, BS_INPUT, "BS-TOK-REGEX", "a match at byte %zu was given up: %s", from, why);
    }
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(m->data);
    *out_begin = at[0];
    *out_end = at[1];
    *out_found = 1;
  } else if (p->text != NULL) {
    const char *found = memmem(text + from, bytes - from, p->text, p->bytes);
    if (found == NULL) return BS_OK;
    *out_begin = (size_t)(found - text);
    *out_end = *out_begin + p->bytes;
    *out_found = 1;
  } else {
    for (size_t n; from < bytes && !*out_found; from += n) {
      *out_found = p->is(bs_utf8_get(text + from, &n));
      *out_begin = from;
      *out_end = from + n;
    }
  }
  return BS_OK;
}

/* As Oniguruma's find_iter: an empty match right after a match does not count. */
int32_t bs_tok_pattern_next(const bs_tok_pattern *p, bs_tok_matcher *m, const char *text, size_t bytes,
                            bs_tok_search *search, int *out_found, size_t *out_begin, size_t *out_end,
                            bs_error *err) {
  for (*out_found = 0; search->from <= bytes;) {
    const int32_t rc = first(p, m, text, bytes, search->from, out_found, out_begin, out_end, err);
    if (rc != BS_OK || !*out_found) return rc;
    if (*out_begin < *out_end || !search->has_matched || *out_end != search->matched_to) {
      search->from = search->matched_to = *out_end;
      search->has_matched = 1;
      return BS_OK;
    }
    size_t step = 1;
    if (search->from < bytes) bs_utf8_get(text + search->from, &step);
    search->from += step;
    *out_found = 0;
  }
  return BS_OK;
}
