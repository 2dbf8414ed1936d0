/* SPDX-License-Identifier: MIT
 * split.c - the pre-tokenizers of tokenizer.json: pieces of text become more pieces, or other text. Called by
 * encode.c. */
#include "core/base/error.h"
#include "text/tokenizer.h"

/* What splits one piece: runs of text that match or do not, in order, become pieces by `kind`. */
typedef struct splitter {
  bs_tok_list *out;
  const bs_tok_piece *of;
  int kind;
  size_t begin, end; /* the piece that waits for more; begin == end: none */
  int waits, was_match;
} splitter;

static void flush(splitter *s) {
  if (s->waits)
    bs_tok_list_add(s->out, s->of->at + s->begin, s->end - s->begin, BS_TOK_NONE,
                    s->of->is_first && s->begin == 0);
  s->waits = 0;
}

/* A run that may be joined to the piece before it. */
static void run(splitter *s, size_t begin, size_t end, int is_match) {
  int joins = 0;
  switch (s->kind) {
    case BS_TOK_CONTIGUOUS:
      joins = is_match == s->was_match;
      break;
    case BS_TOK_WITH_PREVIOUS:
      joins = is_match && !s->was_match;
      break;
    case BS_TOK_WITH_NEXT: /* a match waits for text that is none */
      joins = s->was_match && !is_match;
      break;
    default:
      break;
  }
  if (!joins || !s->waits) {
    flush(s);
    s->begin = begin;
  }
  s->end = end;
  s->waits = s->kind != BS_TOK_REMOVED || !is_match;
  s->was_match = is_match;
}

static int32_t split_piece(const bs_tok_step *step, bs_tok_work *w, const bs_tok_piece *piece,
                           bs_error *err) {
  const char *text = w->now.text.data + piece->at;
  const int inverted = (step->flags & BS_TOK_INVERTED) != 0;
  bs_tok_search search = {0};
  splitter s = {&w->next, piece, step->split, 0, 0, 0, 0};
  size_t done = 0, begin, end;
  int found;
  for (;;) {
    const int32_t rc = bs_tok_pattern_next(&step->pattern, &w->matcher, text, piece->bytes, &search, &found,
                                           &begin, &end, err);
    if (rc != BS_OK) return rc;
    if (!found) break;
    if (begin > done) run(&s, done, begin, inverted);
    run(&s, begin, end, !inverted);
    done = end;
  }
  if (done < piece->bytes) run(&s, done, piece->bytes, inverted);
  flush(&s);
  return BS_OK;
}

static void swap_lists(bs_tok_work *w) {
  const bs_tok_list list = w->now;
  w->now = w->next;
  w->next = list;
}

int32_t bs_tok_split(const bs_tok_step *step, bs_tok_work *w, bs_error *err) {
  int32_t rc = BS_OK;
  bs_tok_list_clear(&w->next);
  for (size_t i = 0; i < w->now.n && rc == BS_OK; i++) {
    const bs_tok_piece piece = w->now.pieces[i];
    const size_t at = w->next.text.size;
    if (step->kind == BS_TOK_SPLIT) {
      if (piece.id != BS_TOK_NONE)
        bs_tok_list_add(&w->next, piece.at, piece.bytes, piece.id, 0);
      else
        rc = split_piece(step, w, &piece, err);
      continue;
    }
    if (piece.id != BS_TOK_NONE)
      bs_text_append(&w->next.text, w->now.text.data + piece.at, piece.bytes);
    else
      rc = bs_tok_rewrite(step, &w->matcher, w->now.text.data + piece.at, piece.bytes, piece.is_first,
                          &w->next.text, err);
    bs_tok_list_end(&w->next, at, piece.id, piece.is_first);
  }
  if (rc == BS_OK) rc = bs_tok_list_check(&w->next, err);
  if (rc == BS_OK) rc = bs_tok_work_check(w, &w->next.text, err);
  swap_lists(w);
  if (step->kind == BS_TOK_SPLIT) { /* the pieces are new, the text is the same */
    const bs_text text = w->now.text;
    w->now.text = w->next.text;
    w->next.text = text;
  }
  return rc;
}
