/* SPDX-License-Identifier: MIT
 *
 * cpu_host.h - the cpu plugin in the hands of the conformance kit: opened with parameters, its
 * implementations as the kit's actors, and queries of generated data run by them, for tests of what no other
 * plugin has: knobs, refusals, teams, bits. */
#ifndef BS_TESTS_CPU_HOST_H
#define BS_TESTS_CPU_HOST_H

#include "kit/op.h"

typedef struct ch {
  bs_kit_options options;
  char text[4][512];
  const char *params[4];
  kit_plugin plugin;
} ch;

/* isa: the parameter isa, for one unit of 512 bits, or with *2 behind it, as in avx512*2, for two; "auto":
 * for as many as the processor has. dnnl: the parameter dnnl_library. */
void ch_open(ch *c, const char *isa, const char *dnnl);
/* matmul NULL: "auto". The status is returned; what is open then is closed by ch_close. */
int32_t ch_try_open(ch *c, const char *isa, const char *dnnl, const char *matmul, bs_error *err);
void ch_close(ch *c);
/* An actor with a team of `width`; 0: this build has no such implementation. */
int ch_find(ch *c, kit_actor *out, const char *op, const char *name, uint32_t width);
/* ch_find, of an implementation that has to be there. */
void ch_actor(ch *c, kit_actor *out, const char *op, const char *name, uint32_t width);
/* Whether this processor has it: the plugin must then take isa=NAME, else refuse it. */
int ch_has_isa(const char *isa);
const char *ch_best_isa(void);

/* Gives a matmul or matmul24 the descriptors of other sizes; its tensors stay: for supports alone. */
void ch_sizes(kit_data *d, int64_t B, int64_t N, int64_t K);
/* Columns k with bit k mod period of bits set, within [begin, begin + span); a run; some without a period.
 * Freed by ch_partition_free. */
bs_partition ch_pattern(int64_t total, uint32_t period, uint32_t bits, int64_t begin, int64_t span);
bs_partition ch_run_of(int64_t total, int64_t begin, int64_t count);
bs_partition ch_list(int64_t total, int64_t count, uint64_t *seed);
void ch_partition_free(bs_partition *p);
int64_t ch_column(const bs_partition *p, int64_t i);

/* Runs a query, which has to succeed: pack, prepare, run, free. */
void ch_run(kit_actor *a, kit_data *d);
/* ch_run of a query that the answer serves; its outputs must be right. */
void ch_check(kit_actor *a, kit_data *d);
/* ch_check; the bytes of scratch that the plan reserved. */
uint64_t ch_scratch(kit_actor *a, kit_data *d);
/* One plan over `packed`, prepared, run and freed; the status of what fails first. */
int32_t ch_try_plan(kit_actor *a, kit_data *d, void *packed, bs_error *err);
#endif
