/* SPDX-License-Identifier: MIT
 * torch.h - PyTorch's scaled_dot_product_attention or linear as an arm in a Python process. It gets exactly
 * the bytes of the other arms. */
#ifndef BS_LAB_KERNEL_TORCH_H
#define BS_LAB_KERNEL_TORCH_H
#include "lab/kernel/peer.h"

/* Starts torch. python: a program, found on PATH if it has no slash. device: "cpu" or "cuda". BS_UNAVAILABLE,
 * id BS-KERNEL-TORCH: it cannot be started, has no torch, or torch has no such device. Importing torch takes
 * seconds. */
int32_t bs_kernel_torch_start(const char *python, uint32_t threads, const char *device, bs_kernel_peer **out,
                              bs_error *err);

/* torch_script.c: the program of the process, in two pieces. */
extern const char *const bs_kernel_torch_script[2];
#endif
