/* SPDX-License-Identifier: MIT
 * plugin.c - the plugin "models": workloads transformer_mlp, attention_like and vision_conv. */
#include "models.h"

static int32_t deactivate(void *state, bs_error *err) {
  models_state *s = state;
  (void)err;
  s->host->free(s->host->ctx, s);
  return BS_OK;
}

static const bs_workload transformer_mlp = {
    (uint32_t)sizeof(bs_workload),
    0,
    "transformer_mlp",
    "transformer_mlp_like",
    "X as after a layer norm and an activation",
    "mlp_variant=gelu: gelu (exact), silu (swish), relu or swiglu\n"
    "scale_in=1: factor before the layer norm\nscale_out=1: factor of the result\n"
    "layernorm=true: subtract each row's mean, divide by its deviation + ln_eps\n"
    "ln_eps=1e-5: added to the deviation\n" BS_WL_LAYER_DOCS,
    models_mlp_open,
    bs_wl_layer_info,
    models_source,
    models_close};

static const bs_workload attention_like = {
    (uint32_t)sizeof(bs_workload),
    0,
    "attention_like",
    "attention",
    "X as an attention's heads give it, side by side",
    "attn_batch=1: batch elements; times tokens it is B\ntokens=B: tokens of a batch element\n"
    "heads=8: heads; K is a multiple of it\n"
    "attn_scale=1/sqrt(K/heads): factor of the scores\n" BS_WL_LAYER_DOCS,
    models_attention_open,
    bs_wl_layer_info,
    models_source,
    models_close};

static const bs_workload vision_conv = {
    (uint32_t)sizeof(bs_workload),
    0,
    "vision_conv",
    "conv_like",
    "X a convolution of random images, flattened: out_channels x height x width is K",
    "C=3: channels of the image\nH=32: its height\nW=32: its width\n"
    "out_channels=C: channels of the result\nkernel_size=3: height and width of the filters\n"
    "stride=1: step of the filters\npadding=kernel_size/2: zeros around the image\n"
    "activation=relu: relu, gelu, silu (swish), none or linear\n" BS_WL_LAYER_DOCS,
    models_vision_open,
    bs_wl_layer_info,
    models_source,
    models_vision_close};

static int32_t activate(const bs_host *host, bs_plugin_self *self, void **out_state, bs_error *err) {
  const bs_workload *all[] = {&transformer_mlp, &attention_like, &vision_conv};
  BS_HERE_LOC(here);
  models_state *s = host->alloc(host->ctx, sizeof *s, 0);
  if (s == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-MEM", "cannot allocate %zu bytes", sizeof *s);
  s->host = host; /* the table outlives the plugin */
  s->kernels = models_kernels_avx2() != NULL ? models_kernels_avx2() : models_kernels_portable();
  s->cache_bytes = UINT64_C(256) << 20;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    int32_t rc = host->register_thing(host->ctx, self, BS_KIND_WORKLOAD, all[i], s, &here, err);
    if (rc != BS_OK) {
      host->free(host->ctx, s);
      return rc;
    }
  }
  *out_state = s;
  return BS_OK;
}

BS_PLUGIN_DEFINE("models", BS_PLUGIN_VERSION, "inputs as a model's layers would see them",
                 1u << BS_KIND_WORKLOAD,
                 "workload:transformer_mlp\nworkload:transformer_mlp_like=transformer_mlp\n"
                 "workload:attention_like\nworkload:attention=attention_like\nworkload:vision_conv\n"
                 "workload:conv_like=vision_conv\n",
                 activate, deactivate)
