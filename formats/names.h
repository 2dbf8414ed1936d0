/* SPDX-License-Identifier: MIT
 * names.h - a table from names to numbers that stays fast whatever the names are: the hash has a secret seed.
 * A zero-filled table is empty. The names' bytes and the spans given stay the caller's and must outlive the
 * table. One thread at a time. */
#ifndef BS_FORMATS_NAMES_H
#define BS_FORMATS_NAMES_H
#include "formats/onnx.h"

typedef struct bs_names {
  struct bs_names_slot *slots;
  uint32_t capacity, count;
  uint64_t seed;
} bs_names;

/* 1: added. 0: the name is there already, nothing changes. -1: no memory. */
int bs_names_add(bs_names *names, const bs_span *name, uint32_t value);
/* The number of a name, which the caller may change; NULL when it is not there. Valid until the next add. */
uint32_t *bs_names_find(const bs_names *names, bs_span name);
void bs_names_free(bs_names *names);
#endif
