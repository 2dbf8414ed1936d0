/* SPDX-License-Identifier: MIT
 * inside_op.h - the text of an op that has a program for the inside of a device. */
#ifndef BS_LAB_SIM_INSIDE_OP_H
#define BS_LAB_SIM_INSIDE_OP_H
#include <stddef.h>

#include "sim/program.h"

/* A product or an attention of lab/kernel/problem.h (which "attention " may precede), or "NAME
 * nELEMENTS[bROWS][:DTYPE]" of a table of maps, copy and send. epilogue: further ops on each element of a
 * product's Y. `text` is written in its canonical form. BS_USAGE: no such op; BS_UNSUPPORTED BS-INSIDE-OP:
 * none that has a program. */
int32_t bs_inside_op_read(const char *text, uint32_t epilogue, sim_op *out, uint32_t *out_dtype,
                          char *out_text, size_t size, bs_error *err);
/* The bytes of an op's operands, each counted once: those that each memory of a device has a copy of, and
 * those that the memories divide. A product's X and W, and K and V, are read by lanes of every place. */
void bs_inside_op_bytes(const sim_op *op, double *out_copied, double *out_divided);
#endif
