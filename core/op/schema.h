/* SPDX-License-Identifier: MIT
 * schema.h - the rows of the core's op table: what every query of a known op must satisfy, and what a run
 * costs per row. Used by core/op/dispatch.c; the public face is bs_op_check and bs_op_cost. Pure. */
#ifndef BS_CORE_OP_SCHEMA_H
#define BS_CORE_OP_SCHEMA_H
#include "blockshock/blockshock.h"
#include "core/base/text.h"

/* A dynamic op's FLOPs are the sum of its terms: factor x elements of an arg x one dim of another. */
typedef struct bs_op_term {
  uint64_t factor;
  uint8_t arg;
  uint8_t by_arg, by_dim; /* by_arg == arg: by nothing */
} bs_op_term;

/* Which keys the queries of attention see: its attrs. Its terms then count only the pairs of a query (dim 2
 * of a term's arg) and a key (by_dim) that is seen, and K and V count only the keys that some query sees. */
typedef struct bs_op_sight {
  uint32_t of_attention; /* 0: all of this says nothing */
  uint32_t causal;       /* enum bs_causal */
  int64_t left, right;   /* windows; 0: none */
} bs_op_sight;

/* The dims of a dynamic op's query that must stay equal. links[i][d] 0: dim d of arg i stays as prepared.
 * Other dims with the same number are equal at run, and may be smaller than prepared. */
typedef struct bs_op_links {
  uint8_t links[BS_MAX_OP_ARGS][BS_MAX_DIMS];
  uint8_t touched[BS_MAX_OP_ARGS]; /* how often all bytes of the arg count in the cost */
  uint8_t used;                    /* the largest number so far */
  uint32_t nterms;
  bs_op_term terms[2];
  bs_op_sight sight;
} bs_op_links;

typedef struct bs_op_schema {
  const char *name;
  const char
      *roles;     /* "x:BC:t bias?:N:m y:BN:o": name, dims and dtype of each argument (ask.c); ?: optional */
  uint32_t nargs; /* 0: as many as its program has inputs and outputs */
  uint32_t required;      /* bit i: arg i may not be NULL */
  uint32_t activations;   /* bit i: arg i's leading dimension is the batch and may shrink at run */
  uint32_t outputs;       /* bit i: arg i is written */
  uint32_t needs_weights; /* 1: prepare needs a packed weight, 2: and run changes it; 0: prepare takes none */
  uint32_t ranks[BS_MAX_OP_ARGS];
  int32_t (*check)(const bs_op_query *query, bs_error *err);
  void (*rate)(const bs_op_query *query, bs_op_rate *out_rate);
  const char *packed_by; /* the op that its weights are packed for; NULL: needs none */
  uint32_t k_arg, n_arg; /* args whose second dimension is the weight's columns (K with X_FULL) and rows */
  uint32_t of_weight;    /* 1: arg 0 is [N,K_r], what a packed weight holds, whatever it was packed for */
  /* Dynamic ops (op.h) have this in the place of ranks, activations and rate: any rank that check lets pass,
   * and at run the dims and outer strides of the call. `query` has passed check, the rest comes zeroed. */
  void (*link)(const bs_op_query *query, bs_op_links *out_links);
} bs_op_schema;

/* The schema of a core op; NULL for an op that only plugins define. */
BS_API const bs_op_schema *bs_op_schema_find(const char *op);
/* Number of core ops (BS_CORE_OPS), and each of them, in the order of names.h; index < count. */
BS_API uint32_t bs_op_schema_count(void);
BS_API const bs_op_schema *bs_op_schema_at(uint32_t index);
/* Which args of a query are written; a program, if any, has passed its check. */
uint32_t bs_op_outputs(const bs_op_schema *schema, const bs_op_query *query);
/* The cost per row of any query that passed bs_op_check; zero for plugin ops and dynamic ones. */
void bs_op_rate_of(const bs_op_query *query, bs_op_rate *out_rate);
/* bs_host.op_cost. */
BS_API int32_t bs_op_cost_parts(const bs_op_query *query, bs_op_rate *out_rate, bs_error *err);
/* Strides of a descriptor with the dense default filled in: out[0..rank). */
void bs_op_strides(const bs_tensor_desc *desc, int64_t out[BS_MAX_DIMS]);
/* Sizes that come from outside: dims, strides and the bytes they span are not negative and fit in 63 bits;
 * what is written has no element twice. BS_INVALID_ARGUMENT names arg `index`. */
int32_t bs_op_check_extent(const char *op, uint32_t index, const bs_tensor_desc *desc, int written,
                           bs_error *err);
/* 1: a view with these dims and strides has an element twice, or its dimensions do not nest so that one could
 * tell that it has not. */
int bs_op_overlaps(uint32_t rank, const int64_t *dims, const int64_t *strides);
/* "f32[64,128] ..." of a query, whole. */
void bs_op_describe_text(const bs_op_query *query, bs_text *out);
/* Writes the same text for a message, truncated to `size`. */
void bs_op_describe(const bs_op_query *query, char *out, size_t size);
/* N and, without a partition, K of the packed weight that a query of a core op needs. */
int64_t bs_op_weight_rows(const bs_op_schema *schema, const bs_op_query *query);
int64_t bs_op_weight_columns(const bs_op_schema *schema, const bs_op_query *query);
/* BS_INVALID_ARGUMENT with "op: text", where and hint filled in. */
int32_t bs_op_refuse(bs_error *err, const char *id, const char *op, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* schema_q.c */
int32_t bs_op_check_matmul_q(const bs_op_query *query, bs_error *err);
int32_t bs_op_check_take_q(const bs_op_query *query, bs_error *err);
void bs_op_rate_matmul_q(const bs_op_query *query, bs_op_rate *out_rate);
void bs_op_rate_take_q(const bs_op_query *query, bs_op_rate *out_rate);
/* schema_grad.c */
int32_t bs_op_check_dx(const bs_op_query *query, bs_error *err);
int32_t bs_op_check_dw(const bs_op_query *query, bs_error *err);
int32_t bs_op_check_update(const bs_op_query *query, bs_error *err);
void bs_op_rate_dx(const bs_op_query *query, bs_op_rate *out_rate);
void bs_op_rate_dw(const bs_op_query *query, bs_op_rate *out_rate);
void bs_op_rate_update(const bs_op_query *query, bs_op_rate *out_rate);
/* schema.c and schema_grad.c for schema_24.c */
int32_t bs_op_check_matmul(const bs_op_query *query, bs_error *err);
int32_t bs_op_check_dw_of(const bs_op_query *query, int64_t dw_columns, bs_error *err);
void bs_op_rate_matmul(const bs_op_query *query, bs_op_rate *out_rate);
/* schema.c for schema_table.c */
int32_t bs_op_check_gather(const bs_op_query *query, bs_error *err);
int32_t bs_op_check_scatter(const bs_op_query *query, bs_error *err);
int32_t bs_op_check_convert(const bs_op_query *query, bs_error *err);
int32_t bs_op_check_activate(const bs_op_query *query, bs_error *err);
void bs_op_rate_columns(const bs_op_query *query, bs_op_rate *out_rate);
void bs_op_rate_convert(const bs_op_query *query, bs_op_rate *out_rate);
/* schema_24.c */
int32_t bs_op_check_24(const bs_op_query *query, bs_error *err);
int32_t bs_op_check_24_dx(const bs_op_query *query, bs_error *err);
int32_t bs_op_check_24_dw(const bs_op_query *query, bs_error *err);
int32_t bs_op_check_24_update(const bs_op_query *query, bs_error *err);
int32_t bs_op_check_expand24(const bs_op_query *query, bs_error *err);
void bs_op_rate_24(const bs_op_query *query, bs_op_rate *out_rate);
void bs_op_rate_24_dx(const bs_op_query *query, bs_op_rate *out_rate);
void bs_op_rate_24_dw(const bs_op_query *query, bs_op_rate *out_rate);
void bs_op_rate_24_update(const bs_op_query *query, bs_op_rate *out_rate);
void bs_op_rate_expand24(const bs_op_query *query, bs_op_rate *out_rate);
/* Does a core op work with positions (query->kept)? */
int bs_op_takes_kept(const char *op);
/* Length of a packed row of `cols` columns: two of each group of four. */
int64_t bs_op_kept_length(int64_t cols);
/* A hash of some rows of the positions; other positions most likely have another hash. NULL: 0. Returns the
 * error of a read that fails. */
int32_t bs_op_kept_hash(const bs_kept *kept, uint64_t *out_hash, bs_error *err);
/* schema_step.c */
int32_t bs_op_check_sgd(const bs_op_query *query, bs_error *err);
int32_t bs_op_check_adamw(const bs_op_query *query, bs_error *err);
int32_t bs_op_check_activate_dx(const bs_op_query *query, bs_error *err);
void bs_op_rate_sgd(const bs_op_query *query, bs_op_rate *out_rate);
void bs_op_rate_adamw(const bs_op_query *query, bs_op_rate *out_rate);
void bs_op_rate_activate_dx(const bs_op_query *query, bs_op_rate *out_rate);
/* schema_quant.c */
int32_t bs_op_check_quantize(const bs_op_query *query, bs_error *err);
int32_t bs_op_check_dequantize(const bs_op_query *query, bs_error *err);
void bs_op_rate_quant(const bs_op_query *query, bs_op_rate *out_rate);
int32_t bs_op_check_dequantize_product(const bs_op_query *query, bs_error *err);
void bs_op_rate_dequantize_product(const bs_op_query *query, bs_op_rate *out_rate);
int32_t bs_op_check_scaled_matmul(const bs_op_query *query, bs_error *err);
void bs_op_rate_scaled_matmul(const bs_op_query *query, bs_op_rate *out_rate);
/* schema_loss.c */
int32_t bs_op_check_loss(const bs_op_query *query, bs_error *err);
void bs_op_rate_loss(const bs_op_query *query, bs_op_rate *out_rate);
/* schema_tree.c */
int32_t bs_op_check_tree(const bs_op_query *query, bs_error *err);
void bs_op_rate_tree(const bs_op_query *query, bs_op_rate *out_rate);
/* dynamic.c: what the schemas of dynamic ops share. */
int bs_op_is_integer(uint32_t dtype); /* i8 u8 i32 i64 */
int bs_op_is_index(uint32_t dtype);   /* i32 i64 */
int32_t bs_op_check_rank(const bs_op_query *query, uint32_t i, uint32_t rank, bs_error *err);
/* The dims of arg i are those of arg `of`, or with `broadcast` 1 in their place. */
int32_t bs_op_check_dims(const bs_op_query *query, uint32_t i, uint32_t of, int broadcast, bs_error *err);
/* Dim d of arg i has the size of dim of_d of arg `of`. */
int32_t bs_op_check_dim(const bs_op_query *query, uint32_t i, uint32_t d, uint32_t of, uint32_t of_d,
                        bs_error *err);
/* numbers[i] is finite, and not 0: that would be a forgotten one. */
int32_t bs_op_check_number(const bs_op_query *query, uint32_t i, const char *name, bs_error *err);
/* attrs[i] is in low..high. */
int32_t bs_op_check_attr(const bs_op_query *query, uint32_t i, int64_t low, int64_t high, const char *name,
                         bs_error *err);
/* Gives dim d of arg i the number of dim of_d of arg `of`, if they have one size. Where both are the same
 * dim, it gets a new number. */
void bs_op_link(const bs_op_query *query, bs_op_links *links, uint32_t i, uint32_t d, uint32_t of,
                uint32_t of_d);
/* Links every dim of arg i to the same dim of arg `of`, which has the same rank. */
void bs_op_link_all(const bs_op_query *query, bs_op_links *links, uint32_t i, uint32_t of);
/* schema_map.c, schema_rows.c, schema_product.c, schema_index.c */
int32_t bs_op_check_map(const bs_op_query *query, bs_error *err);
int32_t bs_op_check_normalize(const bs_op_query *query, bs_error *err);
int32_t bs_op_check_reduce(const bs_op_query *query, bs_error *err);
int32_t bs_op_check_topk(const bs_op_query *query, bs_error *err);
int32_t bs_op_check_attention(const bs_op_query *query, bs_error *err);
int32_t bs_op_check_attention_dx(const bs_op_query *query, bs_error *err);
int32_t bs_op_check_contract(const bs_op_query *query, bs_error *err);
int32_t bs_op_check_take(const bs_op_query *query, bs_error *err);
int32_t bs_op_check_put(const bs_op_query *query, bs_error *err);
void bs_op_link_map(const bs_op_query *query, bs_op_links *out_links);
void bs_op_link_normalize(const bs_op_query *query, bs_op_links *out_links);
void bs_op_link_reduce(const bs_op_query *query, bs_op_links *out_links);
void bs_op_link_topk(const bs_op_query *query, bs_op_links *out_links);
void bs_op_link_attention(const bs_op_query *query, bs_op_links *out_links);
void bs_op_link_attention_dx(const bs_op_query *query, bs_op_links *out_links);
void bs_op_link_contract(const bs_op_query *query, bs_op_links *out_links);
void bs_op_link_take(const bs_op_query *query, bs_op_links *out_links);
void bs_op_link_put(const bs_op_query *query, bs_op_links *out_links);
/* Column i of a partition; NULL is all columns. */
uint32_t bs_op_partition_column(const bs_partition *partition, int64_t i);
#endif
