/* SPDX-License-Identifier: MIT
 * compile.h - the mask compiler: how the part of one rank can be multiplied (docs/methods.md), what it takes,
 * and which hardware formats its positions would be legal in. Called by explain and tests. Thread-safe. */
#ifndef BS_CORE_PARTITION_COMPILE_H
#define BS_CORE_PARTITION_COMPILE_H
#include "blockshock/blockshock.h"

/* Ways to multiply with a rank's part of W. */
enum bs_form {
  BS_FORM_DENSE = 0,    /* the stored zeros of the other ranks' weights are multiplied too */
  BS_FORM_RUN = 1,      /* a dense product over a run of columns */
  BS_FORM_GATHER = 2,   /* a dense product over gathered columns */
  BS_FORM_SPARSE24 = 3, /* 2:4 values with positions: the op matmul24 */
  BS_FORM_COUNT_
};
BS_API const char *bs_form_name(uint32_t form); /* "dense", "run", "gather", "2:4" */

/* Formats of hardware that skips half of the weights. */
enum bs_sparse_format {
  BS_SPARSE_2OF4 = 0,  /* 16 and 8 bit: two of four */
  BS_SPARSE_1OF2 = 1,  /* fp32 and tf32: one of each two */
  BS_SPARSE_PAIRS = 2, /* fp4: of eight two pairs of neighbours, each kept or dropped as a whole */
  BS_SPARSE_COUNT_
};
BS_API const char *bs_sparse_format_name(uint32_t format); /* "16/8-bit 2:4", "fp32 1:2", "fp4 paired 4:8" */

/* The properties of a kept set. */
typedef struct bs_kept_facts {
  uint32_t same_rows; /* every row keeps the same columns */
  uint32_t legal;     /* bit per enum bs_sparse_format */
  int64_t rows_read;  /* reading stops where nothing can change any more */
} bs_kept_facts;
BS_API int32_t bs_kept_look(const bs_kept *kept, bs_kept_facts *out_facts, bs_error *err);

typedef struct bs_compiled {
  uint32_t form; /* the one to take */
  uint32_t reserved;
  bs_kept_facts facts; /* of the halves; all 0 for a mask without */
  char why[200];
} bs_compiled;
/* The form for `mask` over [rows, cols] weights (see bs_kept_make) on world_size ranks. no_op24: why the
 * backend has no op for 2:4 weights of the dtype; NULL: it has one. */
BS_API int32_t bs_mask_compile(const bs_mask *mask, int64_t rows, int64_t cols, const bs_source *weights,
                               uint32_t world_size, const char *no_op24, bs_compiled *out, bs_error *err);

/* Bytes of a rank's weights, [rows, cols] of which it owns `kept` columns: values, and for 2:4 the four bits
 * of positions a group. */
BS_API uint64_t bs_form_bytes(uint32_t form, uint32_t dtype, int64_t rows, int64_t cols, int64_t kept);
/* Columns that are multiplied for each row. */
BS_API int64_t bs_form_columns(uint32_t form, int64_t cols, int64_t kept);
#endif
