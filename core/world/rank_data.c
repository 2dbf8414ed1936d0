/* SPDX-License-Identifier: MIT
 *
 * rank_data.c - pointers that users of a rank keep at it, by key: a library over worlds (tp/) finds its own
 * state of a rank by this, without globals and thread-local storage, so that coroutines may share a thread.
 */
#include <stdlib.h>

#include "core/world/world.h"

struct bs_rank_note {
  bs_rank_note *next;
  const void *key;
  void *value;
};

void *bs_rank_data(const bs_rank *rank, const void *key) {
  const bs_rank_note *note = rank->notes;
  while (note != NULL && note->key != key) note = note->next;
  return note != NULL ? note->value : NULL;
}

int32_t bs_rank_set_data(bs_rank *rank, const void *key, void *value, bs_error *err) {
  bs_rank_note **at = &rank->notes;
  while (*at != NULL && (*at)->key != key) at = &(*at)->next;
  bs_rank_note *note = *at;
  if (value == NULL) {
    if (note != NULL) *at = note->next;
    free(note);
    return BS_OK;
  }
  if (note == NULL) {
    note = calloc(1, sizeof *note);
    if (note == NULL)
      return bs_error_set(err, BS_NO_MEMORY, "BS-RANK-MEMORY", "no memory for a pointer kept at a rank");
    note->key = key;
    *at = note;
  }
  note->value = value;
  return BS_OK;
}

void bs_rank_notes_free(bs_rank *rank) {
  while (rank->notes != NULL) {
    bs_rank_note *note = rank->notes;
    rank->notes = note->next;
    free(note);
  }
}
