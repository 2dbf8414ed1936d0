/* SPDX-License-Identifier: MIT
 * build.h - graphs for tests, built and run through graph.h alone. */
#ifndef TESTS_GRAPH_BUILD_H
#define TESTS_GRAPH_BUILD_H
#include "blockshock/graph.h"
#include "tests/run_tests.h"

/* Of the test that runs; made by tb_begin, closed by tb_end. */
extern bs_context *tb_context;
extern bs_graph *tb_graph;
void tb_begin(void);
void tb_end(void);

uint32_t tb_input(const char *name, uint32_t dtype, uint32_t rank, const int64_t *dims);
uint32_t tb_symbolic(const char *name, uint32_t dtype, uint32_t rank, const int64_t *dims,
                     const char *const *symbols);
uint32_t tb_constant(uint32_t dtype, uint32_t rank, const int64_t *dims, const void *data);
uint32_t tb_ints(uint32_t count, const int64_t *values); /* i64 [count] */
uint32_t tb_random(uint32_t rank, const int64_t *dims,
                   double scale); /* f32, normal, other numbers each time */
uint32_t tb_scalar(double value); /* f32, rank 0 */
/* One output, up to three inputs (BS_GRAPH_NONE: absent). */
uint32_t tb_op(const char *op, uint32_t a, uint32_t b, uint32_t c);
/* With integer attributes "axis=1 keepdims=0 perm=0,2,1": a value with a comma, or that ends with one, is a
 * list; one with a point is a float. */
uint32_t tb_with(const char *op, const char *attrs, uint32_t a, uint32_t b, uint32_t c);
uint32_t tb_many(const char *op, const char *attrs, const uint32_t *in, uint32_t n_in, uint32_t *outs,
                 uint32_t n_out);
void tb_output(const char *name, uint32_t value);

/* A session; fails the test with the error when it does not open. dims: "N=4 M=2" or "". off: passes, NULL
 * none. */
bs_session *tb_open(const char *backend, const char *dims, const char *off);
/* The same without failing. */
int32_t tb_try(const char *backend, const char *dims, const char *off, bs_session **out, bs_error *err);
void tb_set(bs_session *session, const char *port, const void *data);
void tb_run(bs_session *session);
const float *tb_get(bs_session *session, const char *port);
const void *tb_data(bs_session *session, const char *port, bs_tensor *out_tensor);
int64_t tb_elements(bs_session *session, const char *port);
/* The text of a report. Freed by tb_end. */
const char *tb_report(bs_session *session, uint32_t what, uint32_t json);
/* Fills with normal numbers by seed. */
void tb_fill(float *out, int64_t n, uint64_t seed);

#endif
