/* SPDX-License-Identifier: MIT
 * test_sim_ops_inside.c - attention, maps, copies and sends as lanes of jobs, and the launch of an op: known
 * times, amounts, order, and what is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "sim/launch.h"
#include "sim/program.h"
#include "tests/run_tests.h"

/* PEs of cube-pe of configs/devices; the memory costs nothing. */
#define PES(levels)                                                                                         \
  "{name: pes, label: example, levels: " levels                                                             \
  ", lane: {at: pe, scratch_B: 2097152}, parts: {"                                                          \
  "tensor: {at: pe, kind: server, does: product, rate: {bf16: 8.192e12}, grain: [16, 16, 16]}, "            \
  "vector: {at: pe, kind: server, does: map, rate: 128e9}, "                                                \
  "dma: {at: pe, kind: link, workers: 2, first_s: 100e-9, Bps: 256e9, flit_B: 64}, "                        \
  "hbm: {at: package, kind: memory, channels: 32, flit_B: 64, Bps: inf}}, ways: {load: [dma, hbm], store: " \
  "[dma, hbm]}}"

typedef struct ran {
  sim_device device;
  sim_layout layout;
  sim_program program;
  sim_inside_result result;
} ran;

static void open_device(const char *text, ran *r) {
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(sim_device_read(text, &r->device, &err) == BS_OK, "%s: %s", err.where, err.message);
  ck_assert_msg(sim_layout_make(&r->device, BS_BF16, &r->layout, &err) == BS_OK, "%s", err.message);
}

/* Runs an op; its program stays open. */
static uint64_t run_op(ran *r, const sim_op *op, const sim_knobs *knobs, const sim_inside_config *hooks,
                       void *told) {
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(sim_layout_reset(&r->layout, &err), BS_OK);
  ck_assert_msg(sim_program_make(&r->layout, op, knobs, &r->program, &err) == BS_OK, "%s", err.message);
  r->program.told = told;
  ck_assert_msg(sim_program_run(&r->program, &r->layout, hooks, &r->result, &err) == BS_OK, "%s",
                err.message);
  ck_assert_uint_le(sim_program_bound(&r->program), r->result.settled);
  return r->result.end;
}

static uint64_t time_op(ran *r, const sim_op *op, const sim_knobs *knobs) {
  const uint64_t end = run_op(r, op, knobs, NULL, NULL);
  sim_program_close(&r->program);
  return end;
}

static uint64_t amount_of(const ran *r, const char *name) {
  const uint32_t c = sim_device_class(&r->device, name);
  uint64_t sum = 0;
  ck_assert_uint_lt(c, r->device.n_classes);
  for (uint32_t i = 0; i < r->layout.n[c]; i++) sum += r->layout.parts[r->layout.base[c] + i].amount;
  return sum;
}

/* The refusal of a program. */
static void refused(ran *r, const sim_op *op, const sim_knobs *knobs, int32_t code, const char *id) {
  bs_error err = BS_ERROR_INIT;
  const int32_t rc = sim_program_make(&r->layout, op, knobs, &r->program, &err);
  sim_program_close(&r->program);
  ck_assert_msg(rc == code && strcmp(err.id, id) == 0, "%d %s: %s", rc, err.id, err.message);
}

/* ---- attention --------------------------------------------------------------------------------- */

static sim_op attention(uint64_t heads, uint64_t s, uint64_t t) {
  return (sim_op){.kind = SIM_OP_ATTENTION,
                  .attention = {.heads = heads,
                                .group = 1,
                                .s = s,
                                .t = t,
                                .d = 64,
                                .e = 64,
                                .sees_from = SIM_SEES_FIRST,
                                .sees_end = SIM_SEES_LAST,
                                .in_bytes = 2,
                                .out_bytes = 2}};
}

START_TEST(k12_attention_on_one_pe) {
  static const struct {
    uint32_t stages, ahead;
    uint64_t ps;
  } rows[] = {{1, 0, 13028000}, {2, 0, 10568000}, {3, 1, 8520000}};
  const sim_op op = attention(1, 512, 512);
  ran r;
  open_device(PES("{pe: 1}"), &r);
  for (int i = 0; i < TEST_COUNT(rows); i++) {
    const sim_knobs k = {.tm = 128, .tn = 128, .stages = rows[i].stages, .ahead = rows[i].ahead};
    ck_assert_uint_eq(time_op(&r, &op, &k), rows[i].ps);
  }
  ck_assert_double_eq(sim_op_flops(&op), 4.0 * 512 * 512 * 64);
  ck_assert_uint_eq(amount_of(&r, "tensor"), UINT64_C(4) * 512 * 512 * 64);
  ck_assert_uint_eq(amount_of(&r, "vector"), 512 * 512);
  /* Q and O once; K and V once for each of 4 blocks of queries. */
  ck_assert_uint_eq(amount_of(&r, "hbm"), (2 + 2 * 4) * 512 * 64 * 2);
  sim_layout_free(&r.layout);
}
END_TEST

/* When the jobs of a lane ran, by what they are. */
typedef struct seen {
  uint32_t n[SIM_WHATS];
  uint64_t begin[SIM_WHATS][128], end[SIM_WHATS][128];
} seen;

static void note(void *user, uint32_t lane, uint64_t index, const sim_job *job, uint64_t begin,
                 uint64_t end) {
  const sim_program *p = user;
  seen *s = p->told;
  (void)index;
  if (lane != 0 || s->n[job->what] == 128) return;
  s->begin[job->what][s->n[job->what]] = begin;
  s->end[job->what][s->n[job->what]++] = end;
}

static int by_time(const void *a, const void *b) {
  const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return x < y ? -1 : x > y;
}

/* Values go in the order of the keys; no buffer is written while it is read; exp is behind its scores. */
START_TEST(attention_keeps_its_order_and_its_buffers) {
  static seen s;
  const sim_inside_config hooks = {.done = note};
  ran r;
  open_device(PES("{pe: 2}"), &r);
  for (uint32_t stages = 1; stages <= 4; stages++)
    for (uint32_t ahead = 0; ahead < stages && ahead < 3; ahead++) {
      const sim_op op = attention(4, 300, 500);
      const sim_knobs k = {.tm = 64, .tn = 128, .stages = stages, .ahead = ahead};
      memset(&s, 0, sizeof s);
      run_op(&r, &op, &k, &hooks, &s);
      sim_program_close(&r.program);
      const uint32_t steps = s.n[SIM_VALUES]; /* 10 of 20 blocks, 4 steps each */
      ck_assert_uint_eq(steps, 40);
      ck_assert_uint_eq(s.n[SIM_LOAD_Q], 10);
      ck_assert_uint_eq(s.n[SIM_STORE], 10);
      for (uint32_t w = 0; w < SIM_WHATS; w++) qsort(s.begin[w], s.n[w], sizeof s.begin[w][0], by_time);
      for (uint32_t i = 0; i < steps; i++) {
        ck_assert_uint_ge(s.begin[SIM_EXP][i], s.end[SIM_SCORES][i]);
        ck_assert_uint_ge(s.begin[SIM_VALUES][i], s.end[SIM_EXP][i]);
        ck_assert_uint_ge(s.begin[SIM_VALUES][i], s.end[SIM_LOAD_V][i]);
        ck_assert_uint_ge(s.begin[SIM_SCORES][i], s.end[SIM_LOAD_K][i]);
        if (i > 0) ck_assert_uint_ge(s.begin[SIM_VALUES][i], s.end[SIM_VALUES][i - 1]);
        if (i >= stages) ck_assert_uint_ge(s.begin[SIM_LOAD_K][i], s.end[SIM_VALUES][i - stages]);
        if (i > ahead) ck_assert_uint_ge(s.begin[SIM_SCORES][i], s.end[SIM_VALUES][i - ahead - 1]);
        if (i % 4 == 0 && i > 0) ck_assert_uint_ge(s.begin[SIM_VALUES][i], s.end[SIM_STORE][i / 4 - 1]);
      }
    }
  sim_layout_free(&r.layout);
}
END_TEST

/* Blocks of keys that no query of a block sees are left out; heads may share K and V. */
START_TEST(attention_skips_blocks_that_are_masked) {
  static const struct {
    int64_t from, end;
    uint64_t steps;
  } rows[] = {{SIM_SEES_FIRST, SIM_SEES_LAST, 16},
              {SIM_SEES_FIRST, 1, 10},   /* causal */
              {-127, 1, 7},              /* and the 128 newest keys */
              {SIM_SEES_FIRST, -400, 4}, /* the first blocks see no key: one step each */
              {SIM_SEES_FIRST, 129, 13}};
  ran r;
  open_device(PES("{pe: 3}"), &r);
  for (int i = 0; i < TEST_COUNT(rows); i++) {
    sim_op op = attention(4, 512, 512);
    const sim_knobs k = {.tm = 128, .tn = 128, .stages = 2};
    op.attention.sees_from = rows[i].from;
    op.attention.sees_end = rows[i].end;
    op.attention.group = 2;
    time_op(&r, &op, &k);
    ck_assert_uint_eq(amount_of(&r, "tensor"), 4 * rows[i].steps * 4 * 128 * 128 * 64);
  }
  sim_layout_free(&r.layout);
}
END_TEST

/* ---- maps, copies and sends -------------------------------------------------------------------- */

static sim_op map(uint64_t elements, uint32_t inputs, uint32_t outputs, uint32_t ops) {
  return (sim_op){.kind = SIM_OP_MAP,
                  .map = {.elements = elements,
                          .inputs = inputs,
                          .outputs = outputs,
                          .in_bytes = 2,
                          .out_bytes = 2,
                          .ops = ops,
                          .out_of = 1}};
}

START_TEST(k13_a_map_on_one_pe) {
  const sim_op op = map(4 * 16384, 1, 1, 1);
  ran r;
  open_device(PES("{pe: 1}"), &r);
  ck_assert_uint_eq(time_op(&r, &op, &(sim_knobs){.tm = 16384, .stages = 2}), 1068000);
  ck_assert_uint_eq(time_op(&r, &op, &(sim_knobs){.tm = 16384, .stages = 1}), 1652000);
  sim_layout_free(&r.layout);
}
END_TEST

/* Each input comes once, each output goes once, at sizes that no tile divides; a reduction stores less. */
START_TEST(maps_move_their_own_bytes) {
  ran r;
  open_device(PES("{pe: 3}"), &r);
  for (uint32_t inputs = 1; inputs <= SIM_MAP_INPUTS; inputs++)
    for (uint32_t outputs = 1; outputs <= SIM_MAP_OUTPUTS; outputs++)
      for (uint32_t stages = 1; stages <= SIM_PROGRAM_STAGES; stages += 5) {
        if (inputs + outputs > SIM_NEEDS) continue;
        sim_op op = map(10007, inputs, outputs, 3);
        time_op(&r, &op, &(sim_knobs){.tm = 1000, .stages = stages});
        ck_assert_uint_eq(amount_of(&r, "hbm"), UINT64_C(10007) * 2 * (inputs + outputs));
        ck_assert_uint_eq(amount_of(&r, "vector"), 3 * 10007);
        ck_assert_uint_eq(r.result.jobs, UINT64_C(11) * (inputs + 1 + outputs));
      }
  sim_op op = map(8000, 1, 1, 1);
  op.map.out_of = 1000;
  time_op(&r, &op, &(sim_knobs){.tm = 2500, .stages = 2});
  ck_assert_uint_eq(amount_of(&r, "hbm"), 2 * (8000 + 8));
  sim_layout_free(&r.layout);
}
END_TEST

/* A load of 100 + 128 ns, then its store; with two slots the next load goes beside the store. */
START_TEST(a_copy_is_loads_and_stores) {
  const sim_op op = map(4 * 16384, 1, 1, 0);
  ran r;
  open_device(PES("{pe: 1}"), &r);
  ck_assert_uint_eq(time_op(&r, &op, &(sim_knobs){.tm = 16384, .stages = 1}), 4 * 456000);
  ck_assert_uint_eq(time_op(&r, &op, &(sim_knobs){.tm = 16384, .stages = 2}), 2 * 456000);
  ck_assert_uint_eq(amount_of(&r, "hbm"), 4 * 4 * 16384);
  sim_layout_free(&r.layout);
}
END_TEST

/* K8 by the program: items of 4096 bytes, made in 100 ns, sent at 64 GB/s and 20 ns, used in 150 ns. */
#define QUEUED(slots)                                                                                      \
  "{name: queued, label: example, levels: {pe: 2}, lane: {at: pe}, parts: {make: {at: pe, kind: server, "  \
  "first_s: 100e-9}, use: {at: pe, kind: server, first_s: 150e-9}, wire: {at: package, kind: net, shape: " \
  "fullmesh, first_s: 20e-9, Bps: 64e9}, ram: {at: package, kind: memory, Bps: inf}, ipcq: {at: pe, "      \
  "kind: queue, slots: " slots ", credit_s: 20e-9}}, ways: {load: [make], store: [use, ram], send: [wire]}}"

START_TEST(inter_pe_queue_and_dma) {
  static const struct {
    const char *text;
    uint64_t ps;
  } rows[] = {{QUEUED("1"), 25480000}, {QUEUED("2"), 15184000}, {QUEUED("4"), 15184000}};
  const sim_op op = {.kind = SIM_OP_SEND, .send = {.elements = 2 * 100 * 4096, .bytes = 1, .shift = 1}};
  for (int i = 0; i < TEST_COUNT(rows); i++) {
    ran r;
    open_device(rows[i].text, &r);
    ck_assert_uint_eq(time_op(&r, &op, &(sim_knobs){.tm = 4096, .stages = 2}), rows[i].ps);
    ck_assert_uint_eq(amount_of(&r, "wire"), 2 * 100 * 4096);
    sim_layout_free(&r.layout);
  }
}
END_TEST

START_TEST(what_no_program_can_do_is_refused) {
  const sim_op send = {.kind = SIM_OP_SEND, .send = {.elements = 4096, .bytes = 1, .shift = 1}};
  const sim_op attend = attention(1, 512, 512);
  sim_op wide = map(4096, 1, 1, 1);
  ran r;
  open_device(PES("{pe: 2}"), &r);
  refused(&r, &send, &(sim_knobs){.tm = 64, .stages = 2}, BS_UNSUPPORTED, "BS-INSIDE-OP");
  refused(&r, &attend, &(sim_knobs){.tm = 64, .tn = 64, .stages = 2, .ahead = 2}, BS_CONFIG,
          "BS-INSIDE-KNOB");
  refused(&r, &attend, &(sim_knobs){.tm = 64, .stages = 2}, BS_CONFIG, "BS-INSIDE-KNOB");
  refused(&r, &attend, &(sim_knobs){.tm = 1024, .tn = 1024, .stages = 2}, BS_NO_MEMORY, "BS-INSIDE-SCRATCH");
  refused(&r, &wide, &(sim_knobs){.tm = 1 << 20, .stages = 2}, BS_NO_MEMORY, "BS-INSIDE-SCRATCH");
  wide.map.elements = UINT64_C(1) << 40;
  refused(&r, &wide, &(sim_knobs){.tm = 1024, .stages = 2}, BS_CONFIG, "BS-INSIDE-SIZE");
  wide.map.inputs = SIM_MAP_INPUTS + 1;
  refused(&r, &wide, &(sim_knobs){.tm = 1024, .stages = 2}, BS_UNSUPPORTED, "BS-INSIDE-OP");
  sim_layout_free(&r.layout);
}
END_TEST

/* ---- a product in parts ------------------------------------------------------------------------- */

/* One tile of 256 x 256 on one of 4 PEs: L + 16 T + E + X. In 4 parts: L + 4 T + X of sums in f32, then a
 * barrier, then the adding: four loads of 16,384 f32 on two engines, 4 ops an element, a store. */
START_TEST(a_split_product_is_added_behind_a_barrier) {
  const sim_op op = {.kind = SIM_OP_PRODUCT, .product = {256, 256, 1024, 2, 2, 1}};
  sim_knobs k = {.tm = 256, .tn = 256, .tk = 64, .stages = 2};
  ran r;
  open_device(PES("{pe: 4}"), &r);
  ck_assert_uint_eq(time_op(&r, &op, &k), 228000 + 16 * 1024000 + 512000 + 612000);
  k.split = 4;
  ck_assert_uint_eq(time_op(&r, &op, &k), 228000 + 4 * 1024000 + 100000 + 1024000 +
                                              (2 * 256000 + 100000 + 512000 + 100000 + 128000));
  ck_assert_uint_eq(amount_of(&r, "tensor"), UINT64_C(2) * 256 * 256 * 1024);
  ck_assert_uint_eq(amount_of(&r, "vector"), 4 * 256 * 256);
  ck_assert_uint_eq(amount_of(&r, "hbm"), 2 * 256 * 1024 * 2 + 256 * 256 * (2 * 4 * 4 + 2));
  k.split = 3;
  refused(&r, &op, &k, BS_CONFIG, "BS-INSIDE-KNOB");
  sim_layout_free(&r.layout);
}
END_TEST

static void count_lanes(void *user, uint32_t lane, uint64_t index, const sim_job *job, uint64_t begin,
                        uint64_t end) {
  const sim_program *p = user;
  uint32_t *jobs = p->told;
  (void)index;
  (void)job;
  (void)begin;
  (void)end;
  jobs[lane]++;
}

/* Lanes outside of `where` have no jobs; the others take the time of a device that has no more. */
START_TEST(idle_lanes_have_no_jobs) {
  const sim_op ops[] = {{.kind = SIM_OP_PRODUCT, .product = {512, 512, 256, 2, 2, 1}},
                        attention(2, 300, 300),
                        map(100000, 2, 1, 1)};
  const sim_knobs knobs[] = {{.tm = 128, .tn = 128, .tk = 64, .stages = 2, .split = 2},
                             {.tm = 64, .tn = 64, .stages = 3, .ahead = 1},
                             {.tm = 1000, .stages = 2}};
  const sim_inside_config hooks = {.done = count_lanes};
  for (int i = 0; i < TEST_COUNT(ops); i++) {
    uint32_t jobs[8] = {0};
    sim_knobs k = knobs[i];
    ran few, all;
    open_device(PES("{pe: 3}"), &few);
    open_device(PES("{pe: 8}"), &all);
    k.where_first = 4;
    k.where_places = 3;
    const uint64_t whole = run_op(&all, &ops[i], &k, &hooks, jobs);
    sim_program_close(&all.program);
    ck_assert_uint_eq(whole, time_op(&few, &ops[i], &knobs[i]));
    for (uint32_t l = 0; l < 8; l++) ck_assert_int_eq(jobs[l] > 0, l >= 4 && l < 7);
    k.where_places = 5;
    refused(&all, &ops[i], &k, BS_CONFIG, "BS-INSIDE-KNOB");
    sim_layout_free(&few.layout);
    sim_layout_free(&all.layout);
  }
}
END_TEST

/* The stops of each kind of job: numbers of classes, in order. */
static void note_route(void *user, const sim_passed *at) {
  const sim_program *p = user;
  char(*routes)[64] = p->told;
  const uint32_t what = at->job->what,
                 class = sim_layout_class_of(p->product.layout, at->job->stops[at->stop].part);
  if (at->index >= p->product.jobs_a_tile || at->lane > 0 || strlen(routes[what]) > 40) return;
  snprintf(routes[what] + strlen(routes[what]), 64 - strlen(routes[what]), "%s ",
           p->product.layout->device->classes[class].name);
}

/* A composite op: a product, further ops of its epilogue, and moves, each token with a route of its own. */
START_TEST(pe_tokens_carry_their_route) {
  const sim_op op = {.kind = SIM_OP_PRODUCT, .product = {128, 128, 64, 2, 2, 3}};
  const sim_knobs k = {.tm = 128, .tn = 128, .tk = 64, .stages = 2};
  const sim_inside_config hooks = {.pass = note_route};
  char routes[SIM_WHATS][64] = {{0}};
  ran r;
  open_device(PES("{pe: 1}"), &r);
  run_op(&r, &op, &k, &hooks, routes);
  sim_program_close(&r.program);
  ck_assert_str_eq(routes[SIM_LOAD_A], "dma hbm ");
  ck_assert_str_eq(routes[SIM_LOAD_B], "dma hbm ");
  ck_assert_str_eq(routes[SIM_PRODUCT], "tensor ");
  ck_assert_str_eq(routes[SIM_EPILOGUE], "vector ");
  ck_assert_str_eq(routes[SIM_STORE], "dma hbm ");
  ck_assert_uint_eq(amount_of(&r, "vector"), 3 * 128 * 128);
  sim_layout_free(&r.layout);
}
END_TEST

/* K5 by a program: five copies of 64 KiB; two engines take 100 ns and 64 GB/s each, the others wait in order.
 */
START_TEST(m_cpu_dma_is_a_counted_resource) {
  const sim_op op = map(5 * 32768, 1, 1, 0);
  ran r;
  open_device(
      "{name: m, label: example, levels: {cube: 1, pe: 5}, lane: {at: pe}, parts: {m_dma: {at: cube, "
      "kind: queue, slots: 2, first_s: 100e-9}, port: {at: pe, kind: link, Bps: 64e9}, ram: {at: "
      "package, kind: memory, Bps: inf}}, ways: {load: [m_dma, port], store: [ram]}}",
      &r);
  ck_assert_uint_eq(time_op(&r, &op, &(sim_knobs){.tm = 32768, .stages = 1}), 3372000);
  sim_layout_free(&r.layout);
}
END_TEST

/* ---- launch ------------------------------------------------------------------------------------ */

#define LAUNCHED(lists)                                                                                      \
  "{name: launched, label: example, levels: {cube: 4, pe: 16}, lane: {at: pe}, parts: {io: {at: package, "   \
  "kind: server, does: command, first_s: 200e-9}, m: {at: cube, kind: server, does: command, first_s: "      \
  "100e-9}, far: {at: package, kind: link, Bps: 64e9, first_s: 50e-9}, near: {at: pe, kind: link, Bps: "     \
  "64e9, first_s: 10e-9}, m_back: {at: cube, kind: server, does: command, first_s: 20e-9}, io_back: {at: "   \
  "package, kind: server, does: command, first_s: 30e-9}, ring: {at: package, kind: net, shape: ring, Bps: " \
  "64e9, first_s: 50e-9}, ram: {at: package, kind: memory, Bps: inf}}, launch: {" lists "}}"

/* The whole of an op whose lanes work for `work` ps: its stamp, and its end. */
static uint64_t launch(const char *text, uint64_t work, uint64_t *out_stamp) {
  bs_error err = BS_ERROR_INIT;
  uint64_t ends[64], end = 0;
  ran r;
  open_device(text, &r);
  ck_assert_msg(sim_launch_out(&r.layout, 0, out_stamp, &err) == BS_OK, "%s", err.message);
  for (int i = 0; i < 64; i++) ends[i] = *out_stamp + work;
  ck_assert_msg(sim_launch_back(&r.layout, ends, &end, &err) == BS_OK, "%s", err.message);
  sim_layout_free(&r.layout);
  return end;
}

START_TEST(k7_io_cpu_stamps_one_start) {
  uint64_t stamp;
  ck_assert_uint_eq(
      launch(LAUNCHED("out: [io, far, m, near], back: [near, m_back, far, io_back]"), 10000000, &stamp),
      12960000);
  ck_assert_uint_eq(stamp, 2460000);
  /* A ring from cube 0: the third command of 600 ns has two hops of 50 ns, the fourth of 800 ns has one. */
  ck_assert_uint_eq(launch(LAUNCHED("out: [io, ring, m]"), 0, &stamp), 800000 + 50000 + 1600000);
  ck_assert_uint_eq(launch(LAUNCHED("first_s: 28e-6"), 5, &stamp), 28000005);
  ck_assert_uint_eq(stamp, 28000000);
  ck_assert_uint_eq(launch(LAUNCHED("back: [m_back, ring, io_back]"), 0, &stamp), 320000 + 50000 + 90000);
}
END_TEST

/* The paths of an M_CPU: commands to its PEs, data by its DMA (m_cpu_dma_is_a_counted_resource), and their
 * answers. */
#define CUBES_OF_3(lists)                                                                                \
  "{name: c, label: example, levels: {cube: 2, pe: 3}, lane: {at: pe}, parts: {io: {at: package, kind: " \
  "server, does: command}, m: {at: cube, kind: server, does: command, first_s: 100e-9}, near: {at: pe, " \
  "kind: link, Bps: 64e9, first_s: 10e-9}, ram: {at: package, kind: memory, Bps: inf}}, launch: {" lists \
  "}}"

/* The M_CPUs of both cubes work at the same time. Each serves its three PEs one after the other. */
START_TEST(m_cpu_sends_one_command_a_pe) {
  bs_error err = BS_ERROR_INIT;
  uint64_t stamp = 0;
  ran r;
  open_device(CUBES_OF_3("out: [io, m, near]"), &r);
  ck_assert_msg(sim_launch_out(&r.layout, 7, &stamp, &err) == BS_OK, "%s", err.message);
  ck_assert_uint_eq(stamp, 7 + 300000 + 10000);
  ck_assert_uint_eq(r.layout.parts[r.layout.base[sim_device_class(r.layout.device, "m")]].jobs, 3);
  sim_layout_free(&r.layout);
}
END_TEST

/* Early answers are served before the last one comes; those that come together wait for each other. A lane's
 * end counts from the stamp. */
START_TEST(m_cpu_joins_the_answers_of_its_pes) {
  static const struct {
    uint64_t ends[6], back;
  } rows[] = {{{0, 0, 1000000, 0, 0, 0}, 1100000}, {{0, 0, 0, 50000, 40000, 0}, 300000}};
  for (int i = 0; i < TEST_COUNT(rows); i++) {
    bs_error err = BS_ERROR_INIT;
    uint64_t end = 0, stamp = 0;
    ran r;
    open_device(CUBES_OF_3("out: [io, m, near], back: [m]"), &r);
    ck_assert_msg(sim_launch_back(&r.layout, rows[i].ends, &end, &err) == BS_OK, "%s", err.message);
    ck_assert_uint_eq(end, rows[i].back);
    ck_assert_int_eq(sim_launch_around(&r.layout, rows[i].ends, 0, &stamp, &end, &err), BS_OK);
    ck_assert_uint_eq(end, stamp + rows[i].back);
    sim_layout_free(&r.layout);
  }
}
END_TEST

START_TEST(a_launch_that_skips_a_server_is_refused) {
  static const char *const texts[] = {LAUNCHED("out: [io, ram, m]"), LAUNCHED("out: [m, io]"),
                                      LAUNCHED("out: [near, io, m]")};
  for (int i = 0; i < TEST_COUNT(texts); i++) {
    bs_error err = BS_ERROR_INIT;
    uint64_t stamp;
    ran r;
    open_device(texts[i], &r);
    ck_assert_int_eq(sim_launch_out(&r.layout, 0, &stamp, &err), BS_CONFIG);
    ck_assert_str_eq(err.id, "BS-DEVICE-LAUNCH");
    sim_layout_free(&r.layout);
  }
}
END_TEST

int main(void) {
  const test_case tests[] = {{k12_attention_on_one_pe},
                             {attention_keeps_its_order_and_its_buffers},
                             {attention_skips_blocks_that_are_masked},
                             {k13_a_map_on_one_pe},
                             {maps_move_their_own_bytes},
                             {a_copy_is_loads_and_stores},
                             {inter_pe_queue_and_dma},
                             {what_no_program_can_do_is_refused},
                             {a_split_product_is_added_behind_a_barrier},
                             {idle_lanes_have_no_jobs},
                             {pe_tokens_carry_their_route},
                             {m_cpu_dma_is_a_counted_resource},
                             {m_cpu_sends_one_command_a_pe},
                             {m_cpu_joins_the_answers_of_its_pes},
                             {k7_io_cpu_stamps_one_start},
                             {a_launch_that_skips_a_server_is_refused},
                             {0}};
  return run_tests("sim_ops_inside", tests, (test_setup){0});
}
