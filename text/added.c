/* SPDX-License-Identifier: MIT
 * added.c - finds added tokens in a text: from the left, of those that begin at one place the longest. Called
 * by encode.c; read.c fills the sets. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "text/chars.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

int32_t bs_tok_added_add(bs_tok_added_set *set, const char *text, size_t bytes, uint32_t id, int flags,
                         bs_error *err) {
  if (bytes == 0) return BS_OK;
  char *copy = malloc(bytes + 1);
  if (copy != NULL && set->n == set->room) {
    const size_t room = set->room == 0 ? 16 : set->room * 2;
    bs_tok_added *at = realloc(set->at, room * sizeof *at);
    if (at != NULL) {
      set->at = at;
      set->room = room;
    }
  }
  if (copy == NULL || set->n == set->room) {
    free(copy);
    return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for added tokens");
  }
  memcpy(copy, text, bytes);
  copy[bytes] = '\0';
  set->at[set->n++] = (bs_tok_added){copy, bytes, id, flags};
  return BS_OK;
}

static int compare(const void *a, const void *b) {
  const bs_tok_added *x = a, *y = b;
  const int order = memcmp(x->text, y->text, x->bytes < y->bytes ? x->bytes : y->bytes);
  return order != 0 ? order : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

void bs_tok_added_sort(bs_tok_added_set *set) {
  if (set->n > 1) qsort(set->at, set->n, sizeof *set->at, compare);
}

void bs_tok_added_free(bs_tok_added_set *set) {
  for (size_t i = 0; i < set->n; i++) free(set->at[i].text);
  free(set->at);
  memset(set, 0, sizeof *set);
}

/* The first of set->at[low .. high) whose byte at `depth` is at least `byte`; all have more than `depth`
 * bytes. */
static size_t lower(const bs_tok_added_set *set, size_t low, size_t high, size_t depth, int byte) {
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if ((unsigned char)set->at[middle].text[depth] < byte)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* The longest token that begins the text; NULL: none. */
static const bs_tok_added *longest(const bs_tok_added_set *set, const char *text, size_t bytes) {
  const bs_tok_added *found = NULL;
  size_t low = 0, high = set->n;
  for (size_t depth = 0; depth < bytes && low < high; depth++) {
    const int byte = (unsigned char)text[depth];
    low = lower(set, low, high, depth, byte);
    high = lower(set, low, high, depth, byte + 1);
    while (low < high && set->at[low].bytes == depth + 1)
      found = &set->at[low++]; /* it sorts before longer ones */
  }
  return found;
}

static int is_word_at(const char *text, size_t bytes, size_t at) {
  size_t n;
  return at < bytes && bs_tok_is_word(bs_utf8_get(text + at, &n));
}

static int stands_alone(const char *text, size_t bytes, size_t begin, size_t end) {
  return (begin == 0 || !is_word_at(text, bytes, bs_utf8_before(text, begin))) &&
         !is_word_at(text, bytes, end);
}

void bs_tok_added_split(const bs_tok_added_set *set, const char *text, size_t bytes, int is_first,
                        int literal, bs_tok_list *out) {
  const size_t base = out->text.size;
  size_t done = 0, n;
  int begins[256] = {0};
  bs_text_append(&out->text, text, bytes);
  for (size_t i = 0; i < set->n; i++) begins[(unsigned char)set->at[i].text[0]] = 1;
  for (size_t at = 0; at < bytes && set->n > 0;) {
    const bs_tok_added *found = begins[(unsigned char)text[at]] ? longest(set, text + at, bytes - at) : NULL;
    if (found == NULL) {
      at++;
      continue;
    }
    size_t begin = at, end = at + found->bytes;
    at = end; /* the next search begins here, whatever is made of this token */
    if ((literal && (found->flags & BS_TOK_SPECIAL)) ||
        ((found->flags & BS_TOK_SINGLE_WORD) && !stands_alone(text, bytes, begin, end)))
      continue;
    if (found->flags & BS_TOK_LSTRIP) {
      while (begin > 0 && bs_tok_is_space(bs_utf8_get(text + bs_utf8_before(text, begin), &n)))
        begin = bs_utf8_before(text, begin);
      if (begin < done) begin = done; /* the token before it took that white space */
    }
    if (found->flags & BS_TOK_RSTRIP)
      for (; end < bytes && bs_tok_is_space(bs_utf8_get(text + end, &n)); end += n) continue;
    if (begin > done) bs_tok_list_add(out, base + done, begin - done, BS_TOK_NONE, is_first && done == 0);
    if (begin < end) bs_tok_list_add(out, base + begin, end - begin, found->id, 0);
    done = end;
  }
  if (done < bytes) bs_tok_list_add(out, base + done, bytes - done, BS_TOK_NONE, is_first && done == 0);
}
