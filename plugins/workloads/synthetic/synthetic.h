/* SPDX-License-Identifier: MIT
 * synthetic.h - an opened generated workload: up to four generated matrices. Internal to this plugin. */
#ifndef BS_WORKLOADS_SYNTHETIC_H
#define BS_WORKLOADS_SYNTHETIC_H
#include "../common/generated.h"
#include "../common/options.h"

typedef struct bs_synthetic {
  const bs_host *host;
  uint32_t present; /* bit p: part p (enum bs_workload_part) exists */
  uint32_t reserved;
  bs_generated parts[4];
  bs_workload_info info;
} bs_synthetic;

/* Each makes a workload from a request (vtable slot open); `state` is the host table. */
int32_t bs_random_normal_open(void *state, const bs_workload_request *request, void **out, bs_error *err);
int32_t bs_uniform_open(void *state, const bs_workload_request *request, void **out, bs_error *err);
int32_t bs_integer_open(void *state, const bs_workload_request *request, void **out, bs_error *err);

/* An empty workload of the request's sizes (checked: all given, products in range), parts with shape,
 * stream and seed but law ZERO; freed by the host's free. */
int32_t bs_synthetic_make(const bs_host *host, const bs_workload_request *request, const char *name,
                          bs_synthetic **out, bs_error *err);
#endif
