/* SPDX-License-Identifier: MIT
 * torch.h - PyTorch's scaled_dot_product_attention or linear as an arm: a Python process that times calls on
 * request and sleeps in between. It gets exactly the bytes of the other arms, and returns its output to be
 * judged like theirs. */
#ifndef BS_LAB_KERNEL_TORCH_H
#define BS_LAB_KERNEL_TORCH_H
#include "lab/kernel/data.h"
#include "lab/measure/load.h"
#include "lab/measure/span.h"

typedef struct bs_kernel_torch bs_kernel_torch;

/* Starts torch. python: a program, found on PATH if it has no slash. device: "cpu" or "cuda". BS_UNAVAILABLE,
 * id BS-KERNEL-TORCH: it cannot be started, has no torch, or torch has no such device. Importing torch takes
 * seconds. */
int32_t bs_kernel_torch_start(const char *python, uint32_t threads, const char *device, bs_kernel_torch **out,
                              bs_error *err);
void bs_kernel_torch_close(bs_kernel_torch *torch);
/* The processor time of its process so far. */
void bs_kernel_torch_used(const bs_kernel_torch *torch, bs_process_use *out);
const char *bs_kernel_torch_version(const bs_kernel_torch *torch); /* "PyTorch 2.15.0 (AVX512)" */
/* The problem that is timed from now on; the caller keeps data alive until the next one. BS_UNSUPPORTED:
 * torch does not serve it, with its reason. */
int32_t bs_kernel_torch_load(bs_kernel_torch *torch, bs_kernel_data *data, bs_error *err);
/* These have the contracts of bs_kernel_arm_batch, bs_kernel_arm_series and bs_kernel_arm_judge. */
int32_t bs_kernel_torch_batch(void *torch, uint64_t lead, uint64_t n, bs_sample *out, bs_error *err);
int32_t bs_kernel_torch_series(void *torch, uint64_t warmup, uint64_t n, double *out_seconds, bs_error *err);
int32_t bs_kernel_torch_judge(bs_kernel_torch *torch, bs_kernel_numbers *out, bs_error *err);

/* torch_script.c: the program of the process, in two pieces. */
extern const char *const bs_kernel_torch_script[2];
enum { BS_KERNEL_TORCH_CALLS = 65536 }; /* of a series, at most */
#endif
