/* SPDX-License-Identifier: MIT
 * notes.c - the list of notes.h. */
#include "lab/config/notes.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void bs_note_add(bs_notes *notes, const char *fmt, ...) {
  char text[768];
  if (notes == NULL) return;
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  for (size_t i = 0; i < notes->count; i++) {
    if (strcmp(notes->items[i], text) == 0) return;
  }
  if (notes->count == notes->capacity) {
    size_t capacity = notes->capacity == 0 ? 16 : notes->capacity * 2;
    char **items = realloc(notes->items, capacity * sizeof *items);
    if (items == NULL) return;
    notes->items = items;
    notes->capacity = capacity;
  }
  size_t size = strlen(text) + 1;
  char *copy = malloc(size);
  if (copy == NULL) return;
  memcpy(copy, text, size);
  notes->items[notes->count++] = copy;
}

void bs_notes_free(bs_notes *notes) {
  for (size_t i = 0; i < notes->count; i++) free(notes->items[i]);
  free(notes->items);
  memset(notes, 0, sizeof *notes);
}
