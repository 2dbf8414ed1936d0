/* SPDX-License-Identifier: MIT
 * test_sim_oplog.c - op logs: text, hazards by planted bugs, data, and times on other machines. */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "core/base/error.h"
#include "lab/sim/replay.h"
#include "tests/run_tests.h"

#define DEVICE(lanes, rate, latency)                                               \
  "{name: two, label: example, levels: {pe: " lanes                                \
  "}, lane: {at: pe, scratch_B: 1Mi}, parts: {"                                    \
  "tensor: {at: pe, kind: server, does: product, rate: {bf16: " rate               \
  ", f8: 2e11, f32: 5e10}}, "                                                      \
  "vector: {at: pe, kind: server, does: map, rate: 64e9}, "                        \
  "dma: {at: pe, kind: link, workers: 2, first_s: 20e-9, Bps: 64e9, flit_B: 64}, " \
  "hbm: {at: package, kind: memory, channels: 4, Bps: 32e9, first_s: " latency     \
  ", flit_B: 64}}, ways: {load: "                                                  \
  "[dma, "                                                                         \
  "hbm], store: [dma, hbm]}}"
#define TWO DEVICE("2", "1e11", "40e-9")

enum bug { CLEAN, SLOTS, SKIPS, EARLY, SHARES, NO_STORE };

typedef struct made {
  sim_device device;
  bs_oplog_plan plan;
  sim_oplog log;
  sim_recorder recorder;
  enum bug bug;
  sim_inside_result result;
} made;

/* ---- programs with a bug ----------------------------------------------------------------------- */

static int next(void *user, uint32_t lane, uint64_t index, sim_job *j) {
  made *m = user;
  if (!sim_program_next(&m->plan.program, lane, index, j)) return 0;
  const int of_map = m->plan.what.kind == SIM_OP_MAP;
  if (m->bug == EARLY && j->what == SIM_EPILOGUE) j->needs[0] = 2; /* the load before */
  if (m->bug == EARLY && ((j->what == SIM_STORE && of_map) || j->what == SIM_EXP)) j->needs[0] = 2;
  if (m->bug == NO_STORE && j->what == SIM_EPILOGUE) j->n_needs = 1;
  return 1;
}

static void done(void *user, uint32_t lane, uint64_t index, const sim_job *job, uint64_t begin,
                 uint64_t end) {
  made *m = user;
  sim_recorder_done(&m->plan.program, lane, index, job, begin, end);
  sim_logged *j = &m->log.jobs[m->log.n - 1];
  if (m->bug == SKIPS && (j->what == SIM_LOAD_A || j->what == SIM_LOAD) &&
      j->job == 3 * 3) /* of the fourth step: into the slot behind its own */
    j->writes.start = (j->writes.start + j->writes.bytes) % (m->plan.knobs.stages * j->writes.bytes);
  if (m->bug == SKIPS && j->what == SIM_LOAD_K && j->job == 11) /* of the third step, into the second slot */
    j->writes.start += j->writes.bytes;
  if (m->bug == SHARES && j->what == SIM_VALUES) j->writes.start = j->reads[2].start = 64; /* sums in Q */
  if (m->bug == SHARES && (j->what == SIM_EPILOGUE || j->what == SIM_MAP)) j->writes.start = 64;
  if (m->bug == SHARES && j->what == SIM_STORE) j->reads[0].start = 64;
}

static void make(const char *device, const char *op, const char *knobs, enum bug bug, made *m) {
  bs_error err = BS_ERROR_INIT;
  memset(m, 0, sizeof *m);
  m->bug = bug;
  snprintf(m->log.op, sizeof m->log.op, "%s", op);
  snprintf(m->log.knobs, sizeof m->log.knobs, "%s", knobs);
  ck_assert_msg(sim_device_read(device, &m->device, &err) == BS_OK, "%s: %s", err.where, err.message);
  ck_assert_msg(bs_oplog_plan_open(&m->log, &m->device, &m->plan, &err) == BS_OK, "%s", err.message);
  ck_assert_int_eq(sim_oplog_open(&m->log, &m->plan.layout, op, knobs, &err), BS_OK);
  ck_assert_int_eq(sim_recorder_open(&m->recorder, &m->log, &err), BS_OK);
  if (bug == SLOTS) m->recorder.slots = m->plan.knobs.stages - 1;
  m->plan.program.told = &m->recorder;
  const sim_inside_config config = {.parts = m->plan.layout.parts,
                                    .n_parts = m->plan.layout.n_parts,
                                    .n_lanes = m->device.lanes,
                                    .next = next,
                                    .done = done,
                                    .user = m};
  ck_assert_msg(sim_inside_run(&config, &m->result, &err) == BS_OK, "%s", err.message);
  ck_assert_int_eq(m->recorder.rc, BS_OK);
  ck_assert_msg(sim_oplog_index(&m->log, &err) == BS_OK, "%s", err.message);
  sim_recorder_close(&m->recorder);
}

static void drop(made *m) {
  bs_oplog_plan_close(&m->plan);
  sim_oplog_free(&m->log);
}

/* Outputs of the replay with other bits than those of the untiled loop. */
static uint64_t wrong_outputs(const sim_oplog *log, const bs_oplog_plan *p) {
  bs_error err = BS_ERROR_INIT;
  const sim_product_shape *s = &p->what.product;
  const uint64_t n_a = s->m * s->k, n_b = s->n * s->k, n_y = s->m * s->n;
  float *values = malloc((n_a + n_b) * sizeof *values);
  char *a = malloc(n_a * s->in_bytes), *b = malloc(n_b * s->in_bytes);
  char *y = malloc(n_y * s->out_bytes), *right = malloc(n_y * s->out_bytes);
  ck_assert(values != NULL && a != NULL && b != NULL && y != NULL && right != NULL);
  for (uint64_t i = 0; i < n_a + n_b; i++) values[i] = sinf((float)(i * i % 7919));
  bs_convert(p->problem.dtype, a, BS_F32, values, n_a);
  bs_convert(p->problem.dtype, b, BS_F32, values + n_a, n_b);
  ck_assert_msg(bs_oplog_data(log, p, a, b, y, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(bs_oplog_untiled(p, a, b, right, &err) == BS_OK, "%s", err.message);
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < n_y; i++)
    wrong += memcmp(y + i * s->out_bytes, right + i * s->out_bytes, s->out_bytes) != 0;
  free(values);
  free(a);
  free(b);
  free(y);
  free(right);
  return wrong;
}

static sim_hazards hazards_of(const sim_oplog *log) {
  bs_error err = BS_ERROR_INIT;
  sim_hazards found;
  ck_assert_msg(sim_hazards_find(log, &found, &err) == BS_OK, "%s", err.message);
  return found;
}

/* The sentence of the first hazard of a kind. */
static void sentence(const sim_oplog *log, uint32_t kind, char out[512]) {
  const sim_hazards found = hazards_of(log);
  uint32_t i = 0;
  while (i < found.n && found.kept[i].kind != kind) i++;
  ck_assert_msg(i < found.n, "H%u is not among %u hazards, H1 to H5: %u %u %u %u %u", kind, found.n,
                (unsigned)found.count[1], (unsigned)found.count[2], (unsigned)found.count[3],
                (unsigned)found.count[4], (unsigned)found.count[5]);
  sim_hazard_say(log, &found.kept[i], out, 512);
}

static void expect(const sim_oplog *log, uint32_t kind, const char *const *words) {
  char text[512];
  sentence(log, kind, text);
  for (; *words != NULL; words++)
    ck_assert_msg(strstr(text, *words) != NULL, "'%s' lacks '%s'", text, *words);
}

#define EXPECT(log, kind, ...) expect(log, kind, (const char *const[]){__VA_ARGS__, NULL})

/* ---- tests ------------------------------------------------------------------------------------- */

START_TEST(clean_programs_have_no_hazard_and_right_bits) {
  static const char *const dtypes[] = {"f32", "bf16", "f8e4m3"};
  static const char *const knobs[] = {"tm=32;tn=32;tk=16;stages=1", "tm=32;tn=32;tk=16;stages=2;group=2",
                                      "tm=32;tn=16;tk=8;stages=3;accumulators=2",
                                      "tm=32;tn=32;tk=16;stages=2;grain=2;layout=rows",
                                      "tm=64;tn=16;tk=128;stages=2"};
  static const char *const ops[] = {"matmul n100k72b90", "matmul_dx n72k64b96", "matmul_dw n96k64b72"};
  for (int d = 0; d < TEST_COUNT(dtypes); d++)
    for (int k = 0; k < TEST_COUNT(knobs); k++)
      for (int o = 0; o < TEST_COUNT(ops); o++) {
        bs_error err = BS_ERROR_INIT;
        bs_oplog_hazards found;
        char op[64];
        made m;
        if (o > 0 && d == 2) continue; /* no gradients of f8 */
        snprintf(op, sizeof op, "%s:%s", ops[o], dtypes[d]);
        make(TWO, op, knobs[k], CLEAN, &m);
        ck_assert_msg(bs_oplog_hazards_find(&m.log, &m.plan, 1, &found, &err) == BS_OK, "%s", err.message);
        ck_assert_msg(found.logged.total == 0, "%s %s: %s", op, knobs[k], found.first);
        ck_assert_msg(found.drawn.total == 0, "%s %s: %s", op, knobs[k], found.first_drawn);
        ck_assert_uint_eq(wrong_outputs(&m.log, &m.plan), 0);
        drop(&m);
      }
}
END_TEST

/* Loads run three steps ahead into two slots. */
START_TEST(h3_needs_for_one_stage_more_than_slots) {
  made m;
  make(TWO, "matmul n64k128b64:bf16", "tm=32;tn=32;tk=16;stages=3", SLOTS, &m);
  EXPECT(&m.log, 3, "H3", "pe0 job 6 (load A)", "pe0 job 2 (product)", "scratch:0+1024");
  ck_assert_uint_gt(hazards_of(&m.log).count[SIM_WRITE_WHILE_READ], 8);
  ck_assert_uint_gt(wrong_outputs(&m.log, &m.plan), 1000);
  drop(&m);
}
END_TEST

START_TEST(h2_a_load_that_skips_a_slot) {
  made m;
  make(TWO, "matmul n32k128b32:bf16", "tm=32;tn=32;tk=16;stages=2", SKIPS, &m);
  EXPECT(&m.log, 2, "H2", "pe0 job 11 (product)", "scratch:1024+1024", "job 3 (load A)",
         "a need of pe0 job 9 (load A)");
  ck_assert_uint_gt(wrong_outputs(&m.log, &m.plan), 1000);
  drop(&m);
}
END_TEST

START_TEST(h1_an_epilogue_that_reads_its_sums_one_job_early) {
  made m;
  make(TWO, "matmul n32k16b32:f32", "tm=32;tn=32;tk=16;stages=2", EARLY, &m);
  EXPECT(&m.log, 1, "H1", "pe0 job 3 (epilogue)", "pe0 job 2 (product)", "scratch:8192+4096");
  ck_assert_uint_eq(wrong_outputs(&m.log, &m.plan), 32 * 32);
  drop(&m);
}
END_TEST

START_TEST(h4_a_store_buffer_inside_a_slot_of_a) {
  made m;
  make(TWO, "matmul n128k128b64:bf16", "tm=32;tn=32;tk=64;stages=2", SHARES, &m);
  EXPECT(&m.log, 4, "H4", "(epilogue)", "(load A)", "scratch:0+4096", "(product)");
  ck_assert_uint_gt(wrong_outputs(&m.log, &m.plan), 0);
  drop(&m);
}
END_TEST

/* The depth of 128 in two halves: lane 1 has the second one of the same tile, and stores it over lane 0's. */
START_TEST(h5_a_split_without_its_barrier) {
  static const char knobs[] = "tm=32;tn=32;tk=32;stages=2";
  bs_error err = BS_ERROR_INIT;
  bs_oplog_plan whole;
  made m;
  make(TWO, "matmul n64k64b32:f32", knobs, CLEAN, &m);
  ck_assert_uint_eq(hazards_of(&m.log).total, 0);
  snprintf(m.log.op, sizeof m.log.op, "matmul n32k128b32:f32");
  ck_assert_int_eq(bs_oplog_plan_open(&m.log, &m.device, &whole, &err), BS_OK);
  for (uint64_t i = 0; i < m.log.n; i++) {
    sim_logged *j = &m.log.jobs[i];
    if (j->lane == 1 && j->what == SIM_LOAD_A) j->reads[0].start += 2 * 4096;
    if (j->lane == 1 && j->what == SIM_STORE) j->writes.start = 0;
  }
  EXPECT(&m.log, 5, "H5", "pe0 job 7 (store)", "pe1 job 7 (store)", "Y:0+4096");
  ck_assert_uint_eq(wrong_outputs(&m.log, &whole), 32 * 32);
  bs_oplog_plan_close(&whole);
  drop(&m);
}
END_TEST

/* A store is over before the next tile leaves, unless products are faster or the memory is slower. */
START_TEST(what_one_machine_hides_by_luck_is_found_on_drawn_ones) {
  bs_error err = BS_ERROR_INIT;
  bs_oplog_hazards found;
  made m;
  make(DEVICE("2", "1e11", "200e-9"), "matmul n64k16b128:bf16", "tm=32;tn=32;tk=16;stages=2", NO_STORE, &m);
  ck_assert_msg(bs_oplog_hazards_find(&m.log, &m.plan, 1, &found, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(found.logged.total == 0, "%s", found.first);
  ck_assert_uint_gt(found.drawn.count[SIM_WRITE_WHILE_READ], 0);
  ck_assert_msg(
      strstr(found.first_drawn, "(epilogue)") != NULL && strstr(found.first_drawn, "(store)") != NULL, "%s",
      found.first_drawn);
  drop(&m);
}
END_TEST

START_TEST(times_on_the_same_device_are_equal_to_the_ps) {
  static const char *const knobs[] = {"tm=32;tn=32;tk=16;stages=2;group=2",
                                      "tm=32;tn=16;tk=8;stages=3;accumulators=2;layout=rows"};
  for (int k = 0; k < TEST_COUNT(knobs); k++) {
    bs_error err = BS_ERROR_INIT;
    sim_oplog again, faster;
    sim_device other;
    bs_oplog_plan plan;
    uint64_t job;
    made m;
    make(TWO, "matmul n100k72b90:bf16", knobs[k], CLEAN, &m);
    ck_assert_msg(sim_retime(&m.log, &m.plan.program, &m.plan.layout, &again, &err) == BS_OK, "%s",
                  err.message);
    ck_assert(sim_retime_equal(&m.log, &again, &job));
    ck_assert_int_eq(memcmp(m.log.jobs, again.jobs, m.log.n * sizeof *again.jobs), 0);
    ck_assert_int_eq(sim_device_read(DEVICE("3", "2e11", "40e-9"), &other, &err), BS_OK);
    ck_assert_int_eq(bs_oplog_plan_open(&m.log, &other, &plan, &err), BS_OK);
    ck_assert_msg(sim_retime(&m.log, &plan.program, &plan.layout, &faster, &err) == BS_OK, "%s", err.message);
    ck_assert(!sim_retime_equal(&m.log, &faster, &job));
    ck_assert_uint_lt(faster.jobs[faster.n - 1].end, m.log.jobs[m.log.n - 1].end);
    ck_assert_uint_eq(faster.n, m.log.n);
    sim_oplog_free(&faster);
    bs_oplog_plan_close(&plan);
    ck_assert_int_eq(sim_device_read(DEVICE("1", "2e11", "40e-9"), &other, &err), BS_OK);
    ck_assert_int_eq(bs_oplog_plan_open(&m.log, &other, &plan, &err), BS_OK);
    ck_assert_int_eq(sim_retime(&m.log, &plan.program, &plan.layout, &faster, &err), BS_CONFIG);
    ck_assert_str_eq(err.id, "BS-RETIME-LANES");
    sim_oplog_free(&faster);
    bs_oplog_plan_close(&plan);
    sim_oplog_free(&again);
    drop(&m);
  }
}
END_TEST

START_TEST(a_replay_is_compared_with_ref) {
  static const char *const ops[] = {"matmul n48k72b40:f32", "matmul n48k72b40:f8e4m3",
                                    "matmul_dx n72k64b96:bf16", "matmul_dw n96k64b72:bf16"};
  bs_error err = BS_ERROR_INIT;
  bs_context *context = NULL;
  ck_assert_int_eq(bs_context_open(NULL, &context, &err), BS_OK);
  for (int o = 0; o < TEST_COUNT(ops); o++) {
    bs_oplog_replayed r;
    made m;
    make(TWO, ops[o], "tm=32;tn=32;tk=16;stages=2", CLEAN, &m);
    ck_assert_msg(bs_oplog_replay(context, &m.log, &m.plan, 3, &r, &err) == BS_OK, "%s", err.message);
    ck_assert_msg(r.untiled == 0 && r.ref == 0, "%s: %u %u", ops[o], (unsigned)r.untiled, (unsigned)r.ref);
    ck_assert_msg(r.error > 0 && r.error <= r.limit * r.predicted, "%s: %g, predicted %g", ops[o], r.error,
                  r.predicted);
    /* A sum in another order is seen: two loads of A change places. */
    for (uint64_t i = 0; i < m.log.n; i++) {
      sim_logged *j = &m.log.jobs[i];
      if (j->what == SIM_LOAD_A && j->job < 6 && o == 0) j->reads[0].start ^= 2048;
    }
    ck_assert_int_eq(bs_oplog_replay(context, &m.log, &m.plan, 3, &r, &err), BS_OK);
    ck_assert(o > 0 || (r.untiled > 0 && r.ref > 0 && r.error > r.limit * r.predicted));
    drop(&m);
  }
  bs_context_close(context);
}
END_TEST

/* ---- maps -------------------------------------------------------------------------------------- */

static const char *const map_ops[] = {
    "map n1000b3:bf16", "copy n1000b3:bf16",      "convert n1000b3:bf16",    "activate n1000b3:f8e4m3",
    "softmax n60b50",   "normalize n60b50:bf16",  "reduce n60b50:bf16",      "quantize_groups n1000b3",
    "map n7:f32",       "sgd_update n100b30:f32", "adamw_update n100b30:f32"};
enum { MAPS = TEST_COUNT(map_ops) };

static bs_oplog_replayed replayed(bs_context *context, const made *m) {
  bs_error err = BS_ERROR_INIT;
  bs_oplog_replayed r;
  ck_assert_msg(bs_oplog_replay(context, &m->log, &m->plan, 3, &r, &err) == BS_OK, "%s: %s: %s", m->log.op,
                err.id, err.message);
  return r;
}

/* The bits of tiles are those of one run, of ref; times on the same device are equal; no hazard on any. */
static void own_times(made *m) {
  bs_error err = BS_ERROR_INIT;
  bs_oplog_hazards found;
  sim_oplog again;
  uint64_t job;
  ck_assert_uint_eq(m->log.n, sim_program_jobs(&m->plan.program));
  ck_assert_msg(bs_oplog_hazards_find(&m->log, &m->plan, 1, &found, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(found.logged.total == 0, "%s: %s", m->log.op, found.first);
  ck_assert_msg(found.drawn.total == 0, "%s: %s", m->log.op, found.first_drawn);
  ck_assert_msg(sim_retime(&m->log, &m->plan.program, &m->plan.layout, &again, &err) == BS_OK, "%s",
                err.message);
  ck_assert_msg(sim_retime_equal(&m->log, &again, &job), "%s: job %u", m->log.op, (unsigned)job);
  sim_oplog_free(&again);
}

START_TEST(maps_have_right_bits_and_their_own_times) {
  static const char *const knobs[] = {"tm=300;stages=1", "tm=300;stages=3", "tm=120;stages=2"};
  bs_error err = BS_ERROR_INIT;
  bs_context *context = NULL;
  ck_assert_int_eq(bs_context_open(NULL, &context, &err), BS_OK);
  for (int i = 0; i < MAPS * TEST_COUNT(knobs); i++) {
    made m;
    make(TWO, map_ops[i / TEST_COUNT(knobs)], knobs[i % TEST_COUNT(knobs)], CLEAN, &m);
    own_times(&m);
    const bs_oplog_replayed r = replayed(context, &m);
    ck_assert_msg(r.untiled == 0 && r.ref == 0 && r.values > 0, "%s: %u %u of %u", m.log.op,
                  (unsigned)r.untiled, (unsigned)r.ref, (unsigned)r.values);
    drop(&m);
  }
  bs_context_close(context);
}
END_TEST

/* The order of sums is the online one, so bits are those of a loop with the same blocks; the error is that of
 * the gates. */
START_TEST(attention_has_the_bits_of_its_loop_and_its_own_times) {
  static const char *const ops[] = {
      "attention b1h2s70t90d32e16:f32:causal", "attention b2h4g2s40d32:bf16",
      "attention b1h1s50t90d16:f8e4m3:causal_br:w20",
      "attention b1h2s90t50d32:bf16:causal_br"}; /* the first queries of the last see no key */
  static const char *const knobs[] = {"tm=32;tn=32;stages=1", "tm=32;tn=16;stages=3;ahead=2",
                                      "tm=16;tn=32;stages=2;ahead=1;accumulators=2"};
  for (int i = 0; i < TEST_COUNT(ops) * TEST_COUNT(knobs); i++) {
    made m;
    make(TWO, ops[i / TEST_COUNT(knobs)], knobs[i % TEST_COUNT(knobs)], CLEAN, &m);
    own_times(&m);
    const bs_oplog_replayed r = replayed(NULL, &m);
    ck_assert_msg(r.untiled == 0 && r.checks == (BS_REPLAYED_UNTILED | BS_REPLAYED_ERROR), "%s: %u of %u",
                  m.log.op, (unsigned)r.untiled, (unsigned)r.values);
    ck_assert_msg(r.error > 0 && r.error <= r.limit * r.predicted, "%s: %g, predicted %g", m.log.op, r.error,
                  r.predicted);
    drop(&m);
  }
}
END_TEST

/* Maps in tiles of 256 elements, of which lane pe0 has every second one; attention in blocks of 32 keys. */
#define ATTENTION "attention b1h2s64t256d32:f32", "tm=32;tn=32;stages=2"
static const struct {
  const char *op, *knobs;
  enum bug bug;
  uint32_t kind;
  const char *words[5];
} bugs[] = {
    /* the vector unit is slower than the store */
    {"softmax n50b160:f8e4m3",
     "tm=4000;stages=2",
     EARLY,
     1,
     {"H1", "pe0 job 2 (store)", "pe0 job 1 (map)", "scratch:8000+4000", NULL}},
    {"map n8192:f32", "tm=256;stages=2", SKIPS, 2, {"H2", "(map)", "(load)", "a need of", NULL}},
    {"map n8192:f32", "tm=256;stages=3", SLOTS, 3, {"H3", "(load)", "(map)", "scratch:", NULL}},
    {"map n8192:f32", "tm=256;stages=2", SHARES, 4, {"H4", "(map)", "(load)", "scratch:", NULL}},
    {ATTENTION, EARLY, 1, {"H1", "pe0 job 4 (exp)", "pe0 job 3 (scores)", "scratch:24576+4096", NULL}},
    {ATTENTION,
     SKIPS,
     2,
     {"H2", "pe0 job 13 (scores)", "pe0 job 1 (load K)", "a need of pe0 job 11 (load K)", NULL}},
    {"attention b1h2s64t256d32:f32", "tm=32;tn=32;stages=3", SLOTS, 3, {"H3", "(load", "scratch:", NULL}},
    {ATTENTION, SHARES, 4, {"H4", "(values)", "(load Q)", "scratch:", NULL}}};

START_TEST(each_hazard_is_found_and_seen_in_the_bits) {
  bs_error err = BS_ERROR_INIT;
  bs_context *context = NULL;
  ck_assert_int_eq(bs_context_open(NULL, &context, &err), BS_OK);
  for (int i = 0; i < TEST_COUNT(bugs); i++) {
    made m;
    make(TWO, bugs[i].op, bugs[i].knobs, bugs[i].bug, &m);
    expect(&m.log, bugs[i].kind, bugs[i].words);
    ck_assert_msg(replayed(context, &m).untiled > 0, "bug %d", i);
    drop(&m);
  }
  bs_context_close(context);
}
END_TEST

/* Lane pe1 stores over the first tile of pe0: one tile comes twice, one never. */
START_TEST(h5_a_store_over_another_lanes_tile) {
  static const struct {
    const char *op, *knobs, *place;
    uint64_t start, wrong;
  } rows[] = {{"map n8192:f32", "tm=256;stages=2", "Y0:0+1024", 1024, 512},
              {ATTENTION, "O:0+4096", 4096, 2048}};
  bs_error err = BS_ERROR_INIT;
  bs_context *context = NULL;
  ck_assert_int_eq(bs_context_open(NULL, &context, &err), BS_OK);
  for (int r = 0; r < TEST_COUNT(rows); r++) {
    made m;
    make(TWO, rows[r].op, rows[r].knobs, CLEAN, &m);
    for (uint64_t i = 0; i < m.log.n; i++) {
      sim_logged *j = &m.log.jobs[i];
      if (j->what == SIM_STORE && j->writes.start == rows[r].start) j->writes.start = 0;
    }
    EXPECT(&m.log, 5, "H5", "pe0 job", "pe1 job", "(store)", rows[r].place);
    ck_assert_uint_eq(replayed(context, &m).untiled, rows[r].wrong);
    drop(&m);
  }
  bs_context_close(context);
}
END_TEST

/* A store of one output over another one's bytes is none: they are two places. */
START_TEST(outputs_of_a_map_are_places_apart) {
  made m;
  make(TWO, "adamw_update n512:f32", "tm=256;stages=2", CLEAN, &m);
  ck_assert_uint_eq(hazards_of(&m.log).total, 0);
  for (uint64_t i = 0; i < m.log.n; i++)
    if (m.log.jobs[i].what == SIM_STORE) m.log.jobs[i].writes.space = SIM_SPACE_OUTPUTS;
  ck_assert_uint_gt(hazards_of(&m.log).count[SIM_WRITES_UNORDERED], 0);
  drop(&m);
}
END_TEST

START_TEST(what_has_no_log_is_refused) {
  static const char *const rows[][2] = {{"send n1000", "tm=64;stages=2"},
                                        {"matmul n64k64b64:f32", "tm=32;tn=32;tk=16;stages=2;split=2"}};
  bs_error err = BS_ERROR_INIT;
  for (int i = 0; i < TEST_COUNT(rows); i++) {
    sim_device device;
    bs_oplog_plan plan;
    sim_oplog log = {.op = ""};
    snprintf(log.op, sizeof log.op, "%s", rows[i][0]);
    snprintf(log.knobs, sizeof log.knobs, "%s", rows[i][1]);
    ck_assert_int_eq(sim_device_read(TWO, &device, &err), BS_OK);
    ck_assert_int_eq(bs_oplog_plan_open(&log, &device, &plan, &err), BS_UNSUPPORTED);
    ck_assert_str_eq(err.id, "BS-INSIDE-OP");
    bs_oplog_plan_close(&plan);
  }
}
END_TEST

/* ---- text -------------------------------------------------------------------------------------- */

static int32_t read_text(const char *text, sim_oplog *out, bs_error *err) {
  char path[] = "/tmp/bs-oplog-XXXXXX";
  const int fd = mkstemp(path);
  ck_assert_int_ge(fd, 0);
  ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
  close(fd);
  const int32_t rc = sim_oplog_read(path, out, err);
  unlink(path);
  return rc;
}

START_TEST(a_log_comes_back_from_its_text) {
  char path[] = "/tmp/bs-oplog-XXXXXX";
  bs_error err = BS_ERROR_INIT;
  sim_oplog again;
  made m;
  make(TWO, "matmul n100k72b90:bf16", "tm=32;tn=32;tk=16;stages=2;layout=rows", CLEAN, &m);
  close(mkstemp(path));
  ck_assert_msg(sim_oplog_write(&m.log, path, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(sim_oplog_read(path, &again, &err) == BS_OK, "%s: %s", err.where, err.message);
  unlink(path);
  ck_assert_str_eq(again.op, m.log.op);
  ck_assert_str_eq(again.knobs, m.log.knobs);
  ck_assert_str_eq(again.device, "two");
  ck_assert_uint_eq(again.hash, m.device.hash);
  ck_assert_uint_eq(again.n, m.log.n);
  for (uint64_t i = 0; i < again.n; i++) {
    ck_assert_str_eq(again.lanes[again.jobs[i].lane], m.log.lanes[m.log.jobs[i].lane]);
    again.jobs[i].lane = m.log.jobs[i].lane;
    ck_assert_int_eq(memcmp(&again.jobs[i], &m.log.jobs[i], sizeof again.jobs[i]), 0);
  }
  sim_oplog_free(&again);
  drop(&m);
}
END_TEST

#define HEAD "#oplog 1\top matmul n32k16b32:f32\tknobs tm=32\tdevice two 0123456789abcdef\tunit ps\n#begin\n"
#define LINE(fields) HEAD fields "\n"

START_TEST(what_is_no_log_is_refused_with_its_line) {
  static const struct {
    const char *text, *id, *where;
  } rows[] = {
      {"", "BS-OPLOG-HEAD", ":0"},
      {"#oplog 2\top x\tknobs y\tdevice z 0123456789abcdef\tunit ps\n", "BS-OPLOG-HEAD", ":1"},
      {"#oplog 1\top x\tknobs y\tdevice z 0123\tunit ps\n", "BS-OPLOG-HEAD", ":1"},
      {HEAD "1\t2", "BS-OPLOG-LINE", ":3"},
      {LINE("1\t2\tpe0\t0\tload A\tA:0+4\tscratch:0+4"), "BS-OPLOG-LINE", ":3"},
      {LINE("1\t2\tpe0\t0\tload A\tA:0+4\tscratch:0+4\t-\t-"), "BS-OPLOG-LINE", ":3"},
      {LINE("-1\t2\tpe0\t0\tload A\tA:0+4\tscratch:0+4\t-"), "BS-OPLOG-LINE", ":3"},
      {LINE("1\t18446744073709551615\tpe0\t0\tload A\tA:0+4\tscratch:0+4\t-"), "BS-OPLOG-LINE", ":3"},
      {LINE("1\t2\t\t0\tload A\tA:0+4\tscratch:0+4\t-"), "BS-OPLOG-LINE", ":3"},
      {LINE("1\t2\tpe0\tx\tload A\tA:0+4\tscratch:0+4\t-"), "BS-OPLOG-LINE", ":3"},
      {LINE("1\t2\tpe0\t0\tload Z\tA:0+4\tscratch:0+4\t-"), "BS-OPLOG-WHAT", ":3"},
      {LINE("1\t2\tpe0\t0\tload A\t0+4\tscratch:0+4\t-"), "BS-OPLOG-SPACE", ":3"},
      {LINE("1\t2\tpe0\t0\tload A\tY:0+4\tscratch:0+4\t-"), "BS-OPLOG-SPACE", ":3"},
      {LINE("1\t2\tpe0\t0\tload A\tA:0+4\tB:0+4\t-"), "BS-OPLOG-SPACE", ":3"},
      {LINE("1\t2\tpe0\t0\tload A\tA:0+0\tscratch:0+4\t-"), "BS-OPLOG-RANGE", ":3"},
      {LINE("1\t2\tpe0\t0\tload A\tA:1099511627776+4\tscratch:0+4\t-"), "BS-OPLOG-RANGE", ":3"},
      {LINE("1\t2\tpe0\t0\tload A\tA:0+8*2/4\tscratch:0+4\t-"), "BS-OPLOG-RANGE", ":3"},
      {LINE("1\t2\tpe0\t0\tload A\tA:0+8*65536/1099511627\tscratch:0+4\t-"), "BS-OPLOG-RANGE", ":3"},
      {LINE("1\t2\tpe0\t0\tload A\tA:0+4\tscratch:4294967295+4\t-"), "BS-OPLOG-RANGE", ":3"},
      {LINE("1\t2\tpe0\t0\tload A\tA:0+4,A:0+4,A:0+4,A:0+4\tscratch:0+4\t-"), "BS-OPLOG-RANGE", ":3"},
      {LINE("1\t2\tpe0\t0\tload A\tA:0+4\tscratch:0+4,scratch:0+4\t-"), "BS-OPLOG-RANGE", ":3"},
      {LINE("1\t2\tpe0\t0\tload A\tA:0+4\tscratch:0+4\t0"), "BS-OPLOG-NEEDS", ":3"},
      {LINE("1\t2\tpe0\t20\tload A\tA:0+4\tscratch:0+4\t0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16"),
       "BS-OPLOG-NEEDS", ":3"},
      {LINE("3\t2\tpe0\t0\tload A\tA:0+4\tscratch:0+4\t-"), "BS-OPLOG-ORDER", ":3"},
      {LINE("1\t2\tpe0\t0\tload A\tA:0+4\tscratch:0+4\t-\n1\t1\tpe0\t1\tload A\tA:0+4\tscratch:0+4\t-"),
       "BS-OPLOG-ORDER", ":4"},
      {LINE("1\t2\tpe0\t1\tload A\tA:0+4\tscratch:0+4\t-"), "BS-OPLOG-JOBS", ""},
      {LINE("1\t2\tpe0\t0\tload A\tA:0+4\tscratch:0+4\t-\n1\t2\tpe0\t0\tload A\tA:0+4\tscratch:0+4\t-"),
       "BS-OPLOG-JOBS", ""},
  };
  for (int i = 0; i < TEST_COUNT(rows); i++) {
    bs_error err = BS_ERROR_INIT;
    sim_oplog log;
    ck_assert_msg(read_text(rows[i].text, &log, &err) == BS_INPUT, "row %d", i);
    ck_assert_msg(strcmp(err.id, rows[i].id) == 0, "row %d: %s %s", i, err.id, err.message);
    const size_t n = strlen(err.where), of = strlen(rows[i].where);
    ck_assert_msg(n >= of && strcmp(err.where + n - of, rows[i].where) == 0, "row %d: %s", i, err.where);
    sim_oplog_free(&log);
  }
}
END_TEST

/* A log of other sizes than its op has must not be run. */
START_TEST(a_job_that_cannot_be_run_is_refused) {
  made m;
  make(TWO, "matmul n32k32b32:f32", "tm=32;tn=32;tk=16;stages=2", CLEAN, &m);
  const sim_logged load = m.log.jobs[0];
  for (int i = 0; i < 3; i++) {
    bs_error err = BS_ERROR_INIT;
    float a[32 * 32] = {0}, y[32 * 32];
    m.log.jobs[0] = load;
    if (i == 0) m.log.jobs[0].reads[0].start = 1 << 20;
    if (i == 1) m.log.jobs[0].reads[0].bytes = 4;
    if (i == 2) m.log.jobs[0].n_writes = 0;
    ck_assert_int_eq(bs_oplog_data(&m.log, &m.plan, a, a, y, &err), BS_INPUT);
    ck_assert_str_eq(err.id, "BS-REPLAY-JOB");
  }
  drop(&m);
}
END_TEST

int main(void) {
  const test_case tests[] = {{clean_programs_have_no_hazard_and_right_bits},
                             {h1_an_epilogue_that_reads_its_sums_one_job_early},
                             {h2_a_load_that_skips_a_slot},
                             {h3_needs_for_one_stage_more_than_slots},
                             {h4_a_store_buffer_inside_a_slot_of_a},
                             {h5_a_split_without_its_barrier},
                             {what_one_machine_hides_by_luck_is_found_on_drawn_ones},
                             {times_on_the_same_device_are_equal_to_the_ps},
                             {a_replay_is_compared_with_ref},
                             {maps_have_right_bits_and_their_own_times},
                             {each_hazard_is_found_and_seen_in_the_bits},
                             {attention_has_the_bits_of_its_loop_and_its_own_times},
                             {h5_a_store_over_another_lanes_tile},
                             {outputs_of_a_map_are_places_apart},
                             {what_has_no_log_is_refused},
                             {a_log_comes_back_from_its_text},
                             {what_is_no_log_is_refused_with_its_line},
                             {a_job_that_cannot_be_run_is_refused},
                             {0}};
  return run_tests("sim_oplog", tests, (test_setup){0});
}
