/* SPDX-License-Identifier: MIT
 * bad_attention.h - internals of the plugin bad_attention: a backend of host memory with one op, attention.
 * The op is right, or wrong in the one way that plugins.bad_attention.fault names. `bsrun check --selftest`
 * runs it to see the gates of configs/gates fail. It is a separate backend so that no run takes it by
 * chance. */
#ifndef BS_BAD_ATTENTION_H
#define BS_BAD_ATTENTION_H

#include "blockshock/plugin.h"

/* Faults in the order of the choices of plugins.bad_attention.fault. */
enum bad_fault {
  BAD_NONE,
  BAD_REFUSED,        /* supports answers yes, prepare refuses */
  BAD_LOST_KNOB,      /* the tile of keys is 16 for any requested value */
  BAD_REBUILT,        /* another build id */
  BAD_SPILLED,        /* 128 bytes of local memory a thread */
  BAD_MANY_REGISTERS, /* 255 registers a thread */
  BAD_MUCH_SHARED,    /* 1 MiB of shared memory */
  BAD_ZERO,           /* all outputs are zero */
  BAD_NAN,            /* the last output is NaN */
  BAD_LAST_TILE,      /* the last tile of keys is left out */
  BAD_BATCH,          /* batches after the first use K and V of the first */
  BAD_HALF_LSB,       /* Q, K and V through an encoder and a decoder that differ by half a step */
  BAD_TAYLOR_EXP,     /* exp by five terms from -10 to 0 */
  BAD_UNSTEADY,       /* every second run changes the last bit of one output */
  BAD_GREEDY,         /* 8 MiB that supports does not promise */
  BAD_ONE_OUTPUT,     /* 3.5e-6 is added to the last output */
  BAD_MUTE_DEVICE,    /* the memory is a device's, and a plan does not report registers */
  BAD_COUNT_
};

typedef struct bad_plugin {
  const bs_host *host;
  bs_plugin_self *self;
} bad_plugin;

/* The fault as configured. */
int32_t bad_fault_of(const bad_plugin *plugin, uint32_t *out_fault, bs_error *err);

void bad_backend_table(bs_backend *backend);
void bad_attention_table(bs_op_impl *impl);

/* Exponentials: expf, or the Taylor polynomial around 0 of the argument, clamped at -10. */
float bad_exp(uint32_t fault, float x);
/* Encodes and decodes n values in place, by one scale. */
void bad_encode(float *x, int64_t n);
#endif
