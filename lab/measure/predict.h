/* SPDX-License-Identifier: MIT
 * predict.h - computes times from the machine's constants and a method's proposal: the bound that no kernel
 * can beat, and the expected time of the kernels that serve. Pure; docs/measuring.md has the formulas. */
#ifndef BS_LAB_MEASURE_PREDICT_H
#define BS_LAB_MEASURE_PREDICT_H
#include "lab/measure/machine.h"

/* The rates of one implementation of matmul on weights of `footprint` bytes (of all ranks together). Each
 * rate describes its part alone: kernel time = bs_overlap(FLOPs / flops, bytes / bytes). */
typedef struct bs_kernel {
  uint32_t of24;    /* 1: of matmul24, and FLOPs and bytes are those of kept values */
  char name[160];   /* "cpu:packed" */
  char how[224];    /* as it answered: "packed-avx2, own kernels" */
  char plugin[128]; /* SHA-256 of the plugin's file, or the library's build id */
  double footprint;
  double flops_core, flops_all;  /* FLOP/s: one core alone; all at the same time, each with its part */
  double bytes_core, bytes_all;  /* bytes/s of weights and activations */
  double flops_team, bytes_team; /* of one rank whose team has all cores; 0: use those of all */
  double spread;                 /* as of a bs_machine */
  double all_over_core; /* time of all over time of one, for 64 tokens or one: it cannot be above 1 */
  double backward;      /* times the arithmetic of dX and dW takes a forward's, a FLOP; 0: not known */
  const char *source;   /* "measured" or "stored"; static */
} bs_kernel;

/* The expected parts of the time of one forward, in seconds. */
typedef struct bs_parts {
  double compute, memory, wire, host, total;
} bs_parts;
/* The name of the largest part: "compute", "memory", "wire" or "host". */
const char *bs_parts_limit(const bs_parts *parts);

typedef struct bs_predicted {
  bs_parts bound;    /* by the machine's limits: total = chunked(max(compute, memory), wire) + host */
  const char *limit; /* of the bound */
  double least;      /* the bound by the fastest machine that the constants can be of; 0: no bound holds */
  int has_kernel;
  bs_parts kernel; /* by the kernel's rates: total = chunked(bs_overlap(compute, memory), wire) + host */
} bs_predicted;

/* (a^p + b^p)^(1/p), p = 6: two parts of the work that hide each other but for a rest. */
double bs_overlap(double a, double b);
/* The bytes that a rank sends in one forward, as the host counts them (for the kinds that layers use). */
uint64_t bs_wire_bytes(const bs_proposal *proposal, uint32_t world_size);
/* A product of so many chunks, each on the wire while the next is computed; 0, 1: one after the other. */
double bs_chunked(double product, double wire, uint32_t chunks);
/* Finds the rates that explain two measured forwards of one weight: with many tokens and with one. Each part
 * is set to at least a quarter of its forward if the other part hides it. */
typedef struct bs_two_points {
  double seconds_many, seconds_one, flops_many, flops_one, bytes_many, bytes_one;
} bs_two_points;
void bs_kernel_rates(const bs_two_points *t, double *out_flops, double *out_bytes);

/* One rank's forward. kernel: NULL when it is not known. threads: of each rank; concurrent ranks share the
 * cores and the memory. */
void bs_predict_rank(const bs_machine *machine, const bs_kernel *kernel, const bs_layer_spec *spec,
                     const bs_proposal *proposal, uint32_t world_size, uint32_t threads, bs_predicted *out);
/* The slowest rank's. */
int32_t bs_predict_case(const bs_machine *machine, const bs_kernel *kernel, const bs_case *c,
                        bs_predicted *out, bs_error *err);
/* Are the constants, which are of this machine's processors, limits of the case's backend? Not of a device's.
 */
int bs_predict_holds(const bs_case *c);
/* Bytes of the weights of all ranks. */
int32_t bs_predict_footprint(const bs_case *c, double *out_bytes, bs_error *err);

/* A measured time compared with the bound and the prediction: the share of the limit, an impossible time, a
 * wrong prediction, and possible causes. */
typedef struct bs_against {
  uint32_t below_bound; /* shorter than the fastest machine allows that the constants can be of (`least`) */
  double share;         /* bound / measured, at most 1; 0: UNKNOWN, also if another bound may apply */
  double ratio;         /* measured / predicted; 0: UNKNOWN */
  uint32_t off;         /* by more than 15 %, either way */
} bs_against;

/* Known facts on the measuring of an arm. */
typedef struct bs_against_facts {
  const char *arm;
  const bs_machine *machine;
  uint32_t ranks, threads; /* threads: of each rank */
  uint64_t pairs, disturbed;
} bs_against_facts;

/* measured: seconds of one call. A sample lasts at least two milliseconds, so the clock's resolution does not
 * matter. */
bs_against bs_against_of(const bs_predicted *predicted, double measured);
/* Adds below_bound, share_of_limit and measured_over_predicted; null: UNKNOWN. */
void bs_against_json(json_t *into, const bs_against *against);
/* 1 and a sentence if the time is below the bound, or else if the prediction is wrong. */
int bs_against_sentence(const bs_predicted *predicted, double measured, const bs_against_facts *facts,
                        char *out_text, size_t size);
#endif
