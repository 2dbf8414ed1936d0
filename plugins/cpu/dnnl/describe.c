/* SPDX-License-Identifier: MIT
 *
 * describe.c - a matmul in oneDNN's words, and what its tables answer to it: descriptors, attributes, and
 * the plugin's supports. Slow path only; dnnl/matmul.c makes primitives of it and runs them. */
#include "matmul.h"

static dnnl_data_type_t type_of(uint32_t dtype) {
  return dtype == BS_BF16 ? dnnl_bf16 : dtype == BS_F16 ? dnnl_f16 : dnnl_f32;
}

static dnnl_status_t matrix(const cpu_dnnl_lib *lib, uint32_t dtype, int64_t rows, int64_t cols,
                            int64_t row_stride, int64_t col_stride, dnnl_memory_desc_t *out_desc) {
  const dnnl_dims_t dims = {rows, cols}, strides = {row_stride, col_stride};
  return lib->api.memory_desc_create_with_strides(out_desc, 2, dims, type_of(dtype), strides);
}

/* The residual, which run places in Y before. Activations are done by run, with our own kernels: oneDNN's
 * relu turns NaN into 0, and its gelu is off by several units of its argument. */
static dnnl_status_t attributes(const cpu_dnnl_lib *lib, const cpu_matmul *shape,
                                dnnl_primitive_attr_t *out_attr) {
  const cpu_dnnl_api *api = &lib->api;
  dnnl_post_ops_t ops = NULL;
  dnnl_status_t status = api->primitive_attr_create(out_attr);
  if (status != dnnl_success) return status;
  status = api->primitive_attr_set_scratchpad_mode(*out_attr, dnnl_scratchpad_mode_user);
  if (status == dnnl_success)
    status = api->primitive_attr_set_fpmath_mode(*out_attr, dnnl_fpmath_mode_strict);
  if (status == dnnl_success) status = api->post_ops_create(&ops);
  if (status == dnnl_success && shape->r_type != 0)
    status = api->post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef);
  if (status == dnnl_success) status = api->primitive_attr_set_post_ops(*out_attr, ops);
  if (ops != NULL) (void)api->post_ops_destroy(ops);
  if (status != dnnl_success) (void)api->primitive_attr_destroy(*out_attr);
  return status;
}

void cpu_dnnl_free_descs(const cpu_dnnl_lib *lib, cpu_dnnl_descs *d) {
  if (d->x != NULL) (void)lib->api.memory_desc_destroy(d->x);
  if (d->w != NULL) (void)lib->api.memory_desc_destroy(d->w);
  if (d->bias != NULL) (void)lib->api.memory_desc_destroy(d->bias);
  if (d->y != NULL) (void)lib->api.memory_desc_destroy(d->y);
  memset(d, 0, sizeof *d);
}

dnnl_status_t cpu_dnnl_make_descs(const cpu_dnnl_lib *lib, const cpu_matmul *s, int64_t tokens, int64_t count,
                                  cpu_dnnl_descs *out) {
  memset(out, 0, sizeof *out);
  dnnl_status_t status = matrix(lib, s->x_type, tokens, s->K, s->x_ld, 1, &out->x);
  if (status == dnnl_success) status = matrix(lib, s->weight_type, s->K, count, 1, s->K, &out->w);
  if (status == dnnl_success && s->bias_type != 0)
    status = matrix(lib, s->bias_type, 1, count, count, 1, &out->bias);
  if (status == dnnl_success) status = matrix(lib, s->y_type, tokens, count, s->y_ld, 1, &out->y);
  if (status != dnnl_success) cpu_dnnl_free_descs(lib, out);
  return status;
}

/* Made with OpenMP width 1: oneDNN plans for the threads it sees now. */
dnnl_status_t cpu_dnnl_make_desc(const cpu_dnnl_lib *lib, const cpu_matmul *shape, int64_t tokens,
                                 int64_t count, cpu_dnnl_descs *d, dnnl_primitive_desc_t *out_desc) {
  dnnl_primitive_attr_t attr = NULL;
  *out_desc = NULL;
  dnnl_status_t status = cpu_dnnl_make_descs(lib, shape, tokens, count, d);
  if (status != dnnl_success) return status;
  status = attributes(lib, shape, &attr);
  if (status == dnnl_success) {
    const int width = cpu_dnnl_alone(lib);
    status = lib->api.matmul_primitive_desc_create(out_desc, lib->engine, d->x, d->w, d->bias, d->y, attr);
    cpu_dnnl_together(lib, width);
    (void)lib->api.primitive_attr_destroy(attr);
  }
  if (status != dnnl_success) cpu_dnnl_free_descs(lib, d);
  return status;
}

/* Refuses queries that oneDNN's own tables refuse on this processor, and those that it serves only by its
 * slow reference. */
static int ask_library(const cpu_dnnl_lib *lib, const cpu_matmul *shape, int64_t tokens, bs_op_answer *answer,
                       char *algo, size_t size) {
  dnnl_primitive_desc_t desc = NULL;
  const char *name = "";
  cpu_dnnl_descs d;
  const dnnl_status_t status = cpu_dnnl_make_desc(lib, shape, tokens, shape->N, &d, &desc);
  if (status != dnnl_success)
    return cpu_answer_no(answer, BS_REASON_DTYPE,
                         "%s has no kernel for these dtypes and epilogue (status %d)", lib->text,
                         (int)status);
  const dnnl_memory_desc_t pad =
      (dnnl_memory_desc_t)lib->api.primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
  const size_t bytes = pad != NULL ? lib->api.memory_desc_get_size(pad) : 0;
  (void)lib->api.primitive_desc_query(desc, dnnl_query_impl_info_str, 0, (void *)&name);
  snprintf(algo, size, "dnnl-%s", name);
  cpu_dnnl_free_descs(lib, &d);
  (void)lib->api.primitive_desc_destroy(desc);
  if (strncmp(algo, "dnnl-ref", 8) == 0)
    return cpu_answer_no(answer, BS_REASON_ARCH, "%s has only its reference kernel here", lib->text);
  if (bytes == DNNL_RUNTIME_SIZE_VAL)
    return cpu_answer_no(answer, BS_REASON_WORKSPACE, "%s cannot tell its workspace", lib->text);
  return 1;
}

static int has_isa(const cpu_dnnl_lib *lib, uint32_t isa) {
  return (lib->isa & isa) == isa;
}

static int check_isa(const cpu_dnnl_lib *lib, const cpu_matmul *s, bs_op_answer *answer) {
  if (s->x_type == BS_BF16 && !has_isa(lib, dnnl_cpu_isa_avx512_core))
    return cpu_answer_no(answer, BS_REASON_ARCH, "%s: bf16 needs AVX-512 here", lib->text);
  if (s->x_type == BS_F16 && !has_isa(lib, dnnl_cpu_isa_avx512_core_fp16))
    return cpu_answer_no(answer, BS_REASON_ARCH, "%s: f16 needs AVX512-FP16", lib->text);
  return 1;
}

/* Refuses queries that no version of oneDNN serves here. */
static int check_types(const bs_op_query *query, const cpu_matmul *s, bs_op_answer *answer) {
  if ((query->flags & BS_QUERY_TOKENWISE) != 0)
    return cpu_answer_no(answer, BS_REASON_DISABLED, "oneDNN chooses its blocks by the number of tokens");
  if (query->workspace_limit != 0)
    return cpu_answer_no(answer, BS_REASON_WORKSPACE, "oneDNN keeps no limit of workspace");
  if (s->y_type != BS_F32 && s->y_type != s->x_type)
    return cpu_answer_no(answer, BS_REASON_DTYPE, "Y must be f32 or X's dtype");
  if (s->bias_type != 0 && s->bias_type != BS_F32 && s->bias_type != s->x_type)
    return cpu_answer_no(answer, BS_REASON_DTYPE, "bias must be f32 or X's dtype");
  if (s->r_type != 0 && s->r_type != s->y_type)
    return cpu_answer_no(answer, BS_REASON_DTYPE, "residual must have Y's dtype");
  if (s->r_type != 0 && s->activation != BS_ACT_NONE)
    return cpu_answer_no(answer, BS_REASON_DISABLED, "an activation before a residual is ours, not oneDNN's");
  if (s->activation > BS_ACT_RELU && s->y_type != BS_F32)
    return cpu_answer_no(answer, BS_REASON_DISABLED, "gelu and silu are ours, before rounding to Y's dtype");
  return 1;
}

static int check_shape(cpu_matmul *s, bs_op_answer *answer) {
  if (s->x_full) return cpu_answer_no(answer, BS_REASON_LAYOUT, "does not pick X's columns");
  if (s->N < 1 || s->K < 1) return cpu_answer_no(answer, BS_REASON_SHAPE, "a weight's size is 0");
  if (s->B <= 1) { /* the stride of a single row means nothing */
    s->x_ld = s->x_ld < s->K ? s->K : s->x_ld;
    s->y_ld = s->y_ld < s->N ? s->N : s->y_ld;
  }
  if (s->x_ld < s->K || s->y_ld < s->N)
    return cpu_answer_no(answer, BS_REASON_LAYOUT, "row strides %lld (X), %lld (Y) are shorter than rows",
                         (long long)s->x_ld, (long long)s->y_ld);
  return 1;
}

/* Tokens above which oneDNN's larger blocks are as good as our own kernels and better with more. */
#define MANY 512

/* The score, relative to the 600 of "packed", from interleaved timings of both (docs/performance.md). This
 * plugin's kernels are faster up to some hundred tokens, and without AVX-512 for any number. oneDNN is faster
 * than "packed" if it multiplies 16-bit numbers without widening and this plugin cannot, or uses AMX tiles,
 * which "packed" does not: "amx" does, and has more points than these (ops/matmul_amx.c). oneDNN itself
 * reports which instructions it may use: that covers the processor, the kernel's permission for tiles and
 * ONEDNN_MAX_CPU_ISA. */
static uint32_t score_of(const cpu_state *state, const cpu_dnnl_lib *lib, const cpu_matmul *s) {
  if (s->N < 64 || s->K < 64) return 500;
  if (s->x_type == BS_F16) return s->B >= 8 ? 800 : 500;
  const int native = s->x_type == BS_BF16 && has_isa(lib, dnnl_cpu_isa_avx512_core_bf16);
  const int tiles = has_isa(lib, dnnl_cpu_isa_avx512_core_amx);
  if (native && (tiles || state->kernels.dot == NULL)) return s->B >= 8 ? 800 : 500;
  if (s->x_type != BS_F32 && !native) return 500;
  return has_isa(lib, dnnl_cpu_isa_avx512_core) && s->B > MANY ? 700 : 500;
}

/* score_of gives 500 whatever the library is, and "packed" serves with more. So the library stays closed
 * until it is chosen by name: opened, it is 14 MB of a process's memory and 23 ms. */
static int own_kernels_lead(const cpu_state *state, const cpu_matmul *s) {
  return s->x_type == BS_F32 && s->weight_type == BS_F32 && s->y_type == BS_F32 && s->B <= MANY &&
         strcmp(state->matmul, "auto") == 0 && cpu_dnnl_is_auto(state->dnnl);
}

static void answer_unopened(bs_op_answer *answer) {
  char text[80];
  snprintf(text, sizeof text, "oneDNN, headers %d.%d: opened when it is chosen", DNNL_VERSION_MAJOR,
           DNNL_VERSION_MINOR);
  cpu_answer_yes(answer, 500, BS_TOL_ACC_F32, "dnnl", text);
  answer->level = BS_LEVEL_UNKNOWN;
}

/* The whole answer, which prepare asks: what was refused must not run. */
void cpu_dnnl_judge(const cpu_state *state, const bs_op_query *query, cpu_matmul *out_shape, int may_wait,
                    bs_op_answer *answer) {
  char algo[48];
  answer->level = BS_LEVEL_NO;
  if (!cpu_matmul_allowed(state, "dnnl", answer)) return;
  if (!cpu_matmul_read(query, out_shape, answer) || !check_shape(out_shape, answer)) return;
  if (may_wait && own_kernels_lead(state, out_shape)) {
    if (check_types(query, out_shape, answer)) answer_unopened(answer);
    return;
  }
  const cpu_dnnl_lib *lib = cpu_dnnl_open(state->dnnl);
  if (!lib->usable) {
    cpu_answer_no(answer, lib->disabled ? BS_REASON_DISABLED : BS_REASON_LIB_VERSION, "%s", lib->text);
    return;
  }
  if (!check_types(query, out_shape, answer) || !check_isa(lib, out_shape, answer)) return;
  if (!ask_library(lib, out_shape, DNNL_RUNTIME_DIM_VAL, answer, algo, sizeof algo)) return;
  if (out_shape->B > 0 && !ask_library(lib, out_shape, out_shape->B, answer, algo, sizeof algo)) return;
  cpu_answer_yes(answer, score_of(state, lib, out_shape), BS_TOL_ACC_F32, algo, lib->text);
}
