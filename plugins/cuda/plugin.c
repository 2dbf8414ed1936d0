/* SPDX-License-Identifier: MIT
 * plugin.c - the table of the cuda plugin: what it registers and its parameters. One op, one file of ops/.
 * Nothing of the driver is touched here: it is opened when a device is asked for. */
#include "comm/comm.h"
#include "cuda.h"
#include "cudnn/library.h"
#include "cusparselt/product.h"
#include "nvml.h"
#include "ops/ops.h"
#if defined(BS_CUDA_LT)
#include "cublaslt/product.h"
#endif

#ifndef BS_PLUGIN_VERSION
#define BS_PLUGIN_VERSION "0.1.0"
#endif

static const bs_param_desc params[] = {
    {sizeof(bs_param_desc), BS_PARAM_STRING, "driver", "auto", NULL, NULL,
     "path of NVIDIA's driver library, auto: libcuda.so.1 as the system finds it"},
    {sizeof(bs_param_desc), BS_PARAM_STRING, "cublaslt", "auto", NULL, NULL,
     "path of cuBLASLt, auto: vendor/ next to the plugin's folder, then libcublasLt.so.13 or .12 as the "
     "system "
     "finds it; off: none"},
    {sizeof(bs_param_desc), BS_PARAM_STRING, "cusparselt", "auto", NULL, NULL,
     "path of cuSPARSELt, auto: vendor/ next to the plugin's folder, then libcusparseLt.so.0 as the system "
     "finds "
     "it; off: none"},
    {sizeof(bs_param_desc), BS_PARAM_STRING, "cudnn", "auto", NULL, NULL,
     "path of cuDNN 9 (9.13.1 or newer), which serves attention; auto: libcudnn.so.9 as the system finds it; "
     "off: "
     "none"},
    {sizeof(bs_param_desc), BS_PARAM_BOOL, "cusparselt_zeros", "on", NULL, NULL,
     "cuSPARSELt takes weights with zeros among the kept values, whose places it does not keep: seen beside "
     "Inf "
     "and NaN of X alone; off: our own kernels take them"},
    {sizeof(bs_param_desc), BS_PARAM_BOOL, "tune", "on", NULL, NULL,
     "time what cuBLASLt and cuSPARSELt have for a shape, once, and keep the fastest; off: their first"},
    {sizeof(bs_param_desc), BS_PARAM_STRING, "nccl", "auto", NULL, NULL,
     "path of NCCL, of the communicator nccl; auto: libnccl.so.2 as the system finds it"},
    {sizeof(bs_param_desc), BS_PARAM_STRING, "nvml", "auto", NULL, NULL,
     "path of NVML, which tells the device's clock; auto: libnvidia-ml.so.1 as the system finds it; off: "
     "none"},
    {sizeof(bs_param_desc), BS_PARAM_STRING, "without", "", NULL, NULL,
     "ops that the plugin does not serve, for example topk,normalize: others serve them, of models on the "
     "host"},
};

static int32_t configure(cuda_state *state, bs_error *err) {
  const bs_host *host = state->host;
  bs_value value;
  memset(&value, 0, sizeof value);
  value.struct_size = (uint32_t)sizeof value;
  for (size_t i = 0; i < sizeof params / sizeof params[0]; i++) {
    const int32_t rc = host->param_define(host->ctx, state->self, &params[i], err);
    if (rc != BS_OK) return rc;
  }
  int32_t rc = host->param_get(host->ctx, state->self, "driver", &value, err);
  if (rc == BS_OK && value.s != NULL && strcmp(value.s, "auto") != 0) state->driver_path = value.s;
  if (rc == BS_OK) rc = host->param_get(host->ctx, state->self, "nccl", &value, err);
  if (rc == BS_OK) rc = cuda_nccl_new(state, value.s != NULL ? value.s : "auto", err);
  if (rc == BS_OK) rc = host->param_get(host->ctx, state->self, "nvml", &value, err);
  if (rc == BS_OK) rc = cuda_nvml_new(state, value.s != NULL ? value.s : "auto", err);
  bs_value tune = {.struct_size = (uint32_t)sizeof tune}, zeros = {.struct_size = (uint32_t)sizeof zeros};
  if (rc == BS_OK) rc = host->param_get(host->ctx, state->self, "tune", &tune, err);
  if (rc == BS_OK) rc = host->param_get(host->ctx, state->self, "cusparselt_zeros", &zeros, err);
  if (rc == BS_OK) rc = host->param_get(host->ctx, state->self, "cusparselt", &value, err);
  if (rc == BS_OK)
    rc = cuda_splt_new(state, value.s != NULL ? value.s : "auto", tune.i != 0, zeros.i != 0, err);
  if (rc == BS_OK) rc = host->param_get(host->ctx, state->self, "cudnn", &value, err);
  if (rc == BS_OK) rc = cuda_dnn_new(state, value.s != NULL ? value.s : "auto", err);
#if defined(BS_CUDA_LT)
  if (rc == BS_OK) rc = host->param_get(host->ctx, state->self, "cublaslt", &value, err);
  if (rc == BS_OK) rc = cuda_lt_new(state, value.s != NULL ? value.s : "auto", tune.i != 0, err);
#endif
  return rc;
}

static const struct {
  uint32_t kind;
  const void *vtable;
} things[] = {
    {BS_KIND_BACKEND, &cuda_backend},
    {BS_KIND_OP, &cuda_convert},
    {BS_KIND_OP, &cuda_matmul},
    {BS_KIND_OP, &cuda_rows},
    {BS_KIND_OP, &cuda_matmul_dx},
    {BS_KIND_OP, &cuda_matmul_dw},
    {BS_KIND_OP, &cuda_matmul_update},
    {BS_KIND_OP, &cuda_matmul24},
    {BS_KIND_OP, &cuda_matmul24_dx},
    {BS_KIND_OP, &cuda_matmul24_dw},
    {BS_KIND_OP, &cuda_matmul24_update},
    {BS_KIND_OP, &cuda_activate},
    {BS_KIND_OP, &cuda_activate_dx},
    {BS_KIND_OP, &cuda_tree_sum},
    {BS_KIND_OP, &cuda_dequantize_sum},
    {BS_KIND_OP, &cuda_dequantize_product},
    {BS_KIND_OP, &cuda_gather_columns},
    {BS_KIND_OP, &cuda_scatter_columns},
    {BS_KIND_OP, &cuda_quantize_groups},
    {BS_KIND_OP, &cuda_sgd_update},
    {BS_KIND_OP, &cuda_adamw_update},
    {BS_KIND_OP, &cuda_expand24},
    {BS_KIND_OP, &cuda_scaled_matmul},
    {BS_KIND_OP, &cuda_loss_gradient},
    {BS_KIND_OP, &cuda_attention},
    {BS_KIND_OP, &cuda_attention_rows},
    {BS_KIND_OP, &cuda_contract},
    {BS_KIND_OP, &cuda_dnn_attention},
    {BS_KIND_OP, &cuda_splt_matmul24},
    {BS_KIND_OP, &cuda_take},
    {BS_KIND_OP, &cuda_put_op},
    {BS_KIND_OP, &cuda_topk},
    {BS_KIND_OP, &cuda_normalize},
    {BS_KIND_OP, &cuda_reduce_op},
    {BS_KIND_OP, &cuda_scan},
    {BS_KIND_OP, &cuda_map},
    {BS_KIND_COMM, &cuda_comm_devlocal},
    {BS_KIND_COMM, &cuda_comm_nccl},
};
enum { THINGS = sizeof things / sizeof things[0] };

/* The parameter `without`: op names with commas around each. */
static int is_left_out(const cuda_state *state, const char *op) {
  char word[64];
  snprintf(word, sizeof word, ",%s,", op);
  return strstr(state->without, word) != NULL;
}

static int serves(const char *op, size_t length) {
  for (size_t i = 0; i < THINGS; i++) {
    const bs_op_impl *impl = things[i].vtable;
    if (things[i].kind == BS_KIND_OP && strlen(impl->op) == length && strncmp(impl->op, op, length) == 0)
      return 1;
  }
  return 0;
}

static int32_t read_without(cuda_state *state, const char *list, bs_error *err) {
  size_t n;
  for (const char *at = list; *at != '\0'; at += n + (at[n] == ',')) {
    n = strcspn(at, ",");
    if (serves(at, n)) continue;
    bs_fail(err, BS_CONFIG, "BS-CUDA-WITHOUT", "plugins.cuda.without: '%.*s' is no op of this plugin",
            n < 60 ? (int)n : 60, at);
    bs_fail_hint(err, "bsrun plugins inspect cuda lists them; for example topk,normalize");
    return BS_CONFIG;
  }
  if (snprintf(state->without, sizeof state->without, ",%s,", list) >= (int)sizeof state->without)
    return bs_fail(err, BS_CONFIG, "BS-CUDA-WITHOUT", "plugins.cuda.without: the list is too long");
  return BS_OK;
}

static int32_t register_one(cuda_state *state, uint32_t kind, const void *vtable, bs_error *err) {
  BS_HERE_LOC(here);
  if (kind == BS_KIND_OP && is_left_out(state, ((const bs_op_impl *)vtable)->op)) return BS_OK;
  return state->host->register_thing(state->host->ctx, state->self, kind, vtable, state, &here, err);
}

/* Products by cuBLASLt, and what steps the weights that they have packed. */
static int32_t register_products(cuda_state *state, bs_error *err) {
#if defined(BS_CUDA_LT)
  const bs_op_impl *const products[] = {&cuda_lt_matmul,        &cuda_lt_matmul_dx,     &cuda_lt_matmul_dw,
                                        &cuda_lt_matmul_update, &cuda_lt_scaled_matmul, &state->steps[0],
                                        &state->steps[1]};
  state->steps[0] = cuda_sgd_update;
  state->steps[1] = cuda_adamw_update;
  state->steps[0].name = state->steps[1].name = CUDA_LT;
  for (size_t i = 0; i < sizeof products / sizeof products[0]; i++) {
    const int32_t rc = register_one(state, BS_KIND_OP, products[i], err);
    if (rc != BS_OK) return rc;
  }
#else
  (void)state;
  (void)err;
#endif
  return BS_OK;
}

static int32_t register_all(cuda_state *state, bs_error *err) {
  for (size_t i = 0; i < THINGS; i++) {
    const int32_t rc = register_one(state, things[i].kind, things[i].vtable, err);
    if (rc != BS_OK) return rc;
  }
  return register_products(state, err);
}

static int32_t deactivate(void *opaque, bs_error *err) {
  cuda_state *state = opaque;
  (void)err;
  if (state == NULL) return BS_OK;
#if defined(BS_CUDA_LT)
  cuda_lt_delete(state);
#endif
  cuda_splt_delete(state);
  cuda_dnn_delete(state);
  cuda_nccl_delete(state);
  cuda_nvml_delete(state);
  cuda_contexts_release(state);
  cuda_driver_close(&state->driver);
  state->host->free(state->host->ctx, state);
  return BS_OK;
}

static int32_t activate(const bs_host *host, bs_plugin_self *self, void **out_state, bs_error *err) {
  cuda_state *state = host->alloc(host->ctx, sizeof *state, 64);
  if (state == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CUDA-MEMORY", "no memory for the plugin's state");
  state->host = host;
  state->self = self;
  int32_t rc = cuda_driver_init(&state->driver, err);
  if (rc != BS_OK) {
    host->free(host->ctx, state);
    return rc;
  }
  bs_value without = {.struct_size = (uint32_t)sizeof without};
  rc = configure(state, err);
  if (rc == BS_OK) rc = host->param_get(host->ctx, self, "without", &without, err);
  if (rc == BS_OK) rc = read_without(state, without.s != NULL ? without.s : "", err);
  if (rc == BS_OK) rc = register_all(state, err);
  if (rc != BS_OK) {
    (void)deactivate(state, NULL);
    return rc;
  }
  *out_state = state;
  return BS_OK;
}

BS_PLUGIN_DEFINE("cuda", BS_PLUGIN_VERSION, "NVIDIA GPUs: own kernels on the driver's interface",
                 1u << BS_KIND_BACKEND | 1u << BS_KIND_OP | 1u << BS_KIND_COMM,
                 "needs:libcuda.so.1=driver\nbackend:cuda\nop:convert@cuda\n"
                 "op:matmul@cuda\nop:matmul_dx@cuda\nop:matmul_dw@cuda\nop:matmul_update@cuda\n"
                 "op:matmul24@cuda\nop:matmul24_dx@cuda\nop:matmul24_dw@cuda\nop:matmul24_update@cuda\n"
                 "op:activate@cuda\nop:activate_dx@cuda\nop:tree_sum@cuda\nop:dequantize_sum@cuda\n"
                 "op:dequantize_product@cuda\nop:gather_columns@cuda\nop:scatter_columns@cuda\n"
                 "op:quantize_groups@cuda\nop:sgd_update@cuda\nop:adamw_update@cuda\nop:expand24@cuda\n"
                 "op:scaled_matmul@cuda\nop:loss_gradient@cuda\nop:attention@cuda\nop:contract@cuda\n"
                 "op:take@cuda\nop:put@cuda\nop:topk@cuda\nop:normalize@cuda\nop:reduce@cuda\nop:map@cuda\n"
                 "comm:devlocal:\ncomm:nccl:\n",
                 activate, deactivate)
