/* SPDX-License-Identifier: MIT
 * places.h - resolves an index of take and put. There are two tensors: a large one that is indexed (data of
 * take, out of put) and a small one (out of take, updates of put). The small one's leading dims are those of
 * positions; each position names a place of the large one, and the trailing dims of both are moved
 * together. */
#ifndef BS_PLUGIN_REF_PLACES_H
#define BS_PLUGIN_REF_PLACES_H
#include "../ref.h"

typedef struct ref_places {
  const bs_host *host;
  const char *op;
  int64_t kind;      /* enum bs_index */
  uint32_t axis;     /* of ROWS and ELEMENTS */
  uint32_t batch;    /* of TUPLES */
  uint32_t tuple;    /* of TUPLES: coordinates of one */
  uint32_t by_row;   /* of ROWS: the index has a row for each first coordinate */
  uint32_t rank;     /* of positions */
  uint32_t trailing; /* dims that are moved together */
  int64_t count;     /* positions */
  ref_spread large, small, index;
} ref_places;

/* Sets up the attrs, which op.h defines for take and put; put: 1 for put. */
void ref_places_make(const ref_plan *plan, const char *op, int put, const bs_tensor *large,
                     const bs_tensor *index, const bs_tensor *small, ref_places *out_places);
/* Finds the coordinates in the large and in the small tensor at which position i begins; BS_INVALID_ARGUMENT
 * with BS-OP-INDEX for an index outside. */
int32_t ref_places_find(const ref_places *places, int64_t i, int64_t *out_large, int64_t *out_small,
                        bs_error *err);
/* Lines of the trailing dims; line `line` of a tensor's part that begins at the coordinates `at`. */
int64_t ref_places_lines(const ref_places *places);
ref_view ref_places_line(const ref_places *places, const ref_spread *s, const int64_t *at, int64_t line);
/* Copies n elements of one line to another of the same dtype, bit by bit. */
int32_t ref_copy_line(const bs_host *host, const ref_view *from, const ref_view *to);
#endif
