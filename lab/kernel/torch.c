/* SPDX-License-Identifier: MIT
 * torch.c - see torch.h: PyTorch as a peer. */
#include "lab/kernel/torch.h"

#include <stdio.h>

#include "core/base/text.h"
#include "lab/error.h"

static int32_t refuse(const bs_kernel_problem *p, bs_error *err) {
  return bs_error_set(err, BS_UNSUPPORTED, "BS-KERNEL-TORCH", "PyTorch has no %s of %s",
                      bs_kernel_problem_op(p->kind), bs_dtype_name(p->dtype));
}

static int32_t load_linear(bs_kernel_peer *peer, const bs_kernel_data *data, bs_error *err) {
  const bs_kernel_problem *p = bs_kernel_data_problem(data);
  const size_t size = BS_DTYPE_BYTES(p->dtype);
  int64_t rows, cols;
  const bs_kernel_peer_part parts[] = {
      {bs_kernel_data_input(data, 0, &rows, &cols), (size_t)(p->B * p->K) * size},
      {bs_kernel_data_input(data, 1, &rows, &cols), (size_t)(p->N * p->K) * size}};
  char command[256];
  size_t bytes;
  const int32_t rc = bs_kernel_peer_share(peer, parts, 2, (size_t)(p->B * p->N) * size, &bytes, err);
  if (rc != BS_OK) return rc;
  snprintf(command, sizeof command, "linear %lld %lld %lld %zu %s\n", (long long)p->B, (long long)p->N,
           (long long)p->K, bytes, bs_dtype_name(p->dtype));
  return bs_kernel_peer_ask(peer, command, NULL, err);
}

static int32_t load_attention(bs_kernel_peer *peer, const bs_kernel_data *data, bs_error *err) {
  const bs_kernel_problem *p = bs_kernel_data_problem(data);
  const size_t size = BS_DTYPE_BYTES(p->dtype);
  bs_kernel_peer_part parts[BS_KERNEL_GIVEN];
  char command[256];
  size_t bytes;
  for (uint32_t i = 0; i < BS_KERNEL_GIVEN; i++) {
    int64_t rows, cols;
    parts[i].from = bs_kernel_data_input(data, i, &rows, &cols);
    parts[i].bytes = (size_t)(rows * cols) * size;
  }
  const size_t y = (size_t)bs_kernel_data_outputs(data) * size;
  const int32_t rc = bs_kernel_peer_share(peer, parts, BS_KERNEL_GIVEN, y, &bytes, err);
  if (rc != BS_OK) return rc;
  snprintf(command, sizeof command, "problem %lld %lld %lld %lld %lld %lld %lld %u %lld %lld %zu %s %s\n",
           (long long)p->B, (long long)p->H, (long long)p->G, (long long)p->S, (long long)p->T,
           (long long)p->D, (long long)p->E, p->causal, (long long)p->left, (long long)p->right, bytes,
           bs_dtype_name(p->dtype), p->kind == BS_KERNEL_SDPA_DX ? "backward" : "forward");
  return bs_kernel_peer_ask(peer, command, NULL, err);
}

static int32_t load(bs_kernel_peer *peer, const bs_kernel_data *data, bs_error *err) {
  const bs_kernel_problem *p = bs_kernel_data_problem(data);
  const int other = bs_kernel_is_product(p) && (p->kind != BS_KERNEL_MATMUL || p->columns != BS_COLUMNS_ALL);
  if (other || BS_DTYPE_BYTES(p->dtype) == 1) return refuse(p, err);
  return bs_kernel_is_product(p) ? load_linear(peer, data, err) : load_attention(peer, data, err);
}

static const bs_kernel_peer_kind kind = {
    .name = "PyTorch", .id = "BS-KERNEL-TORCH", .quiet = 1, .load = load};

int32_t bs_kernel_torch_start(const char *python, uint32_t threads, const char *device, bs_kernel_peer **out,
                              bs_error *err) {
  bs_text script = {0};
  char count[16];
  bs_text_printf(&script, "%s%s", bs_kernel_torch_script[0], bs_kernel_torch_script[1]);
  snprintf(count, sizeof count, "%u", threads > 0 ? threads : 1);
  *out = NULL;
  const char *const words[] = {python, "-c", script.data, count, device, NULL};
  const int32_t rc = script.failed ? bs_no_memory(err, "an arm")
                                   : bs_kernel_peer_start(&kind, python, words, NULL, out, err);
  bs_text_free(&script);
  return rc;
}
