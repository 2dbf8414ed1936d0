/* SPDX-License-Identifier: MIT
 *
 * arm_torch.c - PyTorch's linear by the lab's process of PyTorch (lab/kernel/torch.h). */
#include <stdio.h>

#include "arms.h"
#include "core/base/error.h"
#include "lab/kernel/torch.h"

static int32_t torch_ready(bench_arm *arm, const bench_numbers *m, bs_error *err) {
  const bs_kernel_problem product = {
      .kind = BS_KERNEL_MATMUL, .dtype = m->dtype, .B = m->b, .N = m->n, .K = m->k};
  snprintf(arm->way, sizeof arm->way, "F.linear");
  return bs_kernel_torch_linear(arm->self, &product, m->x, m->w, err);
}

static int32_t torch_batch(bench_arm *arm, uint64_t calls, double *out_seconds, bs_error *err) {
  bs_sample sample = {0};
  const int32_t rc = bs_kernel_torch_batch(arm->self, 0, calls, &sample, err);
  if (rc == BS_OK) *out_seconds = sample.seconds;
  return rc;
}

static const void *torch_output(bench_arm *arm, bs_error *err) {
  const void *y = NULL;
  return bs_kernel_torch_output(arm->self, &y, err) == BS_OK ? y : NULL;
}

static void torch_release(bench_arm *arm) {
  (void)arm; /* the next shape takes the place of this one */
}

static void torch_close(bench_arm *arm) {
  bs_kernel_torch_close(arm->self);
}

int32_t bench_open_torch(const bench_arm_options *o, bench_arm *arm, bs_error *err) {
  static const bench_arm_ops ops = {torch_ready, torch_batch, torch_output, torch_release, torch_close};
  bs_kernel_torch *torch = NULL;
  if (o->python == NULL)
    return bs_error_set(err, BS_UNAVAILABLE, "BS-BENCH-TORCH", "--python names no Python that has torch");
  const int32_t rc = bs_kernel_torch_start(o->python, o->threads, o->backend, &torch, err);
  if (rc != BS_OK) return rc;
  arm->self = torch;
  arm->ops = &ops;
  snprintf(arm->version, sizeof arm->version, "%s", bs_kernel_torch_version(torch));
  return BS_OK;
}
