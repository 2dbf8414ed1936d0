/* SPDX-License-Identifier: MIT
 * synthetic.h - the workloads of this plugin: each is a bs_wl_layer with its own distribution of X.
 * Internal. */
#ifndef BS_WORKLOADS_SYNTHETIC_H
#define BS_WORKLOADS_SYNTHETIC_H
#include "../common/layer.h"

/* Each makes a workload from a request (vtable slot open); `state` is the host table. */
int32_t bs_random_normal_open(void *state, const bs_workload_request *request, void **out, bs_error *err);
int32_t bs_uniform_open(void *state, const bs_workload_request *request, void **out, bs_error *err);
int32_t bs_activation_open(void *state, const bs_workload_request *request, void **out, bs_error *err);
int32_t bs_integer_open(void *state, const bs_workload_request *request, void **out, bs_error *err);
#endif
