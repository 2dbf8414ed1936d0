/* SPDX-License-Identifier: MIT
 *
 * bodies.c - the table of what ranks do, and helpers.
 */
#include "tests/tp/bodies.h"

#include <stdarg.h>

#include "core/base/error.h"

const tp_body tp_bodies[] = {
    {"t1_state", 4, 0, t1_state, NULL},
    {"t1_null", 2, 2, t1_null, NULL},
    {"t1_left", 4, 2, t1_left, NULL},
    {"t2_layers", 4, 2, t2_layers, NULL},
    {"t2_layers", 2, 2, t2_layers, NULL},
    {"t2_layers", 3, 3, t2_layers, NULL},
    {"t2_layers", 2, 1, t2_layers, NULL},
    {"t2_refused", 4, 2, t2_refused, NULL},
    {"t2_mappings", 4, 2, t2_mappings, NULL},
    {"t3_orphan", 4, 2, t3_orphan, NULL},
    {"t3_resume", 4, 2, t3_resume, NULL},
    {"t3_many", 4, 2, t3_many, NULL},
    {"t3_idempotent", 4, 2, t3_idempotent, NULL},
    {"t3_exception", 4, 2, t3_exception, "1 of 4 ranks failed: rank 1: on purpose"},
    {"t4_once", 4, 0, t4_once, NULL},
    {"t4_roots", 4, 0, t4_roots,
     "2 of 4 ranks failed: rank 1: the first cause; rank 3: [T4-SECOND] the second cause"},
    {"t4_alike", 4, 0, t4_alike, "3 of 4 ranks failed: rank 0: alike; ranks 2-3: alike"},
    {"t4_silent", 2, 1, t4_silent, "1 of 2 ranks failed: rank 1: ended with status IO and no message"},
    {"t5_readers", 2, 2, t5_readers, NULL},
    {"t5_writers", 2, 2, t5_writers, NULL},
    {"t6_mlp", 4, 2, t6_mlp, NULL},
    {"t6_mlp", 2, 2, t6_mlp, NULL},
    {"t6_mlp", 2, 1, t6_mlp, NULL},
    {"t6_refused", 2, 2, t6_refused, NULL},
};
const int tp_n_bodies = (int)(sizeof tp_bodies / sizeof tp_bodies[0]);

int32_t body_fails(bs_error *err, const char *file, int line, const char *fmt, ...) {
  char text[400];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  bs_error_set(err, BS_NUMERIC, "TP-TEST", "%s:%d: %s", file, line, text);
  return BS_NUMERIC;
}

int32_t body_sum(bs_rank *rank, bs_group *group, double mine, double *out_sum, bs_error *err) {
  const bs_collective what = {.struct_size = sizeof what,
                              .kind = BS_COLL_ALL_REDUCE,
                              .dtype_in = BS_F64,
                              .rows = 1,
                              .count = 1,
                              .site = "body_sum",
                              .group = group};
  return bs_rank_collective_host(rank, &what, &mine, 1, out_sum, 1, err);
}
