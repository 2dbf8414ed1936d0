/* SPDX-License-Identifier: MIT
 * test_sim_trace.c - traces are JSON in Chrome's form, hold what the engine did, and end at their cap. */
#include "sim/trace.h"

#include <jansson.h>

#include "tests/run_tests.h"
#include "tests/sim/programs.h"

static const sim_link half_50 = {.a_wire = 500000, .beta_q32 = UINT64_C(20) << 32};

static sim_trace *trace_of_a_ring(uint32_t ranks, uint64_t cap, uint32_t last) {
  program p = {.step = program_ring, .ranks = ranks, .bytes = 1000 * ranks};
  sim_trace *t = sim_trace_new(cap, 0, last);
  ck_assert_ptr_nonnull(t);
  p.call.site = "ring \"quoted\"";
  p.at = calloc(ranks, sizeof *p.at);
  const sim_config config = {
      .ranks = ranks, .link = half_50, .resume = program_resume, .user = &p, .trace = t};
  ck_assert_int_eq(sim_engine_new(&config, &p.engine, NULL), BS_OK);
  ck_assert_int_eq(sim_run(p.engine, NULL), BS_OK);
  program_close(&p);
  return t;
}

/* Writes, reads and deletes the file. */
static json_t *events_of(const sim_trace *t, json_t **out_root) {
  char path[] = "/tmp/bs_trace_XXXXXX";
  json_error_t why;
  const int fd = mkstemp(path);
  ck_assert_int_ge(fd, 0);
  close(fd);
  ck_assert_int_eq(sim_trace_write(t, path, NULL), BS_OK);
  *out_root = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
  unlink(path);
  ck_assert_msg(*out_root != NULL, "line %d: %s", why.line, why.text);
  return json_object_get(*out_root, "traceEvents");
}

static int count(json_t *events, const char *ph) {
  size_t i;
  json_t *event;
  int n = 0;
  json_array_foreach(events, i, event) n += strcmp(json_string_value(json_object_get(event, "ph")), ph) == 0;
  return n;
}

START_TEST(each_message_has_two_slices_and_an_arrow) {
  sim_trace *t = trace_of_a_ring(4, 0, 3);
  json_t *root, *events, *event;
  size_t i;
  sim_trace_slice(t, 2, SIM_LANE_STREAM, "matmul", 1, 2500001);
  events = events_of(t, &root);
  ck_assert_int_eq(count(events, "s"), 24);
  ck_assert_int_eq(count(events, "f"), 24);
  ck_assert_int_eq(count(events, "X"), 49);
  ck_assert_int_eq(count(events, "M"), 1 + 4 + 9);
  ck_assert_uint_eq(sim_trace_events(t), 97);
  int seen = 0;
  json_array_foreach(events, i, event) {
    const char *name = json_string_value(json_object_get(event, "name"));
    if (strcmp(name, "matmul") != 0) continue;
    ck_assert_double_eq_tol(json_real_value(json_object_get(event, "ts")), 1e-6, 1e-12);
    ck_assert_double_eq_tol(json_real_value(json_object_get(event, "dur")), 2.5, 1e-12);
    ck_assert_int_eq(json_integer_value(json_object_get(event, "pid")), 2);
    seen = 1;
  }
  ck_assert_int_eq(seen, 1);
  json_decref(root);
  sim_trace_free(t);
}
END_TEST

START_TEST(a_trace_ends_at_its_cap_and_counts_the_rest) {
  sim_trace *t = trace_of_a_ring(8, 100, 7);
  json_t *root, *events = events_of(t, &root);
  ck_assert_int_eq(count(events, "X") + count(events, "s") + count(events, "f"), 100);
  ck_assert_uint_eq(sim_trace_events(t), 100);
  ck_assert_uint_eq(sim_trace_dropped(t), 4 * 112 - 100);
  ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(root, "otherData"), "dropped")),
                   4 * 112 - 100);
  json_decref(root);
  sim_trace_free(t);
  t = trace_of_a_ring(8, 0, 1); /* ranks 0 and 1 alone: 14 messages from 0 to 1 */
  ck_assert_uint_eq(sim_trace_events(t), 14 * 4);
  ck_assert_uint_eq(sim_trace_dropped(t), 0);
  sim_trace_free(t);
}
END_TEST

START_TEST(a_file_that_cannot_be_written_is_an_error) {
  sim_trace *t = sim_trace_new(0, 0, 0);
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(sim_trace_write(t, "/nowhere/at/all.json", &err), BS_IO);
  ck_assert_str_eq(err.id, "BS-SIM-TRACE");
  sim_trace_free(t);
}
END_TEST

int main(void) {
  const test_case tests[] = {{each_message_has_two_slices_and_an_arrow},
                             {a_trace_ends_at_its_cap_and_counts_the_rest},
                             {a_file_that_cannot_be_written_is_an_error},
                             {0}};
  return run_tests("sim_trace", tests, (test_setup){0});
}
