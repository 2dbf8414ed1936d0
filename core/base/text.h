/* SPDX-License-Identifier: MIT
 * text.h - small string tools: growing buffer, nearest name, strict number parsing. */
#ifndef BS_CORE_BASE_TEXT_H
#define BS_CORE_BASE_TEXT_H
#include <stddef.h>

#include "blockshock/blockshock.h"
/* A growing, always NUL-terminated text; .failed sticks after an out-of-memory. Zero-initialise. */
typedef struct bs_text {
  char *data;
  size_t size, capacity;
  int failed;
} bs_text;
BS_API void bs_text_printf(bs_text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
BS_API void bs_text_append(bs_text *t, const char *data, size_t size);
/* A blank and a word, quoted for a shell where it must be. */
BS_API void bs_text_word(bs_text *t, const char *word);
BS_API void bs_text_free(bs_text *t);
/* The candidate nearest to `word` (Damerau-Levenshtein distance <= 1 + length/4), NULL: no candidate is that
 * near. */
BS_API const char *bs_nearest(const char *word, const char *const *candidates, size_t count);
/* Whole-string parses; 1 on success. */
BS_API int bs_parse_i64(const char *text, int64_t *out);
/* Parses a size or a count: a whole number, perhaps with a unit. It is the only reader of units. */
BS_API int bs_parse_size(const char *text, int64_t *out);
/* The unit at *at, which then points after it: k, M, G (1000, 1000^2, 1000^3) or Ki, Mi, Gi (1024, ...). 1:
 * none. */
BS_API int64_t bs_size_unit(const char **at);
/* For messages: how a size is written. */
#define BS_SIZE_FORM "a whole number such as 4096, 4k (4000) or 4Ki (4096)"
BS_API int bs_parse_f64(const char *text, double *out); /* finite only */
BS_API int bs_parse_bool(const char *text, int *out);   /* true false yes no on off 1 0 */
BS_API char *bs_strdup(const char *s);                  /* NULL when out of memory */
/* Returns "other" of "wrapper:other", through all wrappers, else the name itself. The result points into
 * `name`. */
BS_API const char *bs_innermost(const char *name);
#endif
