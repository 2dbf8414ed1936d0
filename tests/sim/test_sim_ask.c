/* SPDX-License-Identifier: MIT
 * test_sim_ask.c - the time of an op inside of a device, and the table of times that are known: each member
 * of the question is part of the key. */
#include <stddef.h>
#include <string.h>

#include "core/base/error.h"
#include "sim/ask.h"
#include "tests/run_tests.h"

#define DEVICE(Bps, tiles)                                                                                \
  "{name: four, label: example, levels: {pe: 4}, lane: {at: pe, scratch_B: 65536}, parts: {"              \
  "tensor: {at: pe, kind: server, does: product, rate: {bf16: 1e12, f32: 0.5e12}, grain: [16, 16, 16]}, " \
  "vector: {at: pe, kind: server, does: map, rate: 64e9}, dma: {at: pe, kind: link, Bps: 1e12}, "         \
  "hbm: {at: package, kind: memory, channels: 4, Bps: " Bps                                               \
  ", bytes: 1e9}}, "                                                                                      \
  "ways: {load: [hbm, dma], store: [dma, hbm]}, launch: {first_s: 2e-6}, tiles: {product: [" tiles        \
  "], stages: "                                                                                           \
  "\"2,3\"}}"
#define TILES "\"64,64,32\", \"32,32,32\""

static const sim_ask example = {.op = 1,
                                .in_dtype = BS_BF16,
                                .weight_dtype = BS_BF16,
                                .out_dtype = BS_BF16,
                                .m = 128,
                                .n = 128,
                                .k = 256,
                                .epilogue = 1};

static sim_asks *opened(const char *text) {
  bs_error err = BS_ERROR_INIT;
  sim_asks *asks = NULL;
  ck_assert_msg(sim_asks_open(text, &asks, &err) == BS_OK, "%s: %s", err.where, err.message);
  return asks;
}

static sim_inside_time time_of(const sim_asks *asks, const sim_ask *ask) {
  bs_error err = BS_ERROR_INIT;
  sim_inside_time time;
  ck_assert_msg(sim_ask_run(sim_asks_device(asks), ask, &time, &err) == BS_OK, "%s", err.message);
  return time;
}

/* Every member alone; all are words of 64 bits. */
START_TEST(each_member_is_part_of_the_key) {
  sim_asks *asks = opened(DEVICE("64e9", TILES));
  const sim_inside_time first = {.ps = 7};
  sim_inside_time found;
  ck_assert_uint_eq(sizeof example, SIM_ASK_WORDS * sizeof(uint64_t));
  sim_asks_keep(asks, &example, &first);
  ck_assert(sim_asks_find(asks, &example, &found) && found.ps == 7);
  for (uint32_t i = 0; i < SIM_ASK_WORDS; i++) {
    uint64_t words[SIM_ASK_WORDS];
    sim_ask other;
    memcpy(words, &example, sizeof words);
    words[i]++;
    memcpy(&other, words, sizeof other);
    ck_assert_msg(!sim_asks_find(asks, &other, &found), "member %u", i);
    const sim_inside_time own = {.ps = 100 + i};
    sim_asks_keep(asks, &other, &own);
    ck_assert(sim_asks_find(asks, &other, &found) && found.ps == 100 + i);
  }
  ck_assert(sim_asks_find(asks, &example, &found) && found.ps == 7);
  sim_asks_close(asks);
}
END_TEST

START_TEST(a_full_table_is_dropped_as_a_whole) {
  sim_asks *asks = opened(DEVICE("64e9", TILES));
  sim_ask ask = example;
  sim_inside_time time = {.ps = 1}, found;
  for (ask.m = 1; ask.m <= SIM_ASKS_KEPT; ask.m++) sim_asks_keep(asks, &ask, &time);
  for (ask.m = 1; ask.m <= SIM_ASKS_KEPT; ask.m++) ck_assert(sim_asks_find(asks, &ask, &found));
  sim_asks_keep(asks, &ask, &time);
  ck_assert(sim_asks_find(asks, &ask, &found));
  ask.m = 1;
  ck_assert(!sim_asks_find(asks, &ask, &found));
  sim_asks_close(asks);
}
END_TEST

START_TEST(units_bind_where_memory_is_fast) {
  sim_asks *slow = opened(DEVICE("8e9", TILES)), *fast = opened(DEVICE("800e9", TILES));
  ck_assert_uint_eq(time_of(slow, &example).units_bind, 0);
  ck_assert_uint_eq(time_of(fast, &example).units_bind, 1);
  ck_assert_uint_lt(time_of(fast, &example).ps, time_of(slow, &example).ps);
  sim_asks_close(slow);
  sim_asks_close(fast);
}
END_TEST

/* Gaps of a memory are shorter where it is 10 % faster. By their rates alone the units gain more. */
START_TEST(gaps_bind_as_rates_do) {
  sim_asks *gaps = opened(DEVICE("800e9, gap_s: 10e-9", TILES));
  ck_assert_uint_eq(time_of(gaps, &example).units_bind, 0);
  sim_asks_close(gaps);
}
END_TEST

/* The fastest of the device's tiles is what each of them alone would take at best; rows apart share channels.
 */
START_TEST(the_fastest_tile_is_taken) {
  sim_asks *asks = opened(DEVICE("64e9", TILES)), *none = opened(DEVICE("64e9", ""));
  const uint64_t best = time_of(asks, &example).ps;
  uint64_t least = UINT64_MAX;
  for (uint32_t i = 0; i < 4; i++) {
    sim_ask ask = example;
    ask.tm = ask.tn = i < 2 ? 64 : 32;
    ask.tk = 32;
    ask.stages = 2 + i % 2;
    const uint64_t ps = time_of(asks, &ask).ps;
    if (ps < least) least = ps;
  }
  ck_assert_uint_eq(best, least);
  sim_ask f32 = example, f64 = example;
  f32.weight_dtype = BS_F32;
  ck_assert_uint_gt(time_of(asks, &f32).ps, best);
  bs_error err = BS_ERROR_INIT;
  sim_inside_time time;
  f64.in_dtype = BS_F64;
  ck_assert_int_eq(sim_ask_run(sim_asks_device(asks), &f64, &time, &err), BS_CONFIG);
  ck_assert_str_eq(err.id, "BS-DEVICE-RATE");
  ck_assert_int_eq(sim_ask_run(sim_asks_device(none), &example, &time, &err), BS_CONFIG);
  ck_assert_str_eq(err.id, "BS-INSIDE-KNOB");
  sim_asks_close(asks);
  sim_asks_close(none);
}
END_TEST

START_TEST(the_sums_of_a_device) {
  bs_error err = BS_ERROR_INIT;
  sim_asks *asks = opened(DEVICE("64e9", TILES));
  sim_sums sums;
  sim_device_sums(sim_asks_device(asks), &sums);
  ck_assert_double_eq_tol(sums.flops, 4e12, 1);
  ck_assert_double_eq_tol(sums.flops_f32, 2e12, 1);
  ck_assert_double_eq_tol(sums.flops_f64 + sums.flops_f8, 0, 0.1);
  ck_assert_double_eq_tol(sums.mem_Bps, 256e9, 1);
  ck_assert_double_eq_tol(sums.mem_bytes, 1e9, 1);
  ck_assert_uint_eq(sums.launch, 2000000);
  ck_assert_int_eq(sim_sums_agree(&sums, "flops", 4.03e12, &err), BS_OK);
  ck_assert_int_eq(sim_sums_agree(&sums, "flops", 0, &err), BS_OK);
  ck_assert_int_eq(sim_sums_agree(&sums, "flops_f64", 1e12, &err), BS_OK); /* the device has none */
  ck_assert_int_eq(sim_sums_agree(&sums, "mem_Bps", 260e9, &err), BS_CONFIG);
  ck_assert_str_eq(err.id, "BS-DEVICE-TWICE");
  sim_asks_close(asks);
}
END_TEST

int main(void) {
  const test_case tests[] = {{each_member_is_part_of_the_key},
                             {a_full_table_is_dropped_as_a_whole},
                             {units_bind_where_memory_is_fast},
                             {gaps_bind_as_rates_do},
                             {the_fastest_tile_is_taken},
                             {the_sums_of_a_device},
                             {0}};
  return run_tests("sim_ask", tests, (test_setup){0});
}
