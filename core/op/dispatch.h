/* SPDX-License-Identifier: MIT
 * dispatch.h - op schemas and pack / prepare / run over a backend's implementations. Used by
 * core/world to build bs_rank_api. Chooses by level (NATIVE before EMULATED), score, priority, name. */
#ifndef BS_CORE_OP_DISPATCH_H
#define BS_CORE_OP_DISPATCH_H
#include "core/op/watch.h"

typedef struct bs_choice_book bs_choice_book; /* choice.h */

/* In what is noted of a product whose sums are kept in fewer bits than f32's (BS_TOL_ACC_LOW): gates read it.
 */
#define BS_LOW_SUMS " [low sums]"

/* Host services for one rank's ops: counters go to counters[BS_COUNT_COUNT_]; algorithms are reported by
 * note. */
typedef struct bs_op_host {
  bs_context *context;
  const char *backend;
  const bs_exec *exec; /* outlives every plan and packed object */
  uint64_t *counters;
  void (*note_algorithm)(void *user, const char *text);
  void *user;
  bs_choice_book *choices; /* NULL: none are given and nothing is reported */
  void (*warn)(void *user, const char *text);
  uint32_t world_size;  /* 0: 1 */
  uint32_t rehearse;    /* choose and report; pack and prepare nothing */
  const char *fallback; /* backend whose implementations are the last candidates; NULL: none */
  /* Scratch: exec->reserve keeps in `reserved` the most bytes that it was asked for since prepare began.
   * `plans` counts the plans that use the scratch; when the last one is gone, `unused` is called (if set). */
  uint64_t reserved;
  uint32_t plans;
  void (*unused)(void *user);
  bs_watch *watch; /* NULL: nothing is counted */
} bs_op_host;

/* Schema check of a query: known op or plugin op with an implementation, arity, ranks, shapes,
 * dtypes; BS_INVALID_ARGUMENT says which arg. */
BS_API int32_t bs_op_check(const bs_op_query *query, bs_error *err);
/* Cost by the schema: FLOPs and bytes touched, for one run at the query's shapes. */
BS_API void bs_op_cost(const bs_op_query *query, uint64_t *out_flops, uint64_t *out_bytes);

int32_t bs_dispatch_supports(bs_op_host *host, const bs_op_query *query, bs_op_answer *out_answer,
                             bs_error *err);
int32_t bs_dispatch_pack(bs_op_host *host, const bs_op_query *query, const bs_source *weights,
                         bs_packed **out_packed, bs_error *err);
int32_t bs_dispatch_packed_update(bs_packed *packed, const bs_tensor *delta, bs_error *err);
int32_t bs_dispatch_packed_read(bs_packed *packed, int64_t row, bs_tensor *out, bs_error *err);
uint64_t bs_dispatch_packed_bytes(const bs_packed *packed);
void bs_dispatch_packed_release(bs_packed *packed);
/* A plan over a packed weight uses the implementation that packed it, or, for another op, its sibling: of the
 * same plugin, backend and name. */
int32_t bs_dispatch_prepare(bs_op_host *host, const bs_op_query *query, bs_packed *packed, bs_plan **out_plan,
                            bs_error *err);
int32_t bs_dispatch_run(bs_plan *plan, bs_tensor *const *args, uint32_t nargs, bs_stream *stream,
                        bs_error *err);
/* The two halves of run, for an executor that calls the same plan with the same args again and again. The
 * first checks the args and returns the cost of a run with them. The second runs the plan with args that have
 * passed, and compares and counts nothing; their data may move to other memory, aligned and as large. */
BS_API int32_t bs_dispatch_check_args(const bs_plan *plan, bs_tensor *const *args, uint32_t nargs,
                                      uint64_t *out_flops, uint64_t *out_bytes, bs_error *err);
BS_API int32_t bs_dispatch_run_unchecked(bs_plan *plan, bs_tensor *const *args, bs_stream *stream,
                                         bs_error *err);
/* 1: the implementation of the plan belongs to the host's fallback backend. */
BS_API int bs_dispatch_is_fallback(const bs_plan *plan);
/* Bytes of the rank's scratch that a run of the plan works in; 0: none. */
BS_API uint64_t bs_dispatch_scratch(const bs_plan *plan);
void bs_dispatch_release(bs_plan *plan);
#endif
