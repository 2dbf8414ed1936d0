/* SPDX-License-Identifier: MIT
 * kernel.h - measures the rates of a backend's own matmul, and identifies its implementation. */
#ifndef BS_LAB_MEASURE_KERNEL_H
#define BS_LAB_MEASURE_KERNEL_H
#include "lab/measure/predict.h"

#define BS_KERNEL_SECONDS 4.0

/* Finds which implementation of matmul, or of matmul24, will serve rank 0's layer, by a rehearsal of its
 * build with the case's choices; fills name, how, plugin and of24. BS_NOT_FOUND: the layer uses neither
 * op. */
int32_t bs_kernel_identify(const bs_case *c, bs_kernel *out, bs_error *err);

/* Rates of the implementation out->name (empty: the default one) for weights of `dtype` of about `footprint`
 * bytes, 64 KiB to 256 MiB: with 64 tokens and with one; on one core, then on all cores at the same time, as
 * ranks and as a team. Takes a few seconds at most; a slow backend gets a smaller weight, which
 * out->footprint reports. like: context, backend, bind, timeout. seconds: the length of the sampling that
 * uses the rates; below BS_KERNEL_SECONDS calls and rounds here are shortened in proportion. BS_UNSUPPORTED:
 * no such implementation serves it. */
int32_t bs_kernel_measure(const bs_case *like, uint32_t dtype, double footprint, double seconds,
                          bs_kernel *out, bs_error *err);
/* Sets kernel->backward: the time of dX and dW of 64 tokens over that of two forwards, on all cores at the
 * same time; 1 if it cannot be measured. kernel has its identity, footprint and rates. */
void bs_kernel_measure_backward(const bs_case *like, uint32_t dtype, bs_kernel *kernel);
const char *bs_kernel_measured_op(const bs_kernel *kernel);
int bs_kernel_same(const bs_kernel *a, const bs_kernel *b); /* op, name, how and plugin */
json_t *bs_kernel_json(const bs_kernel *kernel);            /* a row of the stored constants */
#endif
