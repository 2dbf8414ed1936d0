/* SPDX-License-Identifier: MIT
 * ask.h - the time of an op inside of a device: the fastest of the device's tiles, and a table of the times
 * that are known. It includes nothing of parts, whose kinds share names with the terms of cost.h. */
#ifndef BS_SIM_ASK_H
#define BS_SIM_ASK_H
#include "blockshock/blockshock.h"

enum { SIM_ASKS_KEPT = 4096, SIM_ASK_WORDS = 32 };
/* enum sim_op_kind of program.h. */
enum sim_ask_kind { SIM_ASK_PRODUCT = 0, SIM_ASK_ATTENTION, SIM_ASK_MAP, SIM_ASK_KINDS };

/* All that a time depends on beside the device. Each number is a word of the table's key; those of other
 * kinds are 0. */
typedef struct sim_ask {
  uint64_t op, kind; /* op: its number in the table of names */
  uint64_t in_dtype, weight_dtype, out_dtype;
  /* Product: Y[m,n] = X[m,k] W[k,n]; epilogue: ops of the vector unit on an element of Y. */
  uint64_t m, n, k, epilogue;
  /* Attention, as sim_attention_shape; sharing: its `group`; the limits as int64_t. */
  uint64_t heads, sharing, s, t, d, e, sees_from, sees_end;
  /* Map, as sim_map_shape. */
  uint64_t elements, row, out_of, inputs, outputs, ops;
  /* Knobs as in program.h. tm 0: the fastest of the device's tiles and stages; `rows` is the class of the
   * strides. */
  uint64_t tm, tn, tk, stages, group, accumulators, grain, rows, ahead;
} sim_ask;

typedef struct sim_inside_time {
  uint64_t ps, launch; /* launch: before the lanes begin, and behind their ends until all answers are back */
  uint32_t units_bind; /* 1: of all classes of parts, 10 % faster units gain most */
  uint32_t has_none;   /* 1: the device cannot hold the op or has no parts for it: no time is known */
} sim_inside_time;

/* What a device is without its inside; 0: not given. */
typedef struct sim_sums {
  const char *name, *label;
  double flops, flops_f32, flops_f64, flops_f8; /* per second, of all units of products */
  double mem_Bps, mem_bytes;                    /* of the memory behind all caches */
  uint64_t launch;                              /* ps */
} sim_sums;

struct sim_device;
/* The launch of an op of no time: of what has no program. Errors are those of sim_launch_out and _back. */
int32_t sim_ask_launch(const struct sim_device *device, uint64_t *out_ps, bs_error *err);
void sim_device_sums(const struct sim_device *device, sim_sums *out);
/* BS_CONFIG BS-DEVICE-TWICE: plugins.sim.KEY is given (not 0), and is not within 1 % of the device's sum. */
int32_t sim_sums_agree(const sim_sums *sums, const char *key, double given, bs_error *err);
/* Simulates an op. Takes 20 KB of stack. Errors are those of sim_program_layout and sim_choose_run. What says
 * that the device has no tiles, parts, rates or scratch for an op is an error of products alone: others get
 * has_none. */
int32_t sim_ask_run(const struct sim_device *device, const sim_ask *ask, sim_inside_time *out, bs_error *err);

/* The times that are known of one device. No function locks. */
typedef struct sim_asks sim_asks;
/* BS_CONFIG: what sim_device_read finds wrong in the text; BS_NO_MEMORY. */
int32_t sim_asks_open(const char *text, sim_asks **out, bs_error *err);
void sim_asks_close(sim_asks *asks);
const struct sim_device *sim_asks_device(const sim_asks *asks);
/* 1: *out is known. */
int sim_asks_find(const sim_asks *asks, const sim_ask *ask, sim_inside_time *out);
/* Drops all that are known where the table is full. */
void sim_asks_keep(sim_asks *asks, const sim_ask *ask, const sim_inside_time *time);
#endif
