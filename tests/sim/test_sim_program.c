/* SPDX-License-Identifier: MIT
 * test_sim_program.c - products as lanes of jobs: known times, systolic arrays as servers, amounts, and what
 * is refused. */
#include <math.h>

#include "core/base/error.h"
#include "sim/program.h"
#include "tests/run_tests.h"

/* cube-pe of configs/devices, whose memory may be another one. */
#define CUBE_PE(memory, load, store)                                                                        \
  "{name: cube-pe, label: example, levels: {cube: 4, pe: 16}, lane: {at: pe, scratch_B: 2097152}, parts: {" \
  "tensor: {at: pe, kind: server, does: product, rate: {bf16: 8.192e12}, grain: [16, 16, 16], pJ: 0.5}, "   \
  "vector: {at: pe, kind: server, does: map, rate: 128e9}, "                                                \
  "dma: {at: pe, kind: link, workers: 2, first_s: 100e-9, Bps: 256e9, flit_B: 64}, "                        \
  "noc: {at: cube, kind: net, shape: mesh, size: [4, 4], Bps: 256e9, first_s: 2e-9, flit_B: 64}, "          \
  "hbm: {at: cube, kind: memory, channels: 32, flit_B: 64, " memory "}}, ways: {load: [" load               \
  "], store: [" store "]}}"
#define FREE CUBE_PE("Bps: inf", "dma, hbm", "dma, hbm")
#define WHOLE CUBE_PE("Bps: 32e9, first_s: 40e-9, node: spread", "dma, hbm, noc", "dma, noc, hbm")

static const sim_knobs tile = {.tm = 256, .tn = 256, .tk = 64, .stages = 2, .grain = 1};

typedef struct ran {
  sim_device device;
  sim_layout layout;
  sim_product program;
  sim_inside_result result;
} ran;

static void open_device(const char *text, uint32_t dtype, ran *r) {
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(sim_device_read(text, &r->device, &err) == BS_OK, "%s: %s", err.where, err.message);
  ck_assert_msg(sim_layout_make(&r->device, dtype, &r->layout, &err) == BS_OK, "%s", err.message);
}

static void run_shape(ran *r, const sim_product_shape *shape, const sim_knobs *knobs) {
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(sim_layout_reset(&r->layout, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(sim_product_make(&r->layout, shape, knobs, &r->program, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(sim_product_run(&r->program, &r->layout, NULL, &r->result, &err) == BS_OK, "%s", err.message);
}

static sim_part sum_of(const ran *r, const char *name) {
  const uint32_t c = sim_device_class(&r->device, name);
  sim_part all = {0};
  ck_assert_uint_lt(c, r->device.n_classes);
  for (uint32_t i = 0; i < r->layout.n[c]; i++) {
    const sim_part *p = &r->layout.parts[r->layout.base[c] + i];
    all.jobs += p->jobs;
    all.amount += p->amount;
    all.busy += p->busy;
    ck_assert_uint_le(p->busy, p->workers * r->result.settled); /* no part is busy for longer than it had */
  }
  return all;
}

static const sim_product_shape cubic = {4096, 4096, 4096, 2, 2, 1};

START_TEST(k9_a_product_takes_the_time_of_its_closed_form) {
  ran r;
  open_device(FREE, BS_BF16, &r);
  run_shape(&r, &cubic, &tile);
  ck_assert_uint_eq(r.result.end, 265032000);
  sim_layout_free(&r.layout);
  open_device(CUBE_PE("Bps: 16e9, first_s: 40e-9, node: spread", "dma, hbm, noc", "dma, noc, hbm"), BS_BF16,
              &r);
  run_shape(&r, &cubic, &tile);
  ck_assert_uint_ge(r.result.end, 540672000);
  ck_assert_uint_le(r.result.end, 541200000);
  ck_assert_uint_eq(sim_product_bound(&r.program), 540672000);
  sim_layout_free(&r.layout);
}
END_TEST

/* One lane: L + tiles (steps T + E) + X, where the sums of a tile keep the next from beginning. */
START_TEST(two_accumulators_hide_the_epilogue) {
  ran r;
  sim_knobs k = tile;
  open_device(FREE, BS_BF16, &r);
  run_shape(&r, &cubic, &k);
  const uint64_t one = r.result.end;
  k.accumulators = 2;
  run_shape(&r, &cubic, &k);
  ck_assert_uint_eq(one - r.result.end, 3 * 512000);
  sim_layout_free(&r.layout);
}
END_TEST

/* 32 x 32 cells at 1 GHz: 2048 FLOP a cycle. A job is a fold. SCALE-Sim v3 counts from 0: one less. */
START_TEST(k10_a_systolic_array_is_a_server) {
  static const struct {
    uint64_t m, n, k, os, ws;
  } rows[] = {{256, 128, 256, 10176, 11200},
              {128, 128, 512, 9184, 14208},
              {100, 60, 300, 2896, 3880},
              {512, 512, 64, 32256, 19392}};
  for (int i = 0; i < TEST_COUNT(rows); i++)
    for (int ws = 0; ws < 2; ws++) {
      char text[512];
      ran r;
      snprintf(text, sizeof text,
               "{name: array, label: example, lane: {at: package}, parts: {array: {at: package, kind: "
               "server, does: "
               "product, first_s: %d.0e-9, rate: 2048e9}, ram: {at: package, kind: memory, Bps: inf}}, ways: "
               "{load: "
               "[ram], store: [ram]}}",
               ws ? 94 : 62);
      open_device(text, BS_F32, &r);
      const sim_knobs os_fold = {.tm = 32, .tn = 32, .tk = (uint32_t)rows[i].k, .stages = 2, .grain = 1};
      const sim_knobs ws_fold = {.tm = (uint32_t)rows[i].m, .tn = 32, .tk = 32, .stages = 2, .grain = 1};
      run_shape(&r, &(sim_product_shape){rows[i].m, rows[i].n, rows[i].k, 4, 4, 1}, ws ? &ws_fold : &os_fold);
      ck_assert_uint_eq(sum_of(&r, "array").busy, 1000 * (ws ? rows[i].ws : rows[i].os));
      ck_assert_uint_eq(r.result.end, 1000 * (ws ? rows[i].ws : rows[i].os));
      sim_layout_free(&r.layout);
    }
}
END_TEST

START_TEST(k11_amounts_are_those_of_the_op) {
  ran r;
  open_device(WHOLE, BS_BF16, &r);
  run_shape(&r, &cubic, &tile);
  const sim_part tensor = sum_of(&r, "tensor"), hbm = sum_of(&r, "hbm"), vector = sum_of(&r, "vector");
  ck_assert_uint_eq(tensor.amount, UINT64_C(2) * 4096 * 4096 * 4096);
  ck_assert_uint_eq(hbm.amount, 1107296256);
  ck_assert_uint_eq(vector.amount, 4096 * 4096);
  const double mJ = ((double)tensor.amount * 0.5 + (double)hbm.amount * 31.2) * 1e-9;
  ck_assert_double_eq_tol(mJ, 103.267120, 5e-7);
  ck_assert_uint_eq(tensor.jobs, 16384);
  ck_assert_uint_eq(hbm.jobs, 33024);
  sum_of(&r, "noc");
  sum_of(&r, "dma");
  sim_layout_free(&r.layout);
}
END_TEST

/* Sizes that no tile divides: each operand's bytes are loaded once a tile, and Y is stored once. */
START_TEST(edges_move_their_own_bytes) {
  static const sim_product_shape shapes[] = {
      {1, 1, 1, 2, 2, 1}, {300, 257, 65, 2, 4, 2}, {7, 4096, 300, 2, 2, 3}, {1000, 70, 513, 2, 2, 1}};
  for (int i = 0; i < TEST_COUNT(shapes); i++)
    for (uint32_t group = 1; group <= 3; group++)
      for (uint32_t layout = 0; layout < 2; layout++) {
        const sim_product_shape *s = &shapes[i];
        const sim_knobs k = {
            .tm = 64, .tn = 32, .tk = 48, .stages = 3, .group = group, .grain = 1, .rows = layout};
        ran r;
        open_device(WHOLE, BS_BF16, &r);
        run_shape(&r, s, &k);
        const uint64_t down = (s->m + 63) / 64, across = (s->n + 31) / 32, steps = (s->k + 47) / 48;
        ck_assert_uint_eq(sum_of(&r, "hbm").amount,
                          (across * s->m + down * s->n) * s->k * s->in_bytes + s->m * s->n * s->out_bytes);
        ck_assert_uint_eq(sum_of(&r, "vector").amount, s->m * s->n * s->epilogue);
        ck_assert_uint_eq(sum_of(&r, "tensor").amount, down * across * steps * 2 * 64 * 32 * 48);
        ck_assert_uint_eq(r.result.jobs, down * across * (3 * steps + 2));
        ck_assert_uint_le(sim_product_bound(&r.program), r.result.end);
        sim_layout_free(&r.layout);
      }
}
END_TEST

/* What runs when: the order of the sums, and slots that are not loaded before they are free. */
typedef struct order {
  uint64_t ends[64][256];
  uint64_t begins[64][256];
} order;

static void note(void *user, uint32_t lane, uint64_t index, const sim_job *job, uint64_t begin,
                 uint64_t end) {
  const sim_product *p = user;
  order *o = p->told;
  (void)job;
  if (index >= 256) return;
  o->begins[lane][index] = begin;
  o->ends[lane][index] = end;
}

START_TEST(sums_go_in_order_and_slots_are_not_overwritten) {
  static order o;
  ran r;
  bs_error err = BS_ERROR_INIT;
  const sim_product_shape shape = {512, 4096, 512, 2, 2, 1};
  const sim_inside_config hooks = {.done = note};
  open_device(WHOLE, BS_BF16, &r);
  for (uint32_t stages = 1; stages <= 4; stages++) {
    const sim_knobs k = {.tm = 128, .tn = 128, .tk = 64, .stages = stages, .grain = 1};
    ck_assert_int_eq(sim_layout_reset(&r.layout, &err), BS_OK);
    ck_assert_int_eq(sim_product_make(&r.layout, &shape, &k, &r.program, &err), BS_OK);
    r.program.told = &o;
    ck_assert_int_eq(sim_product_run(&r.program, &r.layout, &hooks, &r.result, &err), BS_OK);
    for (uint32_t lane = 0; lane < 64; lane++)
      for (uint32_t tile_at = 0; tile_at < 2; tile_at++)
        for (uint32_t step = 0; step < 8; step++) {
          const uint32_t at = tile_at * 26 + 3 * step, number = tile_at * 8 + step;
          ck_assert_uint_ge(o.begins[lane][at + 2], o.ends[lane][at]);
          ck_assert_uint_ge(o.begins[lane][at + 2], o.ends[lane][at + 1]);
          if (step > 0) ck_assert_uint_ge(o.begins[lane][at + 2], o.ends[lane][at - 1]);
          if (number < stages) continue;
          const uint32_t before = (number - stages) / 8 * 26 + (number - stages) % 8 * 3 + 2;
          ck_assert_uint_ge(o.begins[lane][at], o.ends[lane][before]);
          ck_assert_uint_ge(o.begins[lane][at + 1], o.ends[lane][before]);
        }
  }
  sim_layout_free(&r.layout);
}
END_TEST

/* A grain of 2 is within 2.5 %, of 4 within 6 %, where the unit and the memory nearly bind, and where the
 * memory does. Only programs of more than 400,000 tokens are merged unasked: their errors are smaller
 * (docs/dev). */
START_TEST(merged_steps_take_nearly_the_same_time) {
  static const uint64_t shapes[][3] = {{4096, 4096, 4096}, {2048, 4096, 8192},  {4096, 2048, 8192},
                                       {8192, 2048, 4096}, {1024, 4096, 16384}, {2048, 2048, 16384}};
  static const char *const devices[] = {
      WHOLE, CUBE_PE("Bps: 16e9, first_s: 40e-9, node: spread", "dma, hbm, noc", "dma, noc, hbm")};
  double worst[5] = {0};
  for (int d = 0; d < TEST_COUNT(devices); d++) {
    ran r;
    open_device(devices[d], BS_BF16, &r);
    for (int i = 0; i < TEST_COUNT(shapes); i++) {
      const sim_product_shape s = {shapes[i][0], shapes[i][1], shapes[i][2], 2, 2, 1};
      double us[5];
      for (uint32_t g = 1; g <= 4; g *= 2) {
        sim_knobs k = tile;
        k.grain = g;
        run_shape(&r, &s, &k);
        us[g] = (double)r.result.end * 1e-6;
        worst[g] = fmax(worst[g], fabs(us[g] / us[1] - 1));
      }
    }
    sim_layout_free(&r.layout);
  }
  ck_assert_msg(worst[2] <= 0.025 && worst[4] <= 0.06, "grain 2: %.2f %%, 4: %.2f %%", 100 * worst[2],
                100 * worst[4]);
}
END_TEST

START_TEST(many_tokens_are_merged_and_too_many_refused) {
  ran r;
  bs_error err = BS_ERROR_INIT;
  open_device(WHOLE, BS_BF16, &r);
  sim_knobs k = tile;
  k.grain = 0;
  ck_assert_int_eq(sim_product_make(&r.layout, &cubic, &k, &r.program, &err), BS_OK);
  ck_assert_uint_eq(r.program.knobs.grain, 1);
  ck_assert_int_eq(
      sim_product_make(&r.layout, &(sim_product_shape){16384, 16384, 16384, 2, 2, 1}, &k, &r.program, &err),
      BS_OK);
  ck_assert_uint_eq(r.program.knobs.grain, 16); /* 3,153,920 tokens become 202,752 */
  ck_assert_int_eq(
      sim_product_make(&r.layout, &(sim_product_shape){1 << 24, 1 << 24, 64, 2, 2, 1}, &k, &r.program, &err),
      BS_CONFIG);
  ck_assert_str_eq(err.id, "BS-INSIDE-SIZE");
  k.tm = 1024;
  k.tn = 512;
  ck_assert_int_eq(sim_product_make(&r.layout, &cubic, &k, &r.program, &err), BS_NO_MEMORY);
  ck_assert_str_eq(err.id, "BS-INSIDE-SCRATCH");
  k = tile;
  k.stages = 0;
  ck_assert_int_eq(sim_product_make(&r.layout, &cubic, &k, &r.program, &err), BS_CONFIG);
  ck_assert_str_eq(err.id, "BS-INSIDE-KNOB");
  sim_layout_free(&r.layout);
}
END_TEST

/* Tiles that two lanes want come once through a cache; the units are faster than the memory behind it. */
START_TEST(a_cache_saves_what_lanes_share) {
  static const char text[] =
      "{name: cached, label: example, levels: {sm: 16}, lane: {at: sm}, parts: {"
      "tensor: {at: sm, kind: server, does: product, rate: 1e12}, vector: {at: sm, kind: server, does: map, "
      "rate: 1e11}, "
      "l: {at: package, kind: cache, bytes: 8Mi, hit: slices}, slices: {at: package, kind: memory, channels: "
      "16, Bps: 64e9}, "
      "hbm: {at: package, kind: memory, channels: 8, Bps: 16e9, first_s: 300e-9}, port: {at: sm, kind: link, "
      "Bps: 64e9}}, "
      "ways: {load: [l, hbm, slices, port], store: [port, hbm]}}";
  ran r;
  open_device(text, BS_BF16, &r);
  const sim_knobs k = {.tm = 128, .tn = 128, .tk = 64, .stages = 2, .grain = 1, .group = 4};
  run_shape(&r, &(sim_product_shape){1024, 1024, 1024, 2, 2, 1}, &k);
  /* 2 MiB of each operand, once; Y once. */
  ck_assert_uint_eq(sum_of(&r, "hbm").amount, 3 * UINT64_C(2097152));
  ck_assert_uint_eq(sum_of(&r, "slices").amount, 2 * 8 * UINT64_C(2097152));
  ck_assert_uint_eq(r.layout.n[2], 1);
  sim_layout_free(&r.layout);
}
END_TEST

/* 4 SMs of 4 lanes each that share a unit. */
#define BLOCKS(slots, more)                                                                                \
  "{name: blocks, label: example, levels: {sm: 4}, lane: {at: sm, count: 4, scratch_B: 65535" slots        \
  "}, parts: {"                                                                                            \
  "tensor: {at: sm, kind: server, does: product, rate: 1e12}, ram: {at: package, kind: memory, Bps: inf}}" \
  ", ways: {load: [ram], store: [ram]}" more "}"

static void count_tiles(void *user, uint32_t lane, uint64_t index, const sim_job *job, uint64_t begin,
                        uint64_t end) {
  const sim_product *p = user;
  uint32_t *tiles = p->told;
  (void)index;
  (void)begin;
  (void)end;
  tiles[lane] += job->what == SIM_STORE;
}

/* Tiles go to every SM before one gets a second; the third and fourth lane of each have none. */
START_TEST(resident_lanes_share_a_unit_and_its_scratch) {
  const sim_product_shape shape = {64, 6 * 64, 64, 2, 2, 1};
  const sim_inside_config hooks = {.done = count_tiles};
  sim_knobs k = {.tm = 64, .tn = 64, .tk = 32, .stages = 1, .grain = 1, .resident = 2};
  uint32_t tiles[16] = {0};
  bs_error err = BS_ERROR_INIT;
  ran r;
  open_device(BLOCKS("", ", efficiency: {units: 0.5}"), BS_BF16, &r);
  ck_assert_int_eq(sim_product_make(&r.layout, &shape, &k, &r.program, &err), BS_NO_MEMORY);
  ck_assert_str_eq(err.message,
                   "the buffers of a place's lanes take 65536 bytes, its scratch on blocks has 65535");
  k.tk = 16;
  ck_assert_int_eq(sim_product_make(&r.layout, &shape, &k, &r.program, &err), BS_OK);
  r.program.told = tiles;
  ck_assert_int_eq(sim_product_run(&r.program, &r.layout, &hooks, &r.result, &err), BS_OK);
  for (uint32_t lane = 0; lane < 16; lane++)
    ck_assert_uint_eq(tiles[lane], lane % 4 == 0 || lane == 1 || lane == 5);
  ck_assert_uint_eq(r.result.end, 2 * 1048576); /* two tiles of 2 * 64^3 FLOP at half of 1 TFLOP/s */
  sim_layout_free(&r.layout);
}
END_TEST

/* The slots of a lane take 4,096 bytes. */
START_TEST(as_many_lanes_work_as_have_room_for_slots) {
  const sim_product_shape shape = {64, 6 * 64, 64, 2, 2, 1};
  const sim_knobs k = {.tm = 64, .tn = 64, .tk = 16, .stages = 1, .grain = 1, .resident = 4};
  bs_error err = BS_ERROR_INIT;
  ran r;
  open_device(BLOCKS(", slots_B: 12287", ""), BS_BF16, &r);
  ck_assert_int_eq(sim_product_make(&r.layout, &shape, &k, &r.program, &err), BS_OK);
  ck_assert_uint_eq(r.program.knobs.resident, 2);
  sim_layout_free(&r.layout);
  open_device(BLOCKS(", slots_B: 4095", ""), BS_BF16, &r);
  ck_assert_int_eq(sim_product_make(&r.layout, &shape, &k, &r.program, &err), BS_NO_MEMORY);
  ck_assert_str_eq(err.message,
                   "the slots of a lane's operands take 4096 bytes, blocks has 4095 for those of a place");
  sim_layout_free(&r.layout);
}
END_TEST

int main(void) {
  const test_case tests[] = {{k9_a_product_takes_the_time_of_its_closed_form},
                             {two_accumulators_hide_the_epilogue},
                             {k10_a_systolic_array_is_a_server},
                             {k11_amounts_are_those_of_the_op},
                             {edges_move_their_own_bytes},
                             {sums_go_in_order_and_slots_are_not_overwritten},
                             {merged_steps_take_nearly_the_same_time},
                             {many_tokens_are_merged_and_too_many_refused},
                             {a_cache_saves_what_lanes_share},
                             {resident_lanes_share_a_unit_and_its_scratch},
                             {as_many_lanes_work_as_have_room_for_slots},
                             {0}};
  return run_tests("sim_program", tests, (test_setup){0});
}
