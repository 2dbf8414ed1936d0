/* SPDX-License-Identifier: MIT
 * bpe.c - byte pair encoding. It begins with the characters of a piece. Of all neighbours it merges the pair
 * of the lowest rank (of equal ranks the leftmost), until no pair has a merge. A merge is one of a list of
 * pairs. Where tokens have scores (SentencePiece's), any two neighbours merge whose texts together are a
 * token; the rank is then the token's. A heap holds the candidates, so that n characters take n log n steps.
 * Called by api.c. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

typedef struct bs_tok_symbol {
  uint32_t id;            /* BS_TOK_NONE: with scores, a character that no token has */
  uint32_t before, after; /* its neighbours; BS_TOK_NONE: none */
  uint32_t at, bytes;     /* in the piece; 0 bytes: merged into the one before it */
} bs_tok_symbol;

typedef struct bs_tok_candidate {
  uint32_t rank, at, id;
} bs_tok_candidate;

static bs_tok_merge *slot_of(const bs_tok_model *m, uint64_t pair) {
  size_t slot = (size_t)bs_tok_mix(pair) & (m->n_merges - 1);
  while (m->merges[slot].id != BS_TOK_NONE && m->merges[slot].pair != pair)
    slot = (slot + 1) & (m->n_merges - 1);
  return &m->merges[slot];
}

int32_t bs_tok_bpe_prepare(bs_tok_model *m, size_t n_merges, bs_error *err) {
  char text[8];
  for (m->n_merges = n_merges == 0 ? 0 : 16; m->n_merges < n_merges * 2;) m->n_merges *= 2;
  if (m->n_merges > 0 && (m->merges = malloc(m->n_merges * sizeof *m->merges)) == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for %zu merges", n_merges);
  for (size_t i = 0; i < m->n_merges; i++) m->merges[i].id = BS_TOK_NONE;
  for (uint32_t i = 0; i < 256; i++) {
    static const char digits[] = "0123456789ABCDEF";
    const char name[6] = {'<', '0', 'x', digits[i >> 4], digits[i & 15], '>'};
    m->bytes[i] = bs_tok_vocab_find(&m->vocab, name, sizeof name);
  }
  for (uint32_t c = 0; c < 2048; c++) m->single[c] = bs_tok_vocab_find(&m->vocab, text, bs_utf8_put(c, text));
  return BS_OK;
}

void bs_tok_bpe_merge(bs_tok_model *m, uint32_t left, uint32_t right, uint32_t rank, uint32_t id) {
  const uint64_t pair = (uint64_t)left << 32 | right;
  *slot_of(m, pair) = (bs_tok_merge){pair, rank, id};
}

/* ---- the symbols of a piece ------------------------------------------------------------------ */

static int add_symbol(bs_tok_work *w, size_t *n, uint32_t id, size_t at, size_t bytes) {
  if (*n == w->symbols_room) {
    const size_t room = w->symbols_room == 0 ? 256 : w->symbols_room * 2;
    bs_tok_symbol *symbols = realloc(w->symbols, room * sizeof *symbols);
    if (symbols == NULL) return 0;
    w->symbols = symbols;
    w->symbols_room = room;
  }
  w->symbols[*n] = (bs_tok_symbol){id, *n == 0 ? BS_TOK_NONE : (uint32_t)*n - 1, (uint32_t)*n + 1,
                                   (uint32_t)at, (uint32_t)bytes};
  ++*n;
  return 1;
}

/* A character with the prefix and suffix that its place in the word asks for, in w->other. */
static void dress(const bs_tok_model *m, bs_tok_work *w, const char *c, size_t bytes, int is_first,
                  int is_last) {
  w->other.size = 0;
  if (m->prefix != NULL && !is_first) bs_text_append(&w->other, m->prefix, strlen(m->prefix));
  bs_text_append(&w->other, c, bytes);
  if (m->suffix != NULL && is_last) bs_text_append(&w->other, m->suffix, strlen(m->suffix));
}

/* The bytes of a character as tokens; 0: some byte has none. */
static int fall_back(const bs_tok_model *m, bs_tok_work *w, size_t *n, const char *c, size_t bytes,
                     int *out_ok) {
  for (size_t i = 0; i < bytes; i++)
    if (m->bytes[(unsigned char)c[i]] == BS_TOK_NONE) return 0;
  for (size_t i = 0; i < bytes && *out_ok; i++)
    *out_ok = add_symbol(w, n, m->bytes[(unsigned char)c[i]], 0, 1);
  return 1;
}

/* What no token has is the unknown token, or bytes; without either it is left out. */
static int characters(const bs_tok_model *m, bs_tok_work *w, const char *text, size_t bytes, size_t *n) {
  const int dressed = m->prefix != NULL || m->suffix != NULL;
  int ok = 1, unknown = 0; /* unknown: an unknown token waits to be added */
  for (size_t at = 0, step; at < bytes && ok; at += step) {
    const uint32_t code = bs_utf8_get(text + at, &step);
    const char *c = text + at;
    size_t c_bytes = step;
    uint32_t id;
    if (dressed) {
      dress(m, w, c, step, at == 0, at + step == bytes);
      if (w->other.failed) return 0;
      c = w->other.data;
      c_bytes = w->other.size;
    }
    id = !dressed && code < 2048 ? m->single[code] : bs_tok_vocab_find(&m->vocab, c, c_bytes);
    if (id != BS_TOK_NONE) {
      if (unknown) ok = add_symbol(w, n, m->unk, 0, 1);
      unknown = 0;
      ok = ok && add_symbol(w, n, id, at, step);
    } else if (m->byte_fallback && fall_back(m, w, n, c, c_bytes, &ok)) {
      continue;
    } else if (m->unk != BS_TOK_NONE) {
      if (unknown && !m->fuse_unk) ok = add_symbol(w, n, m->unk, 0, 1);
      unknown = 1;
    }
  }
  if (ok && unknown) ok = add_symbol(w, n, m->unk, 0, 1);
  return ok;
}

/* With scores each character is a symbol: two that no token has may be one together. */
static int all_characters(const bs_tok_model *m, bs_tok_work *w, const char *text, size_t bytes, size_t *n) {
  int ok = 1;
  for (size_t at = 0, step; at < bytes && ok; at += step) {
    const uint32_t code = bs_utf8_get(text + at, &step);
    const uint32_t id = code < 2048 ? m->single[code] : bs_tok_vocab_find(&m->vocab, text + at, step);
    ok = add_symbol(w, n, id != BS_TOK_NONE && m->ranks[id] != BS_TOK_NONE ? id : BS_TOK_NONE, at, step);
  }
  return ok;
}

/* ---- merges ---------------------------------------------------------------------------------- */

/* The token that a symbol and the next one become together; BS_TOK_NONE: they do not merge. */
static uint32_t merged(const bs_tok_model *m, const char *text, const bs_tok_symbol *left,
                       const bs_tok_symbol *right, uint32_t *out_rank) {
  if (m->ranks != NULL) {
    const uint32_t id = bs_tok_vocab_find(&m->vocab, text + left->at, (size_t)left->bytes + right->bytes);
    *out_rank = id == BS_TOK_NONE ? BS_TOK_NONE : m->ranks[id];
    return *out_rank == BS_TOK_NONE ? BS_TOK_NONE : id;
  }
  const bs_tok_merge *found = slot_of(m, (uint64_t)left->id << 32 | right->id);
  *out_rank = found->rank;
  return found->id;
}

static int less(const bs_tok_candidate *a, const bs_tok_candidate *b) {
  return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

/* Adds the pair that begins at a symbol, where it has a merge. */
static int push(const bs_tok_model *m, bs_tok_work *w, const char *text, size_t *n, uint32_t at) {
  const bs_tok_symbol *left = &w->symbols[at];
  uint32_t rank;
  if (left->after == BS_TOK_NONE) return 1;
  const uint32_t id = merged(m, text, left, &w->symbols[left->after], &rank);
  if (id == BS_TOK_NONE) return 1;
  if (*n == w->heap_room) {
    const size_t room = w->heap_room == 0 ? 256 : w->heap_room * 2;
    bs_tok_candidate *heap = realloc(w->heap, room * sizeof *heap);
    if (heap == NULL) return 0;
    w->heap = heap;
    w->heap_room = room;
  }
  const bs_tok_candidate added = {rank, at, id};
  size_t i = (*n)++;
  for (; i > 0 && less(&added, &w->heap[(i - 1) / 2]); i = (i - 1) / 2) w->heap[i] = w->heap[(i - 1) / 2];
  w->heap[i] = added;
  return 1;
}

static bs_tok_candidate pop(bs_tok_candidate *heap, size_t *n) {
  const bs_tok_candidate top = heap[0], last = heap[--*n];
  size_t i = 0;
  for (size_t child; (child = 2 * i + 1) < *n; i = child) {
    if (child + 1 < *n && less(&heap[child + 1], &heap[child])) child++;
    if (!less(&heap[child], &last)) break;
    heap[i] = heap[child];
  }
  heap[i] = last;
  return top;
}

static int merge(const bs_tok_model *m, bs_tok_work *w, const char *text, size_t n_symbols) {
  size_t n = 0;
  uint32_t rank;
  bs_tok_symbol *s = w->symbols;
  for (size_t i = 0; i + 1 < n_symbols; i++)
    if (!push(m, w, text, &n, (uint32_t)i)) return 0;
  while (n > 0) {
    const bs_tok_candidate top = pop(w->heap, &n);
    bs_tok_symbol *left = &s[top.at];
    if (left->bytes == 0 || left->after == BS_TOK_NONE) continue;
    bs_tok_symbol *right = &s[left->after];
    /* A candidate whose symbols have been merged since then counts no more. */
    if (merged(m, text, left, right, &rank) != top.id) continue;
    left->id = top.id;
    left->bytes += right->bytes;
    left->after = right->after;
    right->bytes = 0;
    if (left->after != BS_TOK_NONE) s[left->after].before = top.at;
    if (left->before != BS_TOK_NONE && !push(m, w, text, &n, left->before)) return 0;
    if (!push(m, w, text, &n, top.at)) return 0;
  }
  return 1;
}

/* A character that no token has: its bytes, or the unknown token, once for a run of them. */
static int32_t put_unknown(const bs_tok_model *m, bs_tok_work *w, const char *c, size_t bytes, int *unknown,
                           bs_error *err) {
  int32_t rc = BS_OK;
  int has_all = m->byte_fallback;
  for (size_t i = 0; i < bytes && has_all; i++) has_all = m->bytes[(unsigned char)c[i]] != BS_TOK_NONE;
  for (size_t i = 0; i < bytes && has_all && rc == BS_OK; i++)
    rc = bs_tok_work_id(w, m->bytes[(unsigned char)c[i]], err);
  if (!has_all && !*unknown && m->unk != BS_TOK_NONE) rc = bs_tok_work_id(w, m->unk, err);
  *unknown = !has_all;
  return rc;
}

int32_t bs_tok_bpe_encode(const bs_tok_model *m, bs_tok_work *w, const char *text, size_t bytes,
                          bs_error *err) {
  size_t n = 0;
  int unknown = 0;
  int32_t rc = BS_OK;
  if (m->ignore_merges) {
    const uint32_t whole = bs_tok_vocab_find(&m->vocab, text, bytes);
    if (whole != BS_TOK_NONE) return bs_tok_work_id(w, whole, err);
  }
  int ok = m->ranks != NULL ? all_characters(m, w, text, bytes, &n) : characters(m, w, text, bytes, &n);
  if (ok && n > 0) {
    w->symbols[n - 1].after = BS_TOK_NONE;
    if (m->n_merges > 0 || m->ranks != NULL) ok = merge(m, w, text, n);
  }
  if (!ok)
    return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for the symbols of %zu bytes", bytes);
  for (size_t i = 0; i < n && rc == BS_OK; i++) {
    const bs_tok_symbol *s = &w->symbols[i];
    if (s->bytes == 0) continue;
    if (s->id == BS_TOK_NONE) {
      rc = put_unknown(m, w, text + s->at, s->bytes, &unknown, err);
      continue;
    }
    unknown = 0;
    rc = bs_tok_work_id(w, s->id, err);
  }
  return rc;
}
