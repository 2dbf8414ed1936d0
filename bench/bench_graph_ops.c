/* SPDX-License-Identifier: MIT
 *
 * bench_graph_ops.c - models of one operator, run as a session runs them: `map` compared with a loop written
 * by hand (hand_loops.c), alternately. `bsrun bench sdpa` times attention.
 *
 *   bench_graph_ops [--op add|silu_mul|rope] [--elements N] [--heads H] [--rows S] [--width D] [--threads T]
 *                   [--pairs P] [--batch SECONDS] [-o table|json]
 *
 * add and silu_mul have N elements, rope [1,H,S,D], all of f32. The loop by hand runs on one thread, the
 * caller's, which is bound to the first core. Results that differ end the program with exit code 6.
 */
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blockshock/graph.h"
#include "blockshock/plugin.h"
#include "core/base/clock.h"
#include "hand_loops.h"
#include "support.h"

enum { MAX_PAIRS = 1000, MAX_IN = 3 };
#define TOLERANCE 1e-5 /* of the largest output */

typedef struct job {
  const char *op, *output;
  int64_t elements, heads, rows, width, threads, pairs;
  double batch;
  bs_tensor_desc in[MAX_IN];
  uint32_t n_in;
  bs_tensor_desc out;
  float *data[MAX_IN], *y, *hand_y;
  bs_graph *graph;
  bs_session *session;
  double ours[MAX_PAIRS], hand[MAX_PAIRS];
} job;

static int is(const job *j, const char *op) {
  return strcmp(j->op, op) == 0;
}

static int64_t count_of(const bs_tensor_desc *d) {
  int64_t n = 1;
  for (uint32_t i = 0; i < d->rank; i++) n *= d->dims[i];
  return n;
}

static bs_tensor_desc dense(uint32_t rank, const int64_t *dims) {
  bs_tensor_desc d = {.struct_size = sizeof d, .dtype = BS_F32, .rank = rank};
  int64_t stride = 1;
  for (uint32_t i = rank; i-- > 0; stride *= dims[i]) {
    d.dims[i] = dims[i];
    d.strides[i] = stride;
  }
  return d;
}

static int32_t describe(job *j, bs_error *err) {
  const int64_t whole[4] = {1, j->heads, j->rows, j->width}, angles[3] = {1, j->rows, j->width / 2};
  if (is(j, "rope")) {
    j->n_in = 3;
    j->out = j->in[0] = dense(4, whole);
    j->in[1] = j->in[2] = dense(3, angles);
    return BS_OK;
  }
  if (!is(j, "add") && !is(j, "silu_mul"))
    return bs_fail(err, BS_USAGE, "BS-BENCH-OP", "no op %s: add, silu_mul or rope", j->op);
  j->n_in = 2;
  j->out = j->in[0] = j->in[1] = dense(1, &j->elements);
  return BS_OK;
}

/* Numbers in [-1, 1] by their place. */
static int32_t make_numbers(job *j, bs_error *err) {
  j->y = bench_huge_alloc((uint64_t)count_of(&j->out) * sizeof(float));
  j->hand_y = bench_huge_alloc((uint64_t)count_of(&j->out) * sizeof(float));
  int whole = j->y != NULL && j->hand_y != NULL;
  for (uint32_t k = 0; k < j->n_in && whole; k++) {
    const int64_t n = count_of(&j->in[k]);
    j->data[k] = bench_huge_alloc((uint64_t)n * sizeof(float));
    whole = j->data[k] != NULL;
    for (int64_t i = 0; i < n && whole; i++)
      j->data[k][i] = (float)((double)((i * 7919 + (int64_t)k * 104729) % 2003) / 1001.0 - 1.0);
  }
  return whole ? BS_OK : bs_fail(err, BS_NO_MEMORY, "BS-BENCH-MEMORY", "no memory for the numbers");
}

/* ---- the model ---------------------------------------------------------------------------------- */

static int32_t build_graph(job *j, bs_context *context, bs_error *err) {
  static const char *const names[MAX_IN] = {"a", "b", "c"};
  uint32_t in[MAX_IN] = {0}, y = 0, step[2] = {0}, product = 0;
  int32_t rc = bs_graph_new(context, &j->graph, err);
  for (uint32_t k = 0; k < j->n_in && k < MAX_IN && rc == BS_OK; k++)
    rc = bs_graph_input(j->graph, names[k], &j->in[k], NULL, &in[k], err);
  if (rc != BS_OK) return rc;
  if (is(j, "add")) {
    rc = bs_graph_op(j->graph, "Add", in, 2, NULL, 0, &y, 1, err);
  } else if (is(j, "rope")) {
    rc = bs_graph_op(j->graph, "RotaryEmbedding", in, 3, NULL, 0, &y, 1, err);
  } else {
    rc = bs_graph_op(j->graph, "Sigmoid", in, 1, NULL, 0, &step[1], 1, err);
    step[0] = in[0];
    if (rc == BS_OK) rc = bs_graph_op(j->graph, "Mul", step, 2, NULL, 0, &product, 1, err);
    step[0] = product;
    step[1] = in[1];
    if (rc == BS_OK) rc = bs_graph_op(j->graph, "Mul", step, 2, NULL, 0, &y, 1, err);
  }
  return rc == BS_OK ? bs_graph_output(j->graph, "y", y, err) : rc;
}

static int32_t set_port(job *j, uint32_t port, const bs_tensor_desc *d, void *data, bs_error *err) {
  bs_tensor t = {.struct_size = sizeof t, .dtype = d->dtype, .rank = d->rank, .data = data};
  memcpy(t.dims, d->dims, sizeof t.dims);
  memcpy(t.strides, d->strides, sizeof t.strides);
  t.bytes = (uint64_t)count_of(d) * BS_DTYPE_BYTES(d->dtype);
  return bs_session_set(j->session, port, &t, err);
}

static int32_t open_session(job *j, bs_context *context, bs_error *err) {
  const bs_session_options options = {.struct_size = sizeof options,
                                      .threads = (uint32_t)j->threads,
                                      .bind = j->threads > 1,
                                      .no_fallback = 1};
  int32_t rc = bs_session_open(context, j->graph, &options, &j->session, err);
  for (uint32_t k = 0; k < j->n_in && rc == BS_OK; k++) rc = set_port(j, k, &j->in[k], j->data[k], err);
  return rc == BS_OK ? set_port(j, j->n_in, &j->out, j->y, err) : rc;
}

/* The caller is a member of the team, and runs the loop by hand. */
static void stay_on_one_core(void) {
  cpu_set_t all, one;
  int core = 0;
  if (sched_getaffinity(0, sizeof all, &all) != 0) return; /* only steadier */
  while (core < CPU_SETSIZE - 1 && !CPU_ISSET(core, &all)) core++;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  (void)sched_setaffinity(0, sizeof one, &one);
}

/* ---- samples ------------------------------------------------------------------------------------ */

static int32_t run_ours(job *j, bs_error *err) {
  return bs_session_run(j->session, err);
}

static int32_t run_hand(job *j, bs_error *err) {
  (void)err;
  if (is(j, "add"))
    hand_add(j->hand_y, j->data[0], j->data[1], j->elements);
  else if (is(j, "silu_mul"))
    hand_silu_mul(j->hand_y, j->data[0], j->data[1], j->elements);
  else
    hand_rope(j->hand_y, j->data[0], j->data[1], j->data[2], j->heads, j->rows, j->width / 2);
  return BS_OK;
}

/* Seconds a call over a batch; one call before it is not timed. */
static int32_t sample(job *j, int32_t (*run)(job *, bs_error *), double *out_seconds, bs_error *err) {
  int64_t calls = 0;
  int32_t rc = run(j, err);
  const double start = bs_clock_s();
  double taken = 0.0;
  while (rc == BS_OK && (calls == 0 || taken < j->batch)) {
    rc = run(j, err);
    calls++;
    taken = bs_clock_s() - start;
  }
  *out_seconds = taken / (double)calls;
  return rc;
}

static int32_t measure(job *j, bs_error *err) {
  int32_t rc = BS_OK;
  for (int64_t i = 0; i < j->pairs && rc == BS_OK; i++) {
    const int hand_first = (i & 1) != 0;
    if (hand_first) rc = sample(j, run_hand, &j->hand[i], err);
    if (rc == BS_OK) rc = sample(j, run_ours, &j->ours[i], err);
    if (rc == BS_OK && !hand_first) rc = sample(j, run_hand, &j->hand[i], err);
  }
  return rc;
}

/* ---- report ------------------------------------------------------------------------------------- */

static int32_t judge(const job *j, bs_error *err) {
  double largest = 0.0, worst = 0.0;
  for (int64_t i = 0; i < count_of(&j->out); i++) {
    const double apart = fabs((double)j->y[i] - (double)j->hand_y[i]);
    if (!(apart <= worst)) worst = isnan(apart) ? INFINITY : apart;
    largest = fmax(largest, fabs((double)j->hand_y[i]));
  }
  if (worst <= TOLERANCE * largest) return BS_OK;
  return bs_fail(err, BS_NUMERIC, "BS-BENCH-WRONG",
                 "%s differs from the loop by hand by %.2g of the largest output", j->op, worst / largest);
}

static void report(const job *j) {
  const size_t pairs = (size_t)j->pairs;
  const double ours = bs_median(j->ours, pairs);
  bs_comparison c = {0};
  (void)bs_compare_pairs(j->ours, j->hand, pairs, 0.01, &c);
  const double hand = bs_median(j->hand, pairs);
  if (strcmp(j->output, "json") == 0)
    printf(
        "{\"bench\":\"graph_ops\",\"op\":\"%s\",\"elements\":%lld,\"threads\":%lld,\"pairs\":%zu,\"ours_s\":%"
        ".5g,"
        "\"hand_s\":%.5g,\"ratio\":%.4f,\"low\":%.4f,\"high\":%.4f}\n",
        j->op, (long long)count_of(&j->out), (long long)j->threads, pairs, ours, hand, c.ratio, c.low,
        c.high);
  else
    printf(
        "%-18s %10lld elements, %lld threads: %.2f us, by hand %.2f us, by hand / ours %.3f [%.3f, %.3f]\n",
        j->op, (long long)count_of(&j->out), (long long)j->threads, ours * 1e6, hand * 1e6, c.ratio, c.low,
        c.high);
}

int main(int argc, char **argv) {
  static job j = {.op = "add", .output = "table", .elements = 393216, .heads = 12, .rows = 512};
  j.width = 64;
  j.threads = 1;
  j.pairs = 40;
  j.batch = 0.005;
  const bench_option options[] = {{"--op", 's', &j.op, 0, 0},
                                  {"--elements", 'i', &j.elements, 1, 1 << 28},
                                  {"--heads", 'i', &j.heads, 1, 1024},
                                  {"--rows", 'i', &j.rows, 1, 65536},
                                  {"--width", 'i', &j.width, 2, 256},
                                  {"--threads", 'i', &j.threads, 1, 1024},
                                  {"--pairs", 'i', &j.pairs, 5, MAX_PAIRS},
                                  {"--batch", 'f', &j.batch, 0, 60},
                                  {"-o", 's', &j.output, 0, 0}};
  if (!bench_parse("bench_graph_ops", argc, argv, options, sizeof options / sizeof options[0])) return 2;
  bs_error err = {.struct_size = sizeof err};
  bs_context *context = NULL;
  int32_t rc = describe(&j, &err);
  if (rc == BS_OK) rc = make_numbers(&j, &err);
  if (rc == BS_OK) rc = bs_context_open(NULL, &context, &err);
  if (rc == BS_OK) rc = build_graph(&j, context, &err);
  if (rc == BS_OK) rc = open_session(&j, context, &err);
  stay_on_one_core();
  if (rc == BS_OK) rc = measure(&j, &err);
  if (rc == BS_OK) rc = judge(&j, &err);
  if (rc == BS_OK) report(&j);
  bs_session_close(j.session);
  bs_graph_close(j.graph);
  if (context != NULL) bs_context_close(context);
  for (uint32_t k = 0; k < MAX_IN; k++) free(j.data[k]);
  free(j.y);
  free(j.hand_y);
  return rc == BS_OK ? 0 : bench_fail("bench_graph_ops", &err);
}
