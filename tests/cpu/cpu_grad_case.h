/* SPDX-License-Identifier: MIT
 *
 * cpu_grad_case.h - one matmul_dx, matmul_dw or matmul_update of the cpu plugin on generated data, judged
 * against sums of doubles that share nothing with the plugin. */
#ifndef BS_TESTS_CPU_GRAD_CASE_H
#define BS_TESTS_CPU_GRAD_CASE_H

#include "cpu_matmul_case.h"

enum { GC_DX = 0, GC_DW = 1, GC_UPDATE = 2, GC_OPS = 3 };

typedef struct gc {
  uint32_t op;                      /* GC_... */
  uint32_t x_type, dy_type, w_type; /* X or dX; dY; the packed weight */
  int64_t B, N, K;                  /* K: all columns */
  int64_t rows;                     /* tokens of the call; 0: B */
  uint32_t columns, period, bits;   /* MC_...: which columns are packed */
  uint32_t x_full;
  uint32_t padded;   /* 1: rows of all matrices have padding */
  uint32_t integers; /* 1: small integers, alpha a power of two: the answer is exact */
  float alpha;
  uint64_t seed;
} gc;

typedef struct gc_data {
  gc shape;
  cx_matrix x; /* X, or dX */
  cx_matrix dy, dw, alpha;
  cx_matrix w;    /* the source of the weight */
  cx_matrix back; /* the updated weight, read back */
  bs_partition partition;
  const bs_partition *part; /* NULL: all columns */
  int64_t kept;
  double *exact, *slack; /* [rows][kept] for dX, else [N][kept] */
} gc_data;

/* A case of one dtype throughout. */
gc gc_plain(uint32_t op, uint32_t dtype, int64_t B, int64_t N, int64_t K);
void gc_make(gc_data *d, const gc *shape);
void gc_free(gc_data *d);
const char *gc_text(const gc *shape); /* static buffer */
const char *gc_op(uint32_t op);

/* The query over d's tensors; args and q live in the caller. */
void gc_query(const gc_data *d, const bs_tensor_desc *args[3], bs_op_query *out_query);
/* A weight packed by matmul@cpu/packed from d's source; NULL for matmul_dw. */
void *gc_pack(const cx *c, gc_data *d);
/* Prepare and run over `packed`; the result is not judged. Returns the first failing status. */
int32_t gc_try(const cx *c, gc_data *d, void *packed, bs_error *err);
/* Pack, run (which must succeed), read back, free, and judge: within the bound, nothing else written. */
void gc_run(const cx *c, gc_data *d);
/* What gc_run judged: bytes of dX, dW or the updated weight. */
const void *gc_result(const gc_data *d, size_t *out_bytes);
void gc_read(const cx *c, gc_data *d, void *packed);
void gc_judge(const gc_data *d, const char *who);

#endif
