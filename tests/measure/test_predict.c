/* SPDX-License-Identifier: MIT
 * test_predict.c - predictions from synthetic constants: exact times, the slower rank, the binding limit, and
 * rates that give back the two measured points they come from. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/measure/kernel.h"
#include "lab/measure/predict.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

static int near(double a, double b) {
  return fabs(a - b) <= 1e-9 * fabs(b);
}

/* 4 cores: 100 GFLOP/s and 10 GB/s a core, 300 and 20 together. */
static bs_machine machine(void) {
  const bs_machine m = {.cores = 4,
                        .threads = 4,
                        .flops_core = 1e11,
                        .flops_all = 3e11,
                        .read_core = 1e10,
                        .read_all = 2e10,
                        .exchange = {1e-6, 11e-6, 101e-6, 501e-6},
                        .host = 1e-6};
  return m;
}
static bs_kernel kernel(void) {
  const bs_kernel k = {.flops_core = 8e10, .flops_all = 2e11, .bytes_core = 8e9, .bytes_all = 1.6e10};
  return k;
}
/* No activations to speak of: B = 0 tokens of any width. */
static bs_layer_spec spec(void) {
  const bs_layer_spec s = {.struct_size = sizeof s, .x_dtype = BS_F32, .w_dtype = BS_F32, .y_dtype = BS_F32};
  return s;
}

START_TEST(overlap_is_a_norm) {
  ck_assert(bs_overlap(0, 0) == 0);
  ck_assert(near(bs_overlap(3, 0), 3) && near(bs_overlap(0, 3), 3));
  ck_assert(near(bs_overlap(1, 1), pow(2, 1.0 / 6)));
  ck_assert(near(bs_overlap(2, 1), pow(65, 1.0 / 6)) && near(bs_overlap(1, 2), pow(65, 1.0 / 6)));
  ck_assert(near(bs_overlap(1e-200, 1e-200), 1e-200 * pow(2, 1.0 / 6))); /* no underflow */
}
END_TEST

/* A chunk's product, then product and wire beside each other, then the last chunk's wire. */
START_TEST(chunks_hide_the_wire) {
  ck_assert(near(bs_chunked(8, 4, 0), 12) && near(bs_chunked(8, 4, 1), 12));
  ck_assert(near(bs_chunked(8, 4, 4), 2 + 6 + 1) && near(bs_chunked(4, 8, 4), 1 + 6 + 2));
  ck_assert(near(bs_chunked(6, 6, 3), 8));
  const bs_machine m = machine();
  const bs_layer_spec s = spec();
  bs_proposal p = {.flops = (uint64_t)1e8, .weight_bytes = 1, .n_collectives = 2, .chunks = 2};
  bs_predicted got;
  p.coll_payload[0] = p.coll_payload[1] = 1u << 20;
  bs_predict_rank(&m, NULL, &s, &p, 2, 1, &got);
  ck_assert(near(got.bound.wire, 2 * 101e-6));
  ck_assert(near(got.bound.total, 0.5e-3 + 0.5e-3 + 101e-6 + 1e-6));
  ck_assert_uint_eq(bs_wire_bytes(&p, 2), 2u << 20);
  p.coll_kind[1] = BS_COLL_ALL_GATHER; /* moves half as much */
  bs_predict_rank(&m, NULL, &s, &p, 2, 1, &got);
  ck_assert(near(got.bound.wire, 101e-6 + bs_machine_wire(&m, 1u << 19)));
  ck_assert_uint_eq(bs_wire_bytes(&p, 4), (3u << 19) + (3u << 18));
  p.coll_ranks[0] = p.coll_ranks[1] =
      2; /* pairs of four ranks: a half, not three quarters, of what each has */
  bs_predict_rank(&m, NULL, &s, &p, 4, 1, &got);
  ck_assert(
      near(got.bound.wire, bs_machine_wire(&m, (1u << 20) / 1.5) + bs_machine_wire(&m, (1u << 19) / 1.5)));
  bs_predicted tokens; /* each of them reads all weights */
  p.weight_bytes = 1u << 24;
  bs_predict_rank(&m, NULL, &s, &p, 2, 1, &got);
  p.chunk_tokens = 1;
  bs_predict_rank(&m, NULL, &s, &p, 2, 1, &tokens);
  p.chunks = 1;
  p.weight_bytes = 2u << 24;
  p.chunk_tokens = 0;
  bs_predicted twice;
  bs_predict_rank(&m, NULL, &s, &p, 2, 1, &twice);
  ck_assert(tokens.bound.memory > 1.5 * got.bound.memory && near(tokens.bound.memory, twice.bound.memory));
}
END_TEST

/* Two ranks on two cores sum on the cores that compute, on three cores one of them does; in one chunk that is
 * the wire's own time. */
START_TEST(sums_take_the_cores) {
  bs_machine m = machine();
  const bs_kernel k = kernel();
  const bs_layer_spec s = spec();
  bs_proposal p = {.flops = (uint64_t)1e8, .weight_bytes = 1, .n_collectives = 2, .chunks = 2};
  bs_predicted got;
  p.coll_payload[0] = p.coll_payload[1] = 1u << 20;
  m.copy_core = 1e10;
  m.copy_all = 1.6e10; /* 8 GB/s each */
  const double sums = (2u << 20) * 2 / 8e9, each = (1e-3 + sums) / 2;
  for (m.cores = 2; m.cores < 5; ++m.cores) {
    const double product = m.cores < 4 ? each : 0.5e-3;
    bs_predict_rank(&m, NULL, &s, &p, 2, 1, &got);
    ck_assert(near(got.bound.total, product + product + 101e-6 + 1e-6));
  }
  m.cores = 2;
  m.threads = 2;
  bs_predict_rank(&m, &k, &s, &p, 2, 1, &got);
  ck_assert(near(got.kernel.total, 1e-3 + sums + 101e-6 + 1e-6));
  p.chunks = 1;
  bs_predict_rank(&m, NULL, &s, &p, 2, 1, &got);
  ck_assert(near(got.bound.total, 1e-3 + 2 * 101e-6 + 1e-6));
}
END_TEST

START_TEST(one_core_alone) {
  const bs_machine m = machine();
  const bs_kernel k = kernel();
  const bs_layer_spec s = spec();
  const bs_proposal p = {.flops = (uint64_t)8e9, .weight_bytes = (uint64_t)8e8, .n_collectives = 1};
  bs_predicted got;
  bs_predict_rank(&m, &k, &s, &p, 1, 1, &got);
  ck_assert(near(got.bound.compute, 0.08) && near(got.bound.memory, 0.08) && got.bound.wire == 0);
  ck_assert(near(got.bound.total, 0.08 + 1e-6));
  ck_assert_str_eq(got.limit, "compute");
  ck_assert(got.has_kernel && near(got.kernel.compute, 0.1) && near(got.kernel.memory, 0.1));
  ck_assert(near(got.kernel.total, 0.1 * pow(2, 1.0 / 6) + 1e-6));
  bs_predict_rank(&m, NULL, &s, &p, 1, 1, &got); /* only the bound */
  ck_assert(!got.has_kernel && near(got.bound.total, 0.08 + 1e-6));
}
END_TEST

/* Two threads of four: twice a core's, bounded by all's; two ranks of two: half of all's each. */
START_TEST(ranks_share_the_machine) {
  const bs_machine m = machine();
  const bs_kernel k = kernel();
  const bs_layer_spec s = spec();
  const bs_proposal p = {.flops = (uint64_t)8e9,
                         .weight_bytes = (uint64_t)8e8,
                         .n_collectives = 2,
                         .coll_payload = {32770, 4194304 + 1048576}};
  bs_predicted got;
  bs_predict_rank(&m, &k, &s, &p, 1, 2, &got);
  ck_assert(near(got.bound.compute, 0.04) && near(got.bound.memory, 0.04));
  ck_assert(near(got.kernel.compute, 0.05) && near(got.kernel.memory, 0.05) && got.kernel.wire == 0);
  bs_predict_rank(&m, &k, &s, &p, 2, 2, &got);
  ck_assert(near(got.bound.compute, 8e9 / 1.5e11) && near(got.bound.memory, 0.08));
  ck_assert_str_eq(got.limit, "memory");
  ck_assert(near(got.kernel.compute, 0.08) && near(got.kernel.memory, 0.1));
  const double wire = 6e-6 + 501e-6 + 400e-6 / 3;
  ck_assert(near(got.bound.wire, wire) && near(got.kernel.wire, wire));
  ck_assert(near(got.kernel.total, pow(pow(0.08, 6) + pow(0.1, 6), 1.0 / 6) + wire + 1e-6));
}
END_TEST

START_TEST(activations_are_read_and_written) {
  const bs_machine m = machine();
  bs_layer_spec s = spec();
  const bs_proposal p = {.flops = 1, .weight_bytes = 1000};
  bs_predicted got;
  s.B = 10;
  s.K = 100;
  s.N = 50;
  s.y_dtype = BS_BF16;
  bs_predict_rank(&m, NULL, &s, &p, 1, 1, &got);
  ck_assert(near(got.bound.memory, (1000 + 10 * (100 * 4 + 50 * 2)) / 1e10));
}
END_TEST

static const struct {
  double flops, bytes, payload, host;
  const char *limit;
} limits[] = {
    {1e9, 1, 4, 0, "compute"}, {1, 1e9, 4, 0, "memory"}, {1, 1, 1e9, 0, "wire"}, {1, 1, 4, 1, "host"}};

START_TEST(the_binding_limit_is_named) {
  bs_machine m = machine();
  const bs_layer_spec s = spec();
  const bs_proposal p = {.flops = (uint64_t)limits[_i].flops,
                         .weight_bytes = (uint64_t)limits[_i].bytes,
                         .n_collectives = 1,
                         .coll_payload = {(uint64_t)limits[_i].payload}};
  bs_predicted got;
  m.host = limits[_i].host;
  bs_predict_rank(&m, NULL, &s, &p, 2, 1, &got);
  ck_assert_str_eq(got.limit, limits[_i].limit);
}
END_TEST

START_TEST(an_all_reduce_between_the_measured_sizes) {
  const bs_machine m = machine();
  ck_assert(near(bs_machine_wire(&m, 4), 1e-6) && near(bs_machine_wire(&m, 65536), 11e-6));
  ck_assert(near(bs_machine_wire(&m, 1048576), 101e-6) && near(bs_machine_wire(&m, 4194304), 501e-6));
  ck_assert(near(bs_machine_wire(&m, 32770), 6e-6));
  ck_assert(near(bs_machine_wire(&m, 4194304 + 3145728), 901e-6)); /* on as between the last two */
  ck_assert(near(bs_machine_wire(&m, 0), 1e-6));                   /* never below the smallest */
}
END_TEST

/* From rates to two forwards and back. */
START_TEST(two_points_give_the_rates_back) {
  static const double flops[] = {1e11, 1e11, 3e10}, bytes[] = {1e10, 4e10, 1e9};
  bs_two_points t = {.flops_many = 64e9, .flops_one = 1e9, .bytes_many = 1.1e9, .bytes_one = 1e9};
  t.seconds_many = bs_overlap(t.flops_many / flops[_i], t.bytes_many / bytes[_i]);
  t.seconds_one = bs_overlap(t.flops_one / flops[_i], t.bytes_one / bytes[_i]);
  double f = 0, b = 0;
  bs_kernel_rates(&t, &f, &b);
  ck_assert_msg(fabs(f / flops[_i] - 1) < 1e-6 && fabs(b / bytes[_i] - 1) < 1e-6, "%g %g", f, b);
}
END_TEST

/* All arithmetic: 64 times as long with 64 tokens. All memory: as long with 64 as with one. The hidden rate
 * is finite, and the forwards come back within 0.1 %. */
START_TEST(a_hidden_rate_stays_sane) {
  bs_two_points t = {.seconds_many = _i == 0 ? 0.64 : 0.01,
                     .seconds_one = 0.01,
                     .flops_many = 64e9,
                     .flops_one = 1e9,
                     .bytes_many = 1e9,
                     .bytes_one = 1e9};
  double f = 0, b = 0;
  bs_kernel_rates(&t, &f, &b);
  ck_assert(isfinite(f) && f > 0 && isfinite(b) && b > 0);
  const double one = bs_overlap(t.flops_one / f, t.bytes_one / b);
  const double many = bs_overlap(t.flops_many / f, t.bytes_many / b);
  ck_assert_msg(fabs(one / t.seconds_one - 1) < 2e-3 && fabs(many / t.seconds_many - 1) < 2e-3, "%g %g", one,
                many);
}
END_TEST

/* One core of 100 GFLOP/s and 10 GB/s; 8 GFLOP and 10 bytes take 80 ms + 1 us, by the kernel 100 ms + 1 us.
 */
static const struct {
  double measured, spread, faster;
  uint32_t below, off;
  const char *says; /* NULL: nothing */
} times[] = {{0.081, 0, 0, 0, 1, "(0.81 times as long): no cause is known"},
             {0.0729, 0, 0, 0, 1, "times as long"}, /* within the tenth to which constants are known */
             {0.0727, 0, 0, 1, 1, "measured 72.7 ms is below the bound 80 ms"},
             {0.0629, 0.25, 0, 1, 1, "below the bound"}, /* passes that differed by a quarter */
             {0.0641, 0.25, 0, 0, 1, "passes of the machine's constants differed by 25 %"},
             {0.0727, 0, 4, 1, 1, "below the bound"}, /* the arithmetic knows no footprint */
             {0.0001, 0, 0, 1, 1, "or the work was not done"},
             {0.114, 0, 0, 0, 0, NULL},
             {0.088, 0, 0, 0, 0, NULL},
             {0.116, 0, 0, 0, 1, "(1.16 times as long)"}};

START_TEST(a_time_beside_bound_and_prediction) {
  bs_machine m = machine();
  const bs_kernel k = kernel();
  const bs_layer_spec s = spec();
  const bs_proposal p = {.flops = (uint64_t)8e9, .weight_bytes = 10};
  const bs_against_facts facts = {.arm = "arm", .machine = &m, .ranks = 1, .threads = 1};
  bs_predicted got;
  char text[640] = "";
  m.spread = times[_i].spread;
  m.faster = times[_i].faster;
  bs_predict_rank(&m, &k, &s, &p, 1, 1, &got);
  const bs_against a = bs_against_of(&got, times[_i].measured);
  ck_assert_uint_eq(a.below_bound, times[_i].below);
  ck_assert_uint_eq(a.off, times[_i].off);
  const double share = got.bound.total / times[_i].measured; /* constants are known to a tenth */
  ck_assert(near(a.share, a.below_bound || share > 1.1 ? 0 : fmin(share, 1)));
  ck_assert_int_eq(bs_against_sentence(&got, times[_i].measured, &facts, text, sizeof text),
                   times[_i].says != NULL);
  if (times[_i].says != NULL) ck_assert_msg(strstr(text, times[_i].says) != NULL, "%s", text);
}
END_TEST

/* Bytes may come as fast as at the faster of the two footprints; of a device no bound is known, nor a share.
 */
START_TEST(a_bound_that_is_none) {
  bs_machine m = machine();
  const bs_layer_spec s = spec();
  const bs_proposal p = {.weight_bytes = (uint64_t)1e9};
  bs_predicted got;
  m.host = 0;
  m.faster = 4;
  bs_predict_rank(&m, NULL, &s, &p, 1, 1, &got);
  ck_assert(near(got.bound.total, 0.1) && near(got.least, 0.1 / 1.1 / 4));
  ck_assert(bs_against_of(&got, 0.9 * got.least).below_bound && !bs_against_of(&got, 0.05).below_bound);
  got.least = 0;
  const bs_against a = bs_against_of(&got, 1e-6);
  json_t *row = json_object();
  bs_against_json(row, &a);
  ck_assert(json_is_false(json_object_get(row, "below_bound")));
  ck_assert(json_is_null(json_object_get(row, "share_of_limit")));
  ck_assert(json_is_null(json_object_get(row, "measured_over_predicted")));
  json_decref(row);
}
END_TEST

START_TEST(the_causes_of_a_miss_are_told) {
  bs_machine m = machine();
  const bs_kernel k = kernel();
  const bs_layer_spec s = spec();
  const bs_proposal p = {.flops = (uint64_t)8e9, .weight_bytes = 10};
  bs_against_facts facts = {
      .arm = "arm", .machine = &m, .ranks = 1, .threads = 2, .pairs = 60, .disturbed = 33};
  bs_predicted got;
  char text[640];
  bs_predict_rank(&m, &k, &s, &p, 1, 2, &got);
  snprintf(m.measured_at, sizeof m.measured_at, "20300102_030405");
  m.others = 0.42;
  ck_assert(bs_against_sentence(&got, 1, &facts, text, sizeof text));
  ck_assert_msg(strstr(text,
                       "33 of 60 pairs were disturbed; rates are known of one core and of all 4, not of "
                       "2; the stored constants are of 20300102, when others took 42 %") != NULL,
                "%s", text);
  facts.ranks = 4;
  ck_assert(bs_against_sentence(&got, 1, &facts, text, sizeof text));
  ck_assert_msg(strstr(text, "8 threads share 4 cores") != NULL, "%s", text);
}
END_TEST

int main(void) {
  const test_case tests[] = {{overlap_is_a_norm},
                             {chunks_hide_the_wire},
                             {sums_take_the_cores},
                             {one_core_alone},
                             {ranks_share_the_machine},
                             {activations_are_read_and_written},
                             {the_binding_limit_is_named, 4},
                             {an_all_reduce_between_the_measured_sizes},
                             {two_points_give_the_rates_back, 3},
                             {a_hidden_rate_stays_sane, 2},
                             {a_time_beside_bound_and_prediction, TEST_COUNT(times)},
                             {a_bound_that_is_none},
                             {the_causes_of_a_miss_are_told},
                             {0}};
  return run_tests("predict", tests, (test_setup){0});
}
