/* SPDX-License-Identifier: MIT
 * plan.h - the records of bs_packed and bs_plan, shared by dispatch.c (makes them) and run.c (the hot
 * call). Used by one rank's thread: the reference counts are plain. */
#ifndef BS_CORE_OP_PLAN_H
#define BS_CORE_OP_PLAN_H
#include "core/op/dispatch.h"
#include "core/op/schema.h"
#include "core/plugin/registry.h"

/* A weight packed by `impl`; every plan over it uses that or a sibling (sibling.h). */
struct bs_packed {
  const bs_thing *thing;
  const bs_op_impl *impl;
  void *object;
  uint64_t bytes;
  int64_t rows, count, total; /* N, K_r, K */
  int64_t length;             /* of a packed row: count, or of 2:4 weights the kept ones */
  uint64_t columns_hash;
  uint64_t kept_hash; /* 0: all weights are kept */
  bs_quant quant;     /* the form of a quantised weight; struct_size 0: another weight */
  uint32_t weight_dtype;
  uint32_t refs;      /* the caller's, and one a plan */
  uint32_t rehearsal; /* 1: there is no object */
};

/* The fields of one arg that run compares: everything but the batch must be as prepared. */
typedef struct bs_plan_arg {
  uint32_t present;
  uint32_t shrinks; /* dims[0] may be smaller than prepared */
  uint32_t dtype;
  uint32_t rank;
  int64_t dims[BS_MAX_DIMS];
  int64_t strides[BS_MAX_DIMS];
  uint64_t row_bytes;  /* strides[0] in bytes */
  uint64_t tail_bytes; /* bytes from the start of a row to its end, 0 when a row is empty */
} bs_plan_arg;

struct bs_plan {
  int32_t (*run)(void *plan, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err);
  void *object;
  uint64_t *counters;
  bs_op_rate rate;
  uint32_t nargs;
  uint32_t batch_args; /* bit i: arg i has the common batch of a core op */
  const bs_thing *thing;
  const bs_op_impl *impl;
  bs_packed *packed;
  uint32_t rehearsal; /* 1: there is no object */
  uint32_t dynamic;   /* 1: of an op with links, which say what a run may change */
  uint32_t outputs;   /* bit i: arg i of a dynamic op is written */
  uint64_t scratch;   /* bytes that prepare reserved */
  bs_op_host *host;   /* whose they are */
  uint32_t has_echo;
  bs_op_echo echo; /* what the object said of itself when it was made */
  bs_op_links links;
  bs_plan_arg args[BS_MAX_OP_ARGS];
};

/* A plan without its object, from a query that passed bs_op_check; NULL when out of memory. */
bs_plan *bs_plan_new(const bs_op_host *host, const bs_thing *thing, const bs_op_query *query);

/* May a kernel touch all of a tensor that no plan knows: as run checks its args. written: and has no element
 * twice. BS_INVALID_ARGUMENT with `id` (or BS-OP-SHAPE, BS-OP-SIZE, BS-OP-ALIGN) that names it as `what`. */
int32_t bs_op_check_view(const bs_op_impl *impl, const char *id, const char *what, const bs_tensor *tensor,
                         int written, bs_error *err);
#endif
