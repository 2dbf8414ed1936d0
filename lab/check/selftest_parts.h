/* SPDX-License-Identifier: MIT
 * selftest_parts.h - shared parts of the self-test. */
#ifndef BS_LAB_CHECK_SELFTEST_PARTS_H
#define BS_LAB_CHECK_SELFTEST_PARTS_H
#include "lab/check/selftest.h"

/* Appends a row, which it takes over, and counts it: it is right when its state is "caught" or "clean". */
int32_t bs_selftest_add(bs_selftest *out, json_t *row, bs_error *err);
/* A context with the request's configuration, and one more setting "key=value" if `set` is not NULL. */
int32_t bs_selftest_context(const bs_selftest_request *request, const char *key, const char *value,
                            bs_context **out_context, bs_error *err);

/* selftest_kernel.c, selftest_layer.c */
int32_t bs_selftest_kernels(const bs_selftest_request *request, bs_selftest *out, bs_error *err);
int32_t bs_selftest_layers(const bs_selftest_request *request, bs_selftest *out, bs_error *err);
#endif
