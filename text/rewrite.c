/* SPDX-License-Identifier: MIT
 * rewrite.c - steps that make other text of a text: the normalizers of tokenizer.json, and what its
 * pre-tokenizers change. Called by encode.c, split.c and read.c. */
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "core/base/error.h"
#include "text/chars.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

static void put(bs_text *out, uint32_t c) {
  char bytes[4];
  bs_text_append(out, bytes, bs_utf8_put(c, bytes));
}

/* ---- normal forms ---------------------------------------------------------------------------- */

static int class_of(utf8proc_int32_t c) {
  const int found = c < 0x300 ? 0 : (int)utf8proc_get_property(c)->combining_class;
  return found != 0 && bs_tok_is_normalized((uint32_t)c) ? found : 0;
}

/* Orders runs of marks by their class; marks of one class keep their order. A counting sort, so that a long
 * run costs no more than its length. */
static int order_marks(utf8proc_int32_t *chars, size_t n) {
  utf8proc_int32_t *sorted = NULL;
  for (size_t begin = 0, end; begin < n; begin = end) {
    size_t from[257] = {0};
    end = begin + 1;
    if (class_of(chars[begin]) == 0) continue;
    while (end < n && class_of(chars[end]) != 0) end++;
    if (end - begin < 2) continue;
    if (sorted == NULL && (sorted = malloc(n * sizeof *sorted)) == NULL) return 0;
    for (size_t i = begin; i < end; i++) from[class_of(chars[i]) + 1]++;
    for (size_t i = 1; i < 257; i++) from[i] += from[i - 1];
    for (size_t i = begin; i < end; i++) sorted[from[class_of(chars[i])]++] = chars[i];
    memcpy(chars + begin, sorted, (end - begin) * sizeof *chars);
  }
  free(sorted);
  return 1;
}

static int is_ascii(const char *text, size_t bytes) {
  unsigned char all = 0;
  for (size_t i = 0; i < bytes; i++) all |= (unsigned char)text[i];
  return all < 0x80;
}

/* The text as code points, taken apart. */
static utf8proc_int32_t *decompose(const char *text, size_t bytes, utf8proc_option_t options, size_t *out_n) {
  size_t room = bytes + 64, n = 0;
  utf8proc_int32_t *chars = malloc(room * sizeof *chars);
  int boundary = 0;
  for (size_t at = 0, step; at < bytes && chars != NULL; at += step) {
    const utf8proc_int32_t c = (utf8proc_int32_t)bs_utf8_get(text + at, &step);
    if (room - n < 32) { /* the longest decomposition has 18 */
      room *= 2;
      utf8proc_int32_t *more = realloc(chars, room * sizeof *chars);
      if (more == NULL) free(chars);
      chars = more;
      if (chars == NULL) break;
    }
    const utf8proc_ssize_t made =
        utf8proc_decompose_char(c, chars + n, (utf8proc_ssize_t)(room - n), options, &boundary);
    if (made < 0 || ((made > 1 || chars[n] != c) && c >= 0x300 && !bs_tok_is_normalized((uint32_t)c)))
      chars[n++] = c;
    else
      n += (size_t)made;
  }
  *out_n = n;
  return chars;
}

static int32_t normal_form(int kind, const char *text, size_t bytes, bs_text *out, bs_error *err) {
  const int compose = kind == BS_TOK_NFC || kind == BS_TOK_NFKC;
  utf8proc_option_t options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
  size_t n = 0;
  if (kind == BS_TOK_NFKC || kind == BS_TOK_NFKD) options |= UTF8PROC_COMPAT;
  if (is_ascii(text, bytes)) {
    bs_text_append(out, text, bytes);
    return BS_OK;
  }
  utf8proc_int32_t *chars = decompose(text, bytes, options, &n);
  if (chars == NULL || !order_marks(chars, n)) {
    free(chars);
    return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for a normal form of %zu bytes", bytes);
  }
  if (compose) {
    const utf8proc_ssize_t made =
        utf8proc_normalize_utf32(chars, (utf8proc_ssize_t)n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (made >= 0) n = (size_t)made;
  }
  for (size_t i = 0; i < n; i++) put(out, (uint32_t)chars[i]);
  free(chars);
  return BS_OK;
}

/* ---- character by character ------------------------------------------------------------------ */

static void one(const bs_tok_step *step, uint32_t c, bs_text *out) {
  uint32_t lower[2];
  switch (step->kind) {
    case BS_TOK_LOWERCASE:
      for (int i = 0, n = bs_tok_lower(c, lower); i < n; i++) put(out, lower[i]);
      return;
    case BS_TOK_STRIP_ACCENTS:
      if (step->flags & BS_TOK_NONSPACING ? !bs_tok_is_nonspacing(c) : !bs_tok_is_mark(c)) put(out, c);
      return;
    case BS_TOK_CLEAN: /* first what is no text, then white space: a vertical tab is a control character */
      if (c == '\t' || c == '\n' || c == '\r')
        put(out, ' ');
      else if (c != 0 && c != 0xfffd && !bs_tok_is_control(c))
        put(out, bs_tok_is_space(c) ? ' ' : c);
      return;
    default: /* BS_TOK_CHINESE */
      if (bs_tok_is_ideograph(c)) put(out, ' ');
      put(out, c);
      if (bs_tok_is_ideograph(c)) put(out, ' ');
  }
}

static int is_space_before(const char *text, size_t at) {
  size_t n;
  return bs_tok_is_space(bs_utf8_get(text + bs_utf8_before(text, at), &n));
}

static void strip(const bs_tok_step *step, const char *text, size_t bytes, bs_text *out) {
  size_t begin = 0, n;
  if (step->flags & BS_TOK_LEFT)
    for (; begin < bytes && bs_tok_is_space(bs_utf8_get(text + begin, &n)); begin += n) continue;
  if (step->flags & BS_TOK_RIGHT)
    while (bytes > begin && is_space_before(text, bytes)) bytes = bs_utf8_before(text, bytes);
  bs_text_append(out, text + begin, bytes - begin);
}

static int32_t replace(const bs_tok_step *step, bs_tok_matcher *matcher, const char *text, size_t bytes,
                       bs_text *out, bs_error *err) {
  bs_tok_search search = {0};
  size_t done = 0, begin, end;
  int found;
  for (;;) {
    const int32_t rc =
        bs_tok_pattern_next(&step->pattern, matcher, text, bytes, &search, &found, &begin, &end, err);
    if (rc != BS_OK) return rc;
    if (!found) break;
    bs_text_append(out, text + done, begin - done);
    bs_text_append(out, step->text, step->bytes);
    done = end;
  }
  bs_text_append(out, text + done, bytes - done);
  return BS_OK;
}

static void prepend(const bs_tok_step *step, const char *text, size_t bytes, int is_first, bs_text *out) {
  const int there = bytes >= step->bytes && memcmp(text, step->text, step->bytes) == 0;
  if (bytes > 0 && !(there && (step->flags & BS_TOK_UNLESS_THERE)) &&
      (is_first || !(step->flags & BS_TOK_ONLY_FIRST)))
    bs_text_append(out, step->text, step->bytes);
  bs_text_append(out, text, bytes);
}

int32_t bs_tok_rewrite(const bs_tok_step *step, bs_tok_matcher *matcher, const char *text, size_t bytes,
                       int is_first, bs_text *out, bs_error *err) {
  switch (step->kind) {
    case BS_TOK_NFC:
    case BS_TOK_NFD:
    case BS_TOK_NFKC:
    case BS_TOK_NFKD:
      return normal_form(step->kind, text, bytes, out, err);
    case BS_TOK_STRIP:
      strip(step, text, bytes, out);
      return BS_OK;
    case BS_TOK_REPLACE:
      return replace(step, matcher, text, bytes, out, err);
    case BS_TOK_PREPEND:
      prepend(step, text, bytes, is_first, out);
      return BS_OK;
    case BS_TOK_BYTES:
      for (size_t i = 0; i < bytes; i++) put(out, bs_tok_byte_character((unsigned char)text[i]));
      return BS_OK;
    default:
      for (size_t at = 0, n; at < bytes; at += n) one(step, bs_utf8_get(text + at, &n), out);
      return BS_OK;
  }
}

int32_t bs_tok_normalize(const bs_tok_steps *steps, bs_tok_work *work, const char *text, size_t bytes,
                         bs_error *err) {
  int32_t rc = BS_OK;
  work->text.size = 0;
  bs_text_append(&work->text, text, bytes);
  for (size_t i = 0; i < steps->n && rc == BS_OK; i++) {
    work->other.size = 0;
    bs_text_append(&work->other, "", 0);
    rc =
        bs_tok_rewrite(&steps->at[i], &work->matcher, work->text.data, work->text.size, 1, &work->other, err);
    const bs_text swapped = work->text;
    work->text = work->other;
    work->other = swapped;
    if (rc == BS_OK) rc = bs_tok_work_check(work, &work->text, err);
  }
  return rc == BS_OK && work->text.failed ? bs_tok_work_check(work, &work->text, err) : rc;
}
