/* SPDX-License-Identifier: MIT
 *
 * cpu_host.c - see cpu_host.h. */
#include "cpu_host.h"

#include <stdio.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

int32_t ch_try_open(ch *c, const char *isa, const char *dnnl, const char *matmul, bs_error *err) {
  static char path[4200];
  const char *dir = getenv("BS_TEST_PLUGIN_DIR");
  const char *two = strchr(isa, '*');
  char set[32];
  snprintf(set, sizeof set, "%.*s", two != NULL ? (int)(two - isa) : (int)strlen(isa), isa);
  const char *const units = strcmp(isa, "auto") == 0 ? "auto" : two != NULL ? "2" : "1";
  const char *const names[4] = {"isa", "dnnl_library", "matmul", "units"};
  /* oneDNN answers for itself, also where it could not be faster. */
  if (strcmp(dnnl, "auto") == 0) dnnl = "now";
  const char *const values[4] = {set, dnnl, matmul != NULL ? matmul : "auto", units};
  ck_assert_msg(dir != NULL, "BS_TEST_PLUGIN_DIR is not set: run the test through ctest");
  memset(c, 0, sizeof *c);
  snprintf(path, sizeof path, "%s/bs_cpu.so", dir);
  for (int i = 0; i < 4; i++) {
    snprintf(c->text[i], sizeof c->text[i], "%s=%s", names[i], values[i]);
    c->params[i] = c->text[i];
  }
  c->options = (bs_kit_options){.plugin = path, .params = c->params, .n_params = 4};
  kit.options = &c->options;
  const int32_t rc = kit_plugin_load(&c->plugin, &c->options, err);
  return rc == BS_OK ? kit_plugin_activate(&c->plugin, err) : rc;
}

void ch_open(ch *c, const char *isa, const char *dnnl) {
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(ch_try_open(c, isa, dnnl, NULL, &err) == BS_OK, "%s: %s", err.id, err.message);
}

void ch_close(ch *c) {
  kit_plugin_deactivate(&c->plugin);
  ck_assert_int_eq(c->plugin.host.blocks, 0);
}

int ch_find(ch *c, kit_actor *out, const char *op, const char *name, uint32_t width) {
  const kit_host *h = &c->plugin.host;
  memset(out, 0, sizeof *out);
  for (uint32_t i = 0; i < h->n_things; i++) {
    const bs_op_impl *impl = h->things[i].vtable;
    if (h->things[i].kind != BS_KIND_OP || strcmp(impl->op, op) != 0 || strcmp(impl->name, name) != 0)
      continue;
    ck_assert_ptr_null(kit_actor_attach(out, &c->plugin, i, width));
    return 1;
  }
  return 0;
}

void ch_actor(ch *c, kit_actor *out, const char *op, const char *name, uint32_t width) {
  ck_assert_msg(ch_find(c, out, op, name, width), "no %s@cpu/%s", op, name);
}

/* The tiles are in the processor, the kernel saves them (XCR0), and lets this process use them. */
static int has_amx(void) {
#if defined(__x86_64__) && defined(__linux__)
  unsigned a = 0, b = 0, c = 0, d = 0, low = 0, high = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d >> 22 & 1u) == 0 || (d >> 24 & 3u) != 3u) return 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c >> 27 & 1u) == 0) return 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low >> 17 & 1u) != 0 && (low >> 18 & 1u) != 0 && syscall(SYS_arch_prctl, 0x1023, 18) == 0;
#else
  return 0;
#endif
}

int ch_has_isa(const char *isa) {
  static const char *const everywhere[] = {"portable", "auto", "amx_model"};
  for (int i = 0; i < 3; i++)
    if (strcmp(isa, everywhere[i]) == 0) return 1;
#if defined(__x86_64__)
  if (strcmp(isa, "amx") == 0) return ch_has_isa("avx512_bf16") && has_amx();
  const int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const int avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                     __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (strcmp(isa, "avx2") == 0) return avx2;
  if (strcmp(isa, "avx512") == 0 || strcmp(isa, "avx512*2") == 0) return avx2 && avx512;
  return avx2 && avx512 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1u) != 0;
#else
  return 0;
#endif
}

const char *ch_best_isa(void) {
  static const char *const isas[] = {"amx", "avx512_bf16", "avx512", "avx2"};
  for (int i = 0; i < 4; i++)
    if (ch_has_isa(isas[i])) return isas[i];
  return "portable";
}

void ch_sizes(kit_data *d, int64_t B, int64_t N, int64_t K) {
  d->a[0].d = bs_desc_2d(d->shape.x, B, K);
  d->a[3].d = bs_desc_2d(d->shape.y, B, N);
  d->positions.rows = N;
  d->positions.cols = K;
}

bs_partition ch_pattern(int64_t total, uint32_t period, uint32_t bits, int64_t begin, int64_t span) {
  bs_partition p = {.struct_size = sizeof p, .kind = BS_PARTITION_GATHER, .total = total, .begin = begin};
  uint32_t *columns = calloc((size_t)span + 1, sizeof *columns);
  ck_assert_ptr_nonnull(columns);
  for (int64_t k = begin; k < begin + span; k++)
    if (bits >> (k % period) & 1u) columns[p.count++] = (uint32_t)k;
  p.columns = columns;
  p.period = period;
  p.pattern_bits = bits;
  p.span = span;
  return p;
}

bs_partition ch_run_of(int64_t total, int64_t begin, int64_t count) {
  const bs_partition p = {.struct_size = sizeof p,
                          .kind = BS_PARTITION_CONTIGUOUS,
                          .total = total,
                          .begin = begin,
                          .count = count,
                          .span = count};
  return p;
}

bs_partition ch_list(int64_t total, int64_t count, uint64_t *seed) {
  bs_partition p = {.struct_size = sizeof p, .kind = BS_PARTITION_GATHER, .total = total};
  uint32_t *columns = calloc((size_t)count + 1, sizeof *columns);
  ck_assert_ptr_nonnull(columns);
  for (int64_t k = 0; k < total && p.count < count; k++)
    if (kit_below(seed, total - k) < count - p.count) columns[p.count++] = (uint32_t)k;
  p.columns = columns;
  return p;
}

void ch_partition_free(bs_partition *p) {
  union {
    const uint32_t *given;
    uint32_t *mine;
  } columns = {p->columns};
  free(columns.mine);
  p->columns = NULL;
}

int64_t ch_column(const bs_partition *p, int64_t i) {
  return p->kind == BS_PARTITION_GATHER ? (int64_t)p->columns[i] : p->begin + i;
}

void ch_run(kit_actor *a, kit_data *d) {
  bs_error err = BS_ERROR_INIT;
  const char *stage = "";
  kit_poison_outputs(d, 0xFF);
  ck_assert_msg(kit_data_run(a, d, &stage, &err) == BS_OK, "%s: %s: %s: %s", kit_data_text(d), stage, err.id,
                err.message);
  ck_assert_int_eq(a->live, 0);
}

void ch_check(kit_actor *a, kit_data *d) {
  bs_op_answer answer;
  kit_data_ask(a, d, &answer);
  ck_assert_msg(answer.level == BS_LEVEL_NATIVE, "%s: %s", kit_data_text(d), answer.text);
  ch_run(a, d);
  kit_data_judge(d, answer.tolerance, 0);
}

uint64_t ch_scratch(kit_actor *a, kit_data *d) {
  kit_fence_free(a->scratch);
  a->scratch = NULL;
  a->scratch_bytes = 0;
  ch_check(a, d);
  return a->scratch_bytes;
}

int32_t ch_try_plan(kit_actor *a, kit_data *d, void *packed, bs_error *err) {
  void *plan = NULL;
  int32_t rc = a->impl->prepare(a->state, &a->exec, &d->query, packed, &plan, err);
  if (rc != BS_OK) return rc;
  rc = kit_data_run_plan(a, d, plan, err);
  a->impl->plan_free(plan);
  return rc;
}
