/* SPDX-License-Identifier: MIT
 * list.c - a text in pieces, and what one call needs. Out of memory is remembered, and asked for once
 * (bs_tok_list_check). Called by all files of text/. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "text/tokenizer.h"

static void keep(bs_tok_list *list, bs_tok_piece piece) {
  if (list->failed) return;
  if (list->n == list->room) {
    const size_t room = list->room == 0 ? 64 : list->room * 2;
    bs_tok_piece *pieces = realloc(list->pieces, room * sizeof *pieces);
    if (pieces == NULL) {
      list->failed = 1;
      return;
    }
    list->pieces = pieces;
    list->room = room;
  }
  list->pieces[list->n++] = piece;
}

void bs_tok_list_add(bs_tok_list *list, size_t at, size_t bytes, uint32_t id, int is_first) {
  if (bytes > 0) keep(list, (bs_tok_piece){at, bytes, id, is_first});
}

void bs_tok_list_end(bs_tok_list *list, size_t at, uint32_t id, int is_first) {
  if (!list->text.failed) bs_tok_list_add(list, at, list->text.size - at, id, is_first);
}

void bs_tok_list_keep(bs_tok_list *list, size_t at) {
  if (!list->text.failed) keep(list, (bs_tok_piece){at, list->text.size - at, BS_TOK_NONE, 0});
}

void bs_tok_list_clear(bs_tok_list *list) {
  list->text.size = 0;
  list->n = 0;
}

void bs_tok_list_free(bs_tok_list *list) {
  bs_text_free(&list->text);
  free(list->pieces);
  memset(list, 0, sizeof *list);
}

int32_t bs_tok_list_check(const bs_tok_list *list, bs_error *err) {
  if (!list->failed && !list->text.failed) return BS_OK;
  return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for a text of %zu bytes", list->text.size);
}

void bs_tok_steps_free(bs_tok_steps *steps) {
  for (size_t i = 0; i < steps->n; i++) {
    bs_tok_pattern_free(&steps->at[i].pattern);
    free(steps->at[i].text);
  }
  free(steps->at);
  memset(steps, 0, sizeof *steps);
}

int32_t bs_tok_work_make(bs_tok_work *out, bs_error *err) {
  memset(out, 0, sizeof *out);
  bs_tok_work_limit(out, 0);
  return bs_tok_matcher_make(&out->matcher, err);
}

void bs_tok_work_free(bs_tok_work *work) {
  bs_tok_matcher_free(&work->matcher);
  bs_tok_list_free(&work->now);
  bs_tok_list_free(&work->next);
  bs_text_free(&work->text);
  bs_text_free(&work->other);
  free(work->symbols);
  free(work->heap);
  free(work->ids);
  memset(work, 0, sizeof *work);
}

/* Known steps make at most 18 bytes of one. Without a limit a few steps of a hostile file fill the memory. */
void bs_tok_work_limit(bs_tok_work *work, size_t bytes) {
  work->most = bytes * 64 + (1 << 20);
}

int32_t bs_tok_work_check(const bs_tok_work *work, const bs_text *text, bs_error *err) {
  if (text->failed)
    return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for a text of %zu bytes", text->size);
  if (text->size <= work->most) return BS_OK;
  return bs_error_set(err, BS_INPUT, "BS-TOK-TEXT",
                      "a step of the tokenizer makes %zu bytes of the text; at most %zu are made", text->size,
                      work->most);
}

int32_t bs_tok_work_id(bs_tok_work *work, uint32_t id, bs_error *err) {
  if (work->n_ids == work->ids_room) {
    const size_t room = work->ids_room == 0 ? 256 : work->ids_room * 2;
    int64_t *ids = realloc(work->ids, room * sizeof *ids);
    if (ids == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for %zu ids", room);
    work->ids = ids;
    work->ids_room = room;
  }
  work->ids[work->n_ids++] = id;
  return BS_OK;
}
