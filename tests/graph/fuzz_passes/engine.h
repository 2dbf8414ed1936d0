/* SPDX-License-Identifier: MIT
 * engine.h - specs as graphs of graph.h, run in a mode; what two runs give is compared by judge.c. */
#ifndef TESTS_GRAPH_FUZZ_PASSES_ENGINE_H
#define TESTS_GRAPH_FUZZ_PASSES_ENGINE_H
#include "tests/graph/fuzz_passes/spec.h"

enum { MAX_PASSES = 24 };

typedef struct mode {
  const char *backend;
  uint32_t f64, n_off;
  const char *off[MAX_PASSES];
} mode;

typedef struct result {
  int32_t status;
  uint32_t n_outputs;
  uint32_t dtypes[SPEC_OUTPUTS];
  int64_t counts[SPEC_OUTPUTS];
  double *outputs[SPEC_OUTPUTS]; /* freed by result_clear */
  char error[240];
} result;
void result_clear(result *r);

/* A graph that is open, with the memory of its inputs. */
typedef struct machine machine;
/* `noisy`: every value that rounding touches is multiplied by one plus a noise, and what nodes give gets one
 * added, which machine_noise draws. */
int32_t machine_open(bs_context *context, const spec *s, int noisy, machine **out, char *error, size_t size);
void machine_close(machine *m);
void machine_run(machine *m, const mode *how, result *out);
/* Runs one session, with f64 and no pass, `n` times with other noises: each[i] gets the i-th outputs.
 * `underflow`: every second run also adds noises of the size of the dtype's smallest normal number. */
void machine_noise(machine *m, uint64_t seed, int underflow, uint32_t n, result *each);
/* 0: of no float. */
double smallest_normal(uint32_t dtype);

#endif
