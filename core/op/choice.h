/* SPDX-License-Identifier: MIT
 * choice.h - choices that were made elsewhere (measured, or pinned by a replay): which implementation to take
 * for a query, by a key that people can read, and what one world asked for and took. Used by select.c and
 * dispatch.c; worlds own a book each, so all ranks of a world choose from the same one. */
#ifndef BS_CORE_OP_CHOICE_H
#define BS_CORE_OP_CHOICE_H
#include "core/op/dispatch.h"
#include "core/plugin/registry.h"

enum { BS_CHOICE_KEY = 1024 };

/* The texts "KEY -> PLUGIN:NAME", "KEY -> PLUGIN:NAME{KNOB=VALUE;...}" (or "KEY -> NAME", of any plugin) are
 * copied. BS_CONFIG BS-OP-CHOICE for
 * another form or two different choices for one key. */
int32_t bs_choice_book_new(const char *const *texts, uint32_t count, bs_choice_book **out_book,
                           bs_error *err);
void bs_choice_book_free(bs_choice_book *book);

/* "matmul@cpu x=f32 w=f32 y=f32 N=4096 K=2048 columns=gather B=64 bias=f32 threads=1 P=2". The same for both
 * forms of X (gathered, or whole with BS_QUERY_X_FULL): they are two ways to one product. "" when it does not
 * fit. */
void bs_choice_key(const bs_op_host *host, const bs_op_query *query, char *out, size_t size);
/* "cpu:packed" as written for the key; NULL: none. Lives as long as the book. book may be NULL. */
const char *bs_choice_wanted(const bs_choice_book *book, const char *key);
/* The knobs for that implementation, "keys=128;exp=fast"; NULL: no knobs are set. */
const char *bs_choice_knobs(const bs_choice_book *book, const char *key);
/* Is that the implementation which `wanted` names? */
int bs_choice_names(const char *wanted, const bs_thing *thing, const bs_op_impl *impl);

/* One candidate of a key, for the report. */
typedef struct bs_choice_row {
  const bs_thing *thing;
  const bs_op_impl *impl;
  const bs_op_answer *answer; /* not NO */
} bs_choice_row;
/* Add those that can serve `key` to the report; `took` is the one that was packed or prepared with, NULL when
 * it was only asked about. Thread-safe. book may be NULL. */
void bs_choice_report(bs_choice_book *book, const char *key, const bs_choice_row *rows, uint32_t count,
                      const bs_choice_row *took);
/* BS_PLUGIN BS-OP-KNOB-ECHO: an earlier plan of the implementation had other knobs of BS_KNOB_BUILD, and said
 * that it is the same binary as this one. Both are thread-safe; book may be NULL. */
int32_t bs_choice_build(bs_choice_book *book, const bs_op_impl *impl, const bs_op_echo *echo, bs_error *err);
/* A plan of the key said that of itself. */
void bs_choice_echo(bs_choice_book *book, const char *key, const bs_thing *thing, const bs_op_echo *echo);
/* Remember why the wanted one was not taken: 1 the first time for this key, 0 later. */
int bs_choice_refuse(bs_choice_book *book, const char *key, const char *why);

uint32_t bs_choice_count(bs_choice_book *book);
/* Texts live until the next report of the same key; the echo lives, and does not change, as long as the book.
 * BS_NOT_FOUND. */
int32_t bs_choice_get(bs_choice_book *book, uint32_t index, bs_choice_info *out_info, bs_error *err);
#endif
