/* SPDX-License-Identifier: MIT
 * test_models_refuse.c - what activation_like, transformer_mlp, attention_like and vision_conv do not take,
 * with ids, places and the numbers seen. */
#include "plugins/workloads/models/models.h"
#include "tests/run_tests.h"
#include "tests/workloads/workload.h"

START_TEST(options_are_strict) {
  static const struct {
    const char *name, *option, *id, *part;
  } cases[] = {{"activation_like", "clp=1", "BS-WL-KEY", "clip"},
               {"activation_like", "clip=-1", "BS-WL-VALUE", "workload.clip"},
               {"activation_like", "scale=x", "BS-WL-VALUE", "workload.scale"},
               {"activation_like", "scale=010", "BS-WL-VALUE", "workload.scale"},
               {"activation_like", "scale=0x1p1", "BS-WL-VALUE", "workload.scale"},
               {"attention_like", "heads=02", "BS-WL-VALUE", "workload.heads"},
               {"transformer_mlp", "mlp_variant=gelo", "BS-WL-VALUE", "gelu"},
               {"transformer_mlp", "mlp_varient=gelu", "BS-WL-KEY", "mlp_variant"},
               {"transformer_mlp", "layernorm=maybe", "BS-WL-VALUE", "maybe"},
               {"transformer_mlp", "ln_eps=-1e-5", "BS-WL-VALUE", "workload.ln_eps"},
               {"transformer_mlp", "scale_in=nan", "BS-WL-VALUE", "workload.scale_in"},
               {"transformer_mlp", "scale_out=1e999", "BS-WL-VALUE", "workload.scale_out"},
               {"transformer_mlp", "scale_out=3e38", "BS-WL-RANGE", "X"},
               {"transformer_mlp", "heads=2", "BS-WL-KEY", "transformer_mlp"},
               {"attention_like", "heads=0", "BS-WL-VALUE", "workload.heads"},
               {"attention_like", "heads=2.5", "BS-WL-VALUE", "2.5"},
               {"attention_like", "heads=7", "BS-WL-SHAPE", "rest 3"},
               {"attention_like", "heads=99999999999999999999", "BS-WL-VALUE", "workload.heads"},
               {"attention_like", "attn_batch=-1", "BS-WL-VALUE", "workload.attn_batch"},
               {"attention_like", "attn_scale=fast", "BS-WL-VALUE", "workload.attn_scale"},
               {"attention_like", "token=4", "BS-WL-KEY", "tokens"},
               {"vision_conv", "kernel_size=0", "BS-WL-VALUE", "workload.kernel_size"},
               {"vision_conv", "stride=0", "BS-WL-VALUE", "workload.stride"},
               {"vision_conv", "padding=-1", "BS-WL-VALUE", "workload.padding"},
               {"vision_conv", "C=1048577", "BS-WL-VALUE", "workload.C"},
               {"vision_conv", "C=2Mi", "BS-WL-VALUE", "2097152 is outside 1 .. 1048576"},
               {"vision_conv", "activation=tanh", "BS-WL-VALUE", "workload.activation"},
               {"vision_conv", "h=3", "BS-WL-KEY", "workload.h"},
               {"vision_conv", "loss=mse_target", "BS-WL-LOSS", "workload.target"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ask a = {.name = cases[i].name, .B = 4, .N = 4, .K = 24, .options = {cases[i].option}};
    if (strcmp(a.name, "vision_conv") == 0) a.K = 3 * 32 * 32;
    workload_refused(&a, BS_CONFIG, cases[i].id, cases[i].part);
  }
  ask half = {
      .name = "transformer_mlp", .dtype = BS_F16, .B = 4, .N = 4, .K = 400, .options = {"scale_out=1e4"}};
  workload_refused(&half, BS_CONFIG, "BS-WL-RANGE", "65504");
  ask fp8 = {.name = "activation_like", .dtype = BS_F8E4M3, .B = 4, .N = 4, .K = 4};
  fp8.options[0] = "scale=1000";
  fp8.options[1] = "clip=500";
  workload_refused(&fp8, BS_CONFIG, "BS-WL-RANGE", "448");
}
END_TEST

/* Both numbers are in the message. */
START_TEST(shapes_must_fit) {
  static const struct {
    const char *name;
    int64_t B, K;
    const char *options[5];
    const char *part, *other;
  } cases[] = {
      {"attention_like", 64, 64, {"attn_batch=2"}, "attn_batch=2 times tokens=64 is not B=64", "tokens=32"},
      {"attention_like", 63, 64, {"attn_batch=2", "tokens=32"}, "tokens=32 is not B=63", "divides"},
      {"attention_like", 16, 64, {"tokens=64"}, "attn_batch=1 times tokens=64 is not B=16", "tokens=16"},
      {"attention_like", 16, 60, {NULL}, "K=60 is not a multiple of heads=8 (rest 4)", "model.K=64"},
      {"attention_like", 16, 4, {"heads=5"}, "K=4 is not a multiple of heads=5", "model.K=5"},
      {"vision_conv", 2, 4096, {NULL}, "make 3072 columns, K is 4096", "model.K=3072"},
      {"vision_conv", 2, 64, {"out_channels=4"}, "make 4096 columns, K is 64", "out_channels"},
      {"vision_conv", 2, 3072, {"padding=0"}, "out_channels=3 x 30 x 30 make 2700 columns", "3072"},
      {"vision_conv", 2, 64, {"kernel_size=9", "padding=0", "H=8"}, "kernel_size=9", "8 x 32"},
      {"vision_conv", 2, 64, {"out_channels=1048576", "H=1048576", "W=1048576"}, "more than 2^40", "64"},
      {"vision_conv",
       2,
       1,
       {"C=1048576", "H=1048576", "W=1048576", "stride=1048576", "out_channels=1"},
       "2^28 values",
       "C=1048576"},
      {"transformer_mlp", 4, 1, {NULL}, "K=1", "layernorm=false"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ask a = {.name = cases[i].name, .B = cases[i].B, .N = 4, .K = cases[i].K};
    memcpy(a.options, cases[i].options, sizeof cases[i].options);
    workload_refused(&a, BS_CONFIG, "BS-WL-SHAPE", cases[i].part);
    workload_refused(&a, BS_CONFIG, "BS-WL-SHAPE", cases[i].other);
  }
  opened w;
  ask one = {.name = "transformer_mlp", .B = 4, .N = 4, .K = 1, .options = {"layernorm=false"}};
  workload_must_open(&one, &w);
  workload_close(&w);
}
END_TEST

START_TEST(sizes_are_needed) {
  static const char *const names[] = {"activation_like", "transformer_mlp", "attention_like", "vision_conv"};
  for (int i = 0; i < 4; i++) {
    ask no_b = {.name = names[i], .N = 4, .K = 64}, no_n = {.name = names[i], .B = 4, .K = 64};
    ask no_k = {.name = names[i], .B = 4, .N = 4};
    ask huge = {.name = names[i], .B = 4, .N = INT64_MAX / 2, .K = INT64_MAX / 2};
    workload_refused(&no_b, BS_CONFIG, "BS-WL-SIZE", "model.B");
    workload_refused(&no_n, BS_CONFIG, "BS-WL-SIZE", "model.N");
    workload_refused(&no_k, BS_CONFIG, "BS-WL-SIZE", "model.K");
    workload_refused(&huge, BS_CONFIG, "BS-WL-SIZE", "addressed");
  }
}
END_TEST

/* A part that does not exist. */
START_TEST(parts) {
  ask a = {.name = "vision_conv", .B = 2, .N = 4, .K = 3072};
  bs_error err = BS_ERROR_INIT;
  bs_source s = {.struct_size = sizeof s};
  opened w;
  workload_must_open(&a, &w);
  ck_assert_int_eq(w.vtable->source(w.instance, BS_PART_BIAS, &s, &err), BS_INVALID_ARGUMENT);
  ck_assert_int_eq(w.vtable->source(w.instance, BS_PART_TARGET, &s, &err), BS_INVALID_ARGUMENT);
  ck_assert_int_eq(w.vtable->source(w.instance, 4, &s, &err), BS_INVALID_ARGUMENT);
  workload_close(&w);
}
END_TEST

static models_state state;
static bs_host poor;
static void *(*rich_alloc)(void *, uint64_t, uint64_t);
static int allocations_left;

static void *poor_alloc(void *ctx, uint64_t bytes, uint64_t align) {
  return allocations_left-- > 0 ? rich_alloc(ctx, bytes, align) : NULL;
}
static void *poor_state(void *found) {
  state = *(models_state *)found;
  poor = *state.host;
  rich_alloc = poor.alloc;
  poor.alloc = poor_alloc;
  state.host = &poor;
  return &state;
}

/* Whichever allocation fails, opening or reading ends with BS-MEM, nothing leaks (the sanitizers look) and a
 * later read gives what it should. */
START_TEST(memory_may_be_short) {
  static const ask asks[] = {{.name = "transformer_mlp", .K = 64, .options = {"mlp_variant=swiglu"}},
                             {.name = "attention_like", .K = 64},
                             {.name = "vision_conv", .K = 192, .options = {"H=8", "W=8"}}};
  for (size_t i = 0; i < 3; i++) {
    ask a = asks[i];
    int opened_at = 0, read_at = 0;
    a.B = 2;
    a.N = 4;
    a.state = poor_state;
    for (int have = 0; have < 40 && read_at == 0; have++) {
      float x[2 * 192], y[2 * 192];
      opened w;
      bs_error err = BS_ERROR_INIT;
      allocations_left = have;
      int32_t rc = workload_open(&a, &w, &err);
      if (rc == BS_OK) {
        if (opened_at == 0) opened_at = have;
        bs_source s = workload_source(&w, BS_PART_X);
        rc = s.read(s.ctx, 0, 2, NULL, BS_F32, x, a.K, &err);
        if (rc == BS_OK) read_at = have;
        allocations_left = 100;
        ck_assert_int_eq(s.read(s.ctx, 0, 2, NULL, BS_F32, y, a.K, &err), BS_OK);
        if (rc == BS_OK) ck_assert_mem_eq(x, y, (size_t)(2 * a.K) * sizeof *x);
        workload_close(&w);
      }
      if (rc != BS_OK) {
        ck_assert_int_eq(rc, BS_NO_MEMORY);
        ck_assert_str_eq(err.id, "BS-MEM");
      }
    }
    ck_assert_msg(opened_at >= 4 && read_at > opened_at, "%s: %d %d", a.name, opened_at, read_at);
  }
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {options_are_strict}, {shapes_must_fit}, {sizes_are_needed}, {parts}, {memory_may_be_short}, {0}};
  return run_tests("models_refuse", tests, (test_setup){0});
}
