/* SPDX-License-Identifier: MIT
 * bucket_make.h - what the files share that make the plan of a range of sizes: bucket.c lowers and plans,
 * bucket_numbers.c makes the table, bucket_constants.c looks at constants, bucket_fits.c asks whether the
 * plan of the largest sizes holds for all. */
#ifndef BS_GRAPH_RUN_BUCKET_MAKE_H
#define BS_GRAPH_RUN_BUCKET_MAKE_H
#include "graph/run/bucket.h"

#define GBUCKET_LARGEST (INT64_C(1) << 40) /* number */

/* Corner c: symbol k is one below its largest size where bit k of c is 1. Then the sizes that test what the
 * corners say: the other ends of the range. */
enum { GBUCKET_GRAPHS = 2 * GBUCKET_CORNERS + 1 };
typedef struct gmaking {
  const gbucket_lower *lower;
  gbucket *bucket;
  int64_t *sizes; /* of the graph that is lowered */
  graph *graphs[GBUCKET_GRAPHS];
  gpairs pairs[GBUCKET_GRAPHS]; /* of graph 0 with each other one */
  int64_t below[GBUCKET_GRAPHS][GBUCKET_SYMBOLS];
  uint32_t corners, n; /* n: with the sizes that test */
  /* For each value of graph 0 (and each dim): the index of its number in the bucket, plus 1; 0: fixed. */
  uint32_t *dims, *strides, *offsets;
  uint32_t cap, cap_dense, cap_strides;
  gpass_trace traces[GPASS_MAX];
  int looks; /* it is not known of all sizes that their graph is that of the range */
} gmaking;

int32_t gmaking_no_memory(bs_error *err);
int32_t gmaking_refuse(bs_error *err, const char *what);

/* The value, or node, of graph c that corresponds to graph 0's. */
static inline const gvalue *gmaking_value(const gmaking *m, uint32_t c, uint32_t i) {
  return &m->graphs[c]->values[c == 0 ? i : m->pairs[c].value[i]];
}
static inline const gnode *gmaking_node(const gmaking *m, uint32_t c, uint32_t id) {
  return &m->graphs[c]->nodes[c == 0 ? id : m->pairs[c].node[id]];
}
/* 1: a node or a port needs the value. */
static inline int gmaking_is_live(const gmaking *m, uint32_t value) {
  return m->pairs[1].value[value] != GNONE;
}
/* 1: a dim, a stride or the offset varies. */
int gmaking_varies(const gmaking *m, uint32_t value);

/* The multilinear function that is f[c] at corner c. */
void gmaking_coefficients(const gmaking *m, const int64_t *f, gbucket_number *out_number);
/* Like gmaking_coefficients. 0: a magnitude of f[i], i < m->n, is above GBUCKET_LARGEST, or the function
 * differs from f[i] at sizes that only test it. */
int gmaking_multilinear(const gmaking *m, const int64_t *f, gbucket_number *out_number);
static inline int64_t gbucket_number_at(const gbucket_number *n, int64_t u, int64_t v) {
  return n->c[0] + u * (n->c[1] + n->c[3] * v) + v * n->c[2];
}
/* How far the sizes are below the largest of symbol k. */
static inline int64_t gbucket_below(const gbucket_range *r, uint32_t k, const int64_t *sizes) {
  return k < r->n ? r->sizes[r->symbol[k]] - sizes[r->symbol[k]] : 0;
}
/* The numbers of values, nodes and programs. */
int32_t gmaking_table(gmaking *m, bs_error *err);
/* out_of: for each graph the constant that corresponds to graph 0's. *out_same: nothing varies. *out_leading:
 * the contents are leading parts of graph 0's. */
int32_t gmaking_compare(const gmaking *m, uint32_t value, const gvalue **out_of, int *out_same,
                        int *out_leading, bs_error *err);
/* Constants whose dims or contents vary. `binding`: of graph 0. */
int32_t gmaking_constants(gmaking *m, const gbinding *binding, bs_error *err);
/* No weight varies. */
int32_t gmaking_weights(const gmaking *m, bs_error *err);
/* Lists what is set and prepared again for a size, and checks that the plan holds at every end of the
 * range. */
int32_t gmaking_fits(gmaking *m, gbinding *binding, bs_error *err);
#endif
