/* SPDX-License-Identifier: MIT
 *
 * packed.h - the packed weights of the matmuls. What all kinds have alike is in packed.c. The weight of the
 * "packed" matmul: blocks of CPU_K_BLOCK columns, in a block panels of CPU_PANEL outputs, in a panel column
 * by column, for bf16 pair of columns by pair (matmul_pack.c). */
#ifndef BS_PLUGINS_CPU_OPS_PACKED_H
#define BS_PLUGINS_CPU_OPS_PACKED_H

#include <stdatomic.h>

#include "../cpu.h"

typedef struct cpu_packed cpu_packed;

/* The layout of the values of a kind of weight. */
typedef struct cpu_packed_kind {
  /* Puts `rows` rows, each K elements, into the layout of panel `panel`. NULL: no change of layout. */
  void (*place)(const cpu_packed *w, int64_t panel, int64_t rows, const uint8_t *from);
  /* Values first .. first+count of row n to `line`, or back from it. first: a multiple of CPU_K_BLOCK;
   * count: at most that. */
  void (*line)(const cpu_packed *w, int64_t n, int64_t first, int64_t count, uint8_t *line, int back);
} cpu_packed_kind;

/* A weight that this plugin has packed. An optimiser's step takes dense ones and 2:4 ones. */
struct cpu_packed {
  const cpu_packed_kind *kind;
  const bs_exec *exec;
  cpu_state *state;
  int64_t N, K;     /* outputs, packed columns */
  int64_t length;   /* values of a row: K, of 2:4 weights those that are kept */
  int64_t panels;   /* ceil(N / CPU_PANEL); the last one is filled up with zeros */
  int64_t units;    /* of 2:4 weights ceil(K / 32), filled up with zeros */
  uint32_t dtype;   /* f32, bf16, f16, i8 */
  uint32_t size;    /* bytes of a value */
  int type;         /* cpu_type24 */
  int second_first; /* 1: panels of bf16 have the second of each pair of columns first (kernels.h, dot) */
  uint32_t other;   /* 1: the weight keeps the other half of the positions in the codes */
  cpu_codes *codes; /* of 2:4 weights (packed24.h); else NULL */
  /* Of bf16 weights, where products of pairs have the bits of single ones: the exponents of the least and of
   * the largest value, when they are known (cpu_packed_range). */
  _Atomic uint32_t range;
  void *data; /* exec->alloc */
};

/* Columns that a block takes in memory from `first` on: bf16 is stored in pairs of columns (kernels.h). */
static inline int64_t cpu_packed_length(const cpu_packed *w, int64_t first) {
  const int64_t left = w->K - first, length = left < CPU_K_BLOCK ? left : CPU_K_BLOCK;
  return w->dtype == BS_BF16 ? length + length % 2 : length;
}

/* First element of a panel's part of the block that begins with column `first`. A panel's block is
 * contiguous, so are the panels of a block. */
static inline int64_t cpu_packed_at(const cpu_packed *w, int64_t panel, int64_t first) {
  return (first * w->panels + panel * cpu_packed_length(w, first)) * CPU_PANEL;
}

/* The offset of output `lane`, column k of a block, from the panel's first element. */
static inline int64_t cpu_packed_place(const cpu_packed *w, int64_t k, int64_t lane) {
  if (w->dtype == BS_BF16) return (k / 2 * CPU_PANEL + lane) * 2 + (k + w->second_first) % 2;
  return k * CPU_PANEL + lane;
}

/* Round a panel's block from column `first` on to the weight's 16-bit dtype: bf16 by pairs of columns, the
 * second of a last odd one stays zero. narrow: cpu_packed_length * 16 places to work in. */
void cpu_panel_narrow(const cpu_kernels *kernels, const cpu_packed *w, int64_t first, const float *wide,
                      uint16_t *narrow, void *to);
/* `value` of a line to its place, or back. */
static inline void cpu_packed_move(const cpu_packed *w, void *place, void *value, int back) {
  void *to = back ? place : value, *from = back ? value : place;
  if (w->size == 4)
    memcpy(to, from, 4);
  else if (w->size == 2)
    memcpy(to, from, 2);
  else
    memcpy(to, from, 1);
}

/* ---- packed.c ------------------------------------------------------------------------------- */

/* A weight of the query without values: length is K. */
int32_t cpu_packed_begin(const cpu_packed_kind *kind, cpu_state *state, const bs_exec *exec,
                         const bs_op_query *query, const bs_source *weights, cpu_packed **out_packed,
                         bs_error *err);
/* Room for rows x columns values, which the whole team pulls from the source. A member needs room for 16 rows
 * in addition; there is never a dense copy. Frees the weight when it fails. */
int32_t cpu_packed_fill(cpu_packed *w, int64_t rows, int64_t columns, const bs_source *weights,
                        const bs_partition *partition, void **out_packed, uint64_t *out_bytes, bs_error *err);
/* BS_OK if it is packed [N,K] of the query's dtype. */
int32_t cpu_packed_check(const cpu_packed *w, int64_t N, int64_t K, uint32_t dtype, bs_error *err);
/* packed_update, packed_read and packed_free of bs_op_impl, for weights of all kinds. */
int32_t cpu_packed_update(void *packed, const bs_tensor *delta, bs_error *err);
int32_t cpu_packed_read(void *packed, int64_t row, bs_tensor *out, bs_error *err);
void cpu_packed_free(void *packed);

enum { CPU_RANGE_CHANGES = 1 }; /* no range: its least exponent is 1, its largest 0 */
/* The largest and the least exponent of the values, as (largest << 16 | least), 8 bits each of an f32; of
 * zeros alone the least is larger than any. 0: not known, or a plan may change the weight. */
uint32_t cpu_packed_range(cpu_packed *w);
/* The same of a weight whose range was asked for. */
static inline uint32_t cpu_packed_range_now(const cpu_packed *w) {
  const uint32_t range = atomic_load_explicit(&w->range, memory_order_relaxed);
  return range == CPU_RANGE_CHANGES ? 0 : range;
}
/* From now on a plan may change the weight. */
void cpu_packed_changes(cpu_packed *w);
/* 1: all products and sums of numbers of two ranges are zero, or not subnormal, and no product is beyond the
 * largest f32. Then one instruction for a pair of columns gives the bits of two multiply-adds. */
int cpu_ranges_exact(uint32_t x, uint32_t w);
/* The range of what bf16_swap saw since cpu_range_begin. */
void cpu_range_begin(cpu_bf16_range *out);
uint32_t cpu_range_of(const cpu_bf16_range *seen);

/* ---- their makers: of "packed", of matmul24, of "dnnl" -------------------------- */

int32_t cpu_packed_make(void *state, const bs_exec *exec, const bs_op_query *query, const bs_source *weights,
                        void **out_packed, uint64_t *out_bytes, bs_error *err);
int32_t cpu_packed24_make(void *state, const bs_exec *exec, const bs_op_query *query,
                          const bs_source *weights, void **out_packed, uint64_t *out_bytes, bs_error *err);
int32_t cpu_rows_make(void *state, const bs_exec *exec, const bs_op_query *query, const bs_source *weights,
                      void **out_packed, uint64_t *out_bytes, bs_error *err);

#endif
