/* SPDX-License-Identifier: MIT
 *
 * cpu.h - shared parts of the cpu plugin: its state, small helpers for queries and row arithmetic. Only the
 * files of this folder include it. */
#ifndef BS_PLUGINS_CPU_H
#define BS_PLUGINS_CPU_H

#include <pthread.h>

#include "blockshock/plugin.h"
#include "kernels.h"

/* The features of the processor, read once at activation. */
typedef struct cpu_isa {
  uint32_t avx2; /* AVX2 with FMA, F16C and BMI */
  uint32_t avx512;
  uint32_t avx512_bf16;
  uint32_t avx512_vnni;
  uint32_t avx512_fp16;
  uint32_t amx_bf16;      /* AMX with bf16, and the kernel lets this process use tiles */
  uint32_t avx512_halves; /* 512 bits are executed as twice 256: AMD's Zen 4 */
  uint32_t avx512_units;  /* for 512-bit multiply-adds: 1 or 2; 0 without AVX-512 */
} cpu_isa;

typedef struct cpu_dnnl cpu_dnnl;   /* dnnl/library.c */
typedef struct cpu_codes cpu_codes; /* ops/packed24.h */
typedef struct cpu_state cpu_state;

struct cpu_state {
  const bs_host *host;
  const bs_plugin_self *self;
  cpu_isa isa;
  cpu_kernels kernels; /* chosen by the parameter `isa` */
  cpu_dnnl *dnnl;      /* NULL when built without oneDNN */
  pthread_mutex_t codes_lock;
  cpu_codes *codes;   /* of the 2:4 weights that live, so that both halves of a mask share one stream */
  const char *matmul; /* parameter: "auto", or the only matmul that may serve */
};

/* A weight releases its stream; NULL: it has none. ops/codes24.c */
void cpu_codes_drop(cpu_state *state, cpu_codes *codes);

/* cpuid.c */
void cpu_isa_detect(cpu_isa *out_isa);
/* units.c: measures how many 512-bit multiply-adds begin in a cycle, 1 or 2; takes about 0.3 ms. */
uint32_t cpu_units_measure(void);
void cpu_isa_text(const cpu_isa *isa, char *out_text, size_t size);
void cpu_name(char *out_name, size_t size);
uint64_t cpu_streamed_bytes(void); /* The size from which a weight is read from memory in every call. */
/* The class of processors for which defaults are chosen: "portable", "avx2", "avx512", "avx512x2" (two units
 * for 512 bits), "amx". */
const char *cpu_class(const cpu_kernels *kernels);
/* units: "auto", "1" or "2". */
int32_t cpu_kernels_choose(const cpu_isa *isa, const char *wanted, const char *units,
                           cpu_kernels *out_kernels, bs_error *err);

/* device.c */
/* The source location of each, for `bsrun plugins inspect`. */
extern const bs_src_loc cpu_activate_dx_at, cpu_activate_op_at, cpu_adamw_update_at, cpu_attention_op_at,
    cpu_attention_dx_at, cpu_contract_op_at, cpu_reduce_op_at, cpu_take_op_at, cpu_backend_at, cpu_convert_at,
    cpu_dequantize_product_at, cpu_dequantize_sum_at, cpu_expand24_at, cpu_gather_columns_at, cpu_map_at,
    cpu_normalize_at, cpu_matmul24_at, cpu_matmul24_dw_at, cpu_matmul24_dx_at, cpu_matmul24_update_at,
    cpu_matmul_amx_at, cpu_matmul_bytes_at, cpu_matmul_dw_at, cpu_matmul_dx_at, cpu_matmul_packed_at,
    cpu_matmul_update_at, cpu_quantize_groups_at, cpu_scaled_matmul_at, cpu_scatter_columns_at,
    cpu_sgd_update_at, cpu_tree_sum_at, cpu_put_op_at, cpu_topk_op_at, cpu_reduce_any_at,
    cpu_contract_integers_at, cpu_matmul_q_at, cpu_take_q_at;
extern const bs_backend cpu_backend;

/* ops/ and dnnl/ */
extern const bs_op_impl cpu_matmul_amx;
extern const bs_op_impl cpu_matmul_packed;
extern const bs_op_impl cpu_matmul_dx;
extern const bs_op_impl cpu_matmul_dw;
extern const bs_op_impl cpu_matmul_update;
extern const bs_op_impl cpu_sgd_update;
extern const bs_op_impl cpu_adamw_update;
extern const bs_op_impl cpu_activate_dx;
extern const bs_op_impl cpu_matmul24;
extern const bs_op_impl cpu_matmul24_dx;
extern const bs_op_impl cpu_matmul24_dw;
extern const bs_op_impl cpu_matmul24_update;
extern const bs_op_impl cpu_expand24;
extern const bs_op_impl cpu_gather_columns;
extern const bs_op_impl cpu_scatter_columns;
extern const bs_op_impl cpu_convert;
extern const bs_op_impl cpu_activate_op;
extern const bs_op_impl cpu_quantize_groups;
extern const bs_op_impl cpu_dequantize_sum;
extern const bs_op_impl cpu_dequantize_product;
extern const bs_op_impl cpu_scaled_matmul;
extern const bs_op_impl cpu_matmul_bytes;
extern const bs_op_impl cpu_tree_sum;
extern const bs_op_impl cpu_attention_op;
extern const bs_op_impl cpu_attention_dx;
extern const bs_op_impl cpu_contract_op;
extern const bs_op_impl cpu_contract_integers;
extern const bs_op_impl cpu_reduce_op;
extern const bs_op_impl cpu_reduce_any;
extern const bs_op_impl cpu_take_op;
extern const bs_op_impl cpu_put_op;
extern const bs_op_impl cpu_topk_op;
extern const bs_op_impl cpu_matmul_q;
extern const bs_op_impl cpu_take_q;
extern const bs_op_impl cpu_map;
extern const bs_op_impl cpu_normalize;
#ifdef BS_CPU_DNNL
extern const bs_op_impl cpu_matmul_dnnl;
extern const bs_src_loc cpu_matmul_dnnl_at;
int32_t cpu_dnnl_create(cpu_state *state, const char *library, cpu_dnnl **out_dnnl, bs_error *err);
void cpu_dnnl_destroy(cpu_dnnl *dnnl);
/* "oneDNN 3.2.0 (gomp)" if it is open, else why it is not, or that it was not requested yet. */
void cpu_dnnl_text(cpu_dnnl *dnnl, char *out_text, size_t size);
/* 1: the search failed: cpu_dnnl_text has the reason. */
int cpu_dnnl_missing(cpu_dnnl *dnnl);
#endif

/* ---- query.c: reading queries ------------------------------------------------------------------ */

/* A matmul query in plain numbers. Strides are in elements; lds of absent args are 0. */
typedef struct cpu_matmul {
  int64_t B, N, K; /* K: packed columns */
  int64_t x_ld, y_ld, r_ld;
  uint32_t x_type, y_type, bias_type, r_type; /* 0: absent */
  uint32_t weight_type;
  uint32_t activation;
  uint32_t x_full;
} cpu_matmul;

/* Fills `out`, or answers NO (in answer, with the reason) and returns 0. Accepts row-major f32, bf16 and f16
 * with any row stride, f32 accumulation. */
int cpu_matmul_read(const bs_op_query *query, cpu_matmul *out, bs_op_answer *answer);
/* cpu_matmul_read of bytes: i8 X (take_u8: or u8) and weight, i32 all else. Sums of 32 bits must be those of
 * 64. */
int cpu_matmul_read_bytes(const bs_op_query *query, int take_u8, cpu_matmul *out, bs_op_answer *answer);
/* Reads dtype and row stride of a row-major f32, bf16 or f16 matrix; others: NO with `what` named, and 0. */
int cpu_read_matrix(const bs_tensor_desc *desc, const char *what, uint32_t *out_type, int64_t *out_ld,
                    bs_op_answer *answer);
int cpu_answer_no(bs_op_answer *answer, uint32_t reason, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void cpu_answer_yes(bs_op_answer *answer, uint32_t score, uint32_t tolerance, const char *algo,
                    const char *text);
/* BS_UNSUPPORTED with the reason if supports answers NO: the first step of prepare. */
int32_t cpu_require(int32_t (*supports)(void *, const bs_op_query *, bs_op_answer *), void *state,
                    const bs_op_query *query, bs_error *err);
/* Answers NO and returns 0 when the parameter `matmul` names another implementation than `name`. */
int cpu_matmul_allowed(const cpu_state *state, const char *name, bs_op_answer *answer);
/* Notes that each member of the team works in so many bytes, or answers NO and returns 0 when the query
 * allows less. With a limit a plan gives work to as many members as it allows. */
int cpu_workspace_fits(const bs_op_query *query, uint64_t bytes, bs_op_answer *answer);
uint32_t cpu_workspace_members(const bs_op_query *query, uint64_t bytes, uint32_t width);
/* BS_INVALID_ARGUMENT for a call of more tokens than a plan was prepared for. */
int32_t cpu_batch_fits(int64_t tokens, int64_t prepared, bs_error *err);
/* Row stride of a rank-2 descriptor; all strides zero means dense. */
int64_t cpu_row_stride(const bs_tensor_desc *desc);
/* Are the elements of a row adjacent? */
int cpu_rows_dense(const bs_tensor_desc *desc);
/* Checks that elements of the first `count` args are adjacent; else NO, and 0. */
int cpu_args_dense(const bs_op_query *query, uint32_t count, bs_op_answer *answer);
/* Copies the query's columns for a plan, because the query's own may be freed. Freed by free(). */
int32_t cpu_columns_copy(const bs_partition *partition, bs_partition **out_copy, bs_error *err);

/* Knobs that several ops have: how many members of the team work (auto: all), and whether X is laid out once
 * for all panels of a member. */
extern const bs_knob cpu_knob_threads, cpu_knob_keep;
/* The number of members that work, `width` by default. BS_CONFIG: fewer are available. */
int32_t cpu_knob_members(const bs_op_query *query, uint32_t width, uint32_t *out_members, bs_error *err);
/* The number of these members that get one of `items` pieces of work: 1 if `alone` and no threads were given.
 * BS_UNSUPPORTED: fewer than the requested number. */
int32_t cpu_knob_busy(const bs_op_query *query, int64_t items, int alone, uint32_t members,
                      uint32_t *out_busy, bs_error *err);
/* 1 on, 0 off, `fallback` by default. */
int cpu_knob_switch(const bs_op_query *query, const char *name, int fallback);

/* The activation of one f64, for ops whose types are wider than the kernels'. */
double cpu_activation_f64(uint32_t activation, double v);

static inline int cpu_is_matmul_type(uint32_t dtype) {
  return dtype == BS_F32 || dtype == BS_BF16 || dtype == BS_F16;
}

/* Member `member` of `width` gets begin..end of `count` items; every item belongs to one member. */
static inline void cpu_share(int64_t count, uint32_t member, uint32_t width, int64_t *begin, int64_t *end) {
  const int64_t each = count / width, more = count % width;
  *begin = each * member + (member < more ? member : more);
  *end = *begin + each + (member < more ? 1 : 0);
}

/* Reserves `bytes` of the rank's scratch; 0 if a plan has no members. */
static inline int32_t cpu_reserve(const bs_exec *exec, uint64_t bytes, bs_error *err) {
  const int32_t rc = exec->reserve(exec->ctx, bytes);
  if (rc == BS_OK) return BS_OK;
  return bs_fail(err, rc, "BS-CPU-MEMORY", "no memory for a scratch of %llu bytes",
                 (unsigned long long)bytes);
}

/* Runs body on the team, or on this thread if there is no team. */
static inline int32_t cpu_parallel(const bs_exec *exec, void (*body)(void *, uint32_t, uint32_t), void *arg) {
  if (exec == NULL || exec->parallel_for == NULL || exec->width <= 1) {
    body(arg, 0, 1);
    return BS_OK;
  }
  return exec->parallel_for(exec->ctx, body, arg);
}

/* Runs body as a whole op. `alone`: there is little work, so this thread does it. */
static inline int32_t cpu_team(const bs_exec *exec, int alone, void (*body)(void *, uint32_t, uint32_t),
                               void *arg, bs_error *err) {
  int32_t rc = BS_OK;
  if (alone)
    body(arg, 0, 1);
  else
    rc = cpu_parallel(exec, body, arg);
  return rc == BS_OK ? BS_OK : bs_fail(err, rc, "BS-CPU-TEAM", "the rank's team did not run (%d)", rc);
}

#endif
