/* SPDX-License-Identifier: MIT
 * notes.h - notes for stderr, one line each, that are not errors ("has no effect: ..."). Each text is kept
 * once, in order. Not thread-safe: used while a command is being prepared. */
#ifndef BS_LAB_CONFIG_NOTES_H
#define BS_LAB_CONFIG_NOTES_H
#include <stddef.h>

typedef struct bs_notes {
  char **items;
  size_t count, capacity;
} bs_notes;

/* A NULL list swallows the note; out of memory loses it (a note is never worth a failure). */
void bs_note_add(bs_notes *notes, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void bs_notes_free(bs_notes *notes);
#endif
