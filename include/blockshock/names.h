/* SPDX-License-Identifier: MIT
 *
 * names.h - the words for numbers of the SDK: dtypes, activations, collectives, reductions, states of a gate,
 * core ops. bsrun, the library and plugins read and print them by these tables, so that a word means the same
 * everywhere. The functions are inline and need no library.
 *
 * Units: numbers are those of the enums, and sizes of texts are in bytes.
 * Ownership: the texts that the functions return are static.
 * Threads: the functions are pure and may be called from any thread.
 * Errors: an unknown number has the name "?", and bs_name_read returns 0 for an unknown word.
 */
#ifndef BLOCKSHOCK_NAMES_H
#define BLOCKSHOCK_NAMES_H

#include <stdio.h>

#include "comm.h"
#include "op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The state of a gate in a record (share/doc/blockshock/gates.md). UNKNOWN and SKIPPED are not a pass. */
enum bs_gate_state { BS_GATE_FAIL = 0, BS_GATE_PASS = 1, BS_GATE_UNKNOWN = 2, BS_GATE_SKIPPED = 3 };

/* The tables; the numbers of each are those of an enum. */
enum bs_name_table {
  BS_NAMES_DTYPE = 0,      /* enum bs_dtype */
  BS_NAMES_ACTIVATION = 1, /* enum bs_activation */
  BS_NAMES_COLL = 2,       /* enum bs_coll_kind */
  BS_NAMES_REDUCE = 3,     /* enum bs_reduce_op */
  BS_NAMES_GATE = 4,       /* enum bs_gate_state */
  BS_NAMES_OP = 5,         /* core ops (op.h), in the order of the core's table: 0 to BS_CORE_OPS - 1 */
  BS_NAMES_COUNT_ = 6
};
/* How many core ops there are. */
#define BS_CORE_OPS 33

/* A word, the table that it is in, and the number that it names. */
typedef struct bs_name {
  uint32_t table, number;
  const char *word;
} bs_name;

/* All words of all tables, *out_n of them. The first word of a number is its name. Further words of that
 * number are other spellings, which are read and never printed. */
static inline const bs_name *bs_name_rows(uint32_t *out_n) {
  static const bs_name rows[] = {{BS_NAMES_DTYPE, BS_F64, "f64"},
                                 {BS_NAMES_DTYPE, BS_F64, "fp64"},
                                 {BS_NAMES_DTYPE, BS_F64, "float64"},
                                 {BS_NAMES_DTYPE, BS_F64, "double"},
                                 {BS_NAMES_DTYPE, BS_F32, "f32"},
                                 {BS_NAMES_DTYPE, BS_F32, "fp32"},
                                 {BS_NAMES_DTYPE, BS_F32, "float32"},
                                 {BS_NAMES_DTYPE, BS_F32, "float"},
                                 {BS_NAMES_DTYPE, BS_F16, "f16"},
                                 {BS_NAMES_DTYPE, BS_F16, "fp16"},
                                 {BS_NAMES_DTYPE, BS_F16, "float16"},
                                 {BS_NAMES_DTYPE, BS_F16, "half"},
                                 {BS_NAMES_DTYPE, BS_BF16, "bf16"},
                                 {BS_NAMES_DTYPE, BS_BF16, "bfloat16"},
                                 {BS_NAMES_DTYPE, BS_F8E4M3, "f8e4m3"},
                                 {BS_NAMES_DTYPE, BS_F8E4M3, "fp8"},
                                 {BS_NAMES_DTYPE, BS_F8E4M3, "f8_e4m3"},
                                 {BS_NAMES_DTYPE, BS_F8E4M3, "fp8_e4m3"},
                                 {BS_NAMES_DTYPE, BS_F8E4M3, "float8_e4m3fn"},
                                 {BS_NAMES_DTYPE, BS_F8E5M2, "f8e5m2"},
                                 {BS_NAMES_DTYPE, BS_F8E5M2, "f8_e5m2"},
                                 {BS_NAMES_DTYPE, BS_F8E5M2, "fp8_e5m2"},
                                 {BS_NAMES_DTYPE, BS_F8E5M2, "float8_e5m2"},
                                 {BS_NAMES_DTYPE, BS_I64, "i64"},
                                 {BS_NAMES_DTYPE, BS_I64, "int64"},
                                 {BS_NAMES_DTYPE, BS_I32, "i32"},
                                 {BS_NAMES_DTYPE, BS_I32, "int32"},
                                 {BS_NAMES_DTYPE, BS_I8, "i8"},
                                 {BS_NAMES_DTYPE, BS_I8, "int8"},
                                 {BS_NAMES_DTYPE, BS_U8, "u8"},
                                 {BS_NAMES_DTYPE, BS_U8, "uint8"},
                                 {BS_NAMES_DTYPE, BS_BOOL, "bool"},
                                 {BS_NAMES_ACTIVATION, BS_ACT_NONE, "none"},
                                 {BS_NAMES_ACTIVATION, BS_ACT_RELU, "relu"},
                                 {BS_NAMES_ACTIVATION, BS_ACT_GELU, "gelu"},
                                 {BS_NAMES_ACTIVATION, BS_ACT_SILU, "silu"},
                                 {BS_NAMES_ACTIVATION, BS_ACT_SILU, "swish"},
                                 {BS_NAMES_ACTIVATION, BS_ACT_GELU_TANH, "gelu_tanh"},
                                 {BS_NAMES_COLL, BS_COLL_ALL_REDUCE, "all_reduce"},
                                 {BS_NAMES_COLL, BS_COLL_ALL_GATHER, "all_gather"},
                                 {BS_NAMES_COLL, BS_COLL_REDUCE_SCATTER, "reduce_scatter"},
                                 {BS_NAMES_COLL, BS_COLL_BROADCAST, "broadcast"},
                                 {BS_NAMES_COLL, BS_COLL_ALL_TO_ALL, "all_to_all"},
                                 {BS_NAMES_COLL, BS_COLL_SEND, "send"},
                                 {BS_NAMES_COLL, BS_COLL_RECV, "recv"},
                                 {BS_NAMES_COLL, BS_COLL_BARRIER, "barrier"},
                                 {BS_NAMES_REDUCE, BS_REDUCE_SUM, "sum"},
                                 {BS_NAMES_REDUCE, BS_REDUCE_MAX, "max"},
                                 {BS_NAMES_REDUCE, BS_REDUCE_MIN, "min"},
                                 {BS_NAMES_GATE, BS_GATE_FAIL, "fail"},
                                 {BS_NAMES_GATE, BS_GATE_PASS, "pass"},
                                 {BS_NAMES_GATE, BS_GATE_UNKNOWN, "unknown"},
                                 {BS_NAMES_GATE, BS_GATE_SKIPPED, "skipped"},
                                 {BS_NAMES_OP, 0, "matmul"},
                                 {BS_NAMES_OP, 1, "matmul_dx"},
                                 {BS_NAMES_OP, 2, "matmul_dw"},
                                 {BS_NAMES_OP, 3, "matmul_update"},
                                 {BS_NAMES_OP, 4, "matmul24"},
                                 {BS_NAMES_OP, 5, "matmul24_dx"},
                                 {BS_NAMES_OP, 6, "matmul24_dw"},
                                 {BS_NAMES_OP, 7, "matmul24_update"},
                                 {BS_NAMES_OP, 8, "expand24"},
                                 {BS_NAMES_OP, 9, "sgd_update"},
                                 {BS_NAMES_OP, 10, "adamw_update"},
                                 {BS_NAMES_OP, 11, "gather_columns"},
                                 {BS_NAMES_OP, 12, "scatter_columns"},
                                 {BS_NAMES_OP, 13, "convert"},
                                 {BS_NAMES_OP, 14, "activate"},
                                 {BS_NAMES_OP, 15, "activate_dx"},
                                 {BS_NAMES_OP, 16, "quantize_groups"},
                                 {BS_NAMES_OP, 17, "dequantize_sum"},
                                 {BS_NAMES_OP, 18, "dequantize_product"},
                                 {BS_NAMES_OP, 19, "scaled_matmul"},
                                 {BS_NAMES_OP, 20, "loss_gradient"},
                                 {BS_NAMES_OP, 21, "tree_sum"},
                                 {BS_NAMES_OP, 22, "map"},
                                 {BS_NAMES_OP, 23, "normalize"},
                                 {BS_NAMES_OP, 24, "attention"},
                                 {BS_NAMES_OP, 25, "attention_dx"},
                                 {BS_NAMES_OP, 26, "contract"},
                                 {BS_NAMES_OP, 27, "reduce"},
                                 {BS_NAMES_OP, 28, "take"},
                                 {BS_NAMES_OP, 29, "put"},
                                 {BS_NAMES_OP, 30, "topk"},
                                 {BS_NAMES_OP, 31, "matmul_q"},
                                 {BS_NAMES_OP, 32, "take_q"}};
  *out_n = sizeof rows / sizeof rows[0];
  return rows;
}

/* The name of a number; "?" where the table lacks it. */
static inline const char *bs_name_of(uint32_t table, uint32_t number) {
  uint32_t n;
  const bs_name *rows = bs_name_rows(&n);
  for (uint32_t i = 0; i < n; i++)
    if (rows[i].table == table && rows[i].number == number) return rows[i].word;
  return "?";
}

/* Is `text` the word, in letters of either case? Words have small letters. */
static inline int bs_name_is(const char *word, const char *text) {
  while (*word != '\0' &&
         (*text == *word || (*text >= 'A' && *text <= 'Z' && *text + ('a' - 'A') == *word))) {
    word++;
    text++;
  }
  return *word == '\0' && *text == '\0';
}

/* The number that a word names, in letters of either case. Returns 0, and leaves *out_number, where the table
 * lacks the word or text is NULL; else 1. */
static inline int bs_name_read(uint32_t table, const char *text, uint32_t *out_number) {
  uint32_t n;
  const bs_name *rows = bs_name_rows(&n);
  for (uint32_t i = 0; text != NULL && i < n; i++) {
    if (rows[i].table != table || !bs_name_is(rows[i].word, text)) continue;
    *out_number = rows[i].number;
    return 1;
  }
  return 0;
}

/* Writes what a collective is, for messages: "all_reduce f32 4x1024 at 'y'". A text that is too long is cut.
 */
static inline void bs_coll_describe(const bs_coll_call *call, char *out_text, size_t size) {
  const char *kind = bs_name_of(BS_NAMES_COLL, call->kind), *site = call->site != NULL ? call->site : "";
  if (call->kind == BS_COLL_BARRIER)
    snprintf(out_text, size, "%s at '%s'", kind, site);
  else
    snprintf(out_text, size, "%s %s %llux%llu at '%s'", kind, bs_name_of(BS_NAMES_DTYPE, call->dtype_in),
             (unsigned long long)call->rows, (unsigned long long)call->count, site);
}

#ifdef __cplusplus
}
#endif
#endif
