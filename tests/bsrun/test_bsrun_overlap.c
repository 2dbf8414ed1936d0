/* SPDX-License-Identifier: MIT
 * test_bsrun_overlap.c - overlap=auto of ranks that are processes: rank 0's number of chunks, from the stored
 * constants or from measured ones, is everybody's; and what a rank that dies meanwhile ends in. */
#include "tests/bsrun/constants_file.h"
#include "tests/run_tests.h"
#include "tests/spawn.h"

/* A machine of 20 MFLOP/s and a wire of 1 us a byte, `latency` a call, on the communicator of threads and on
 * that of processes. */
static void write_constants(double latency) {
  static const char *const comms[] = {"threads", "shm"};
  char path[600];
  bs_error err = BS_ERROR_INIT;
  json_t *constants = round_constants("cpu"), *exchanges = json_object_get(constants, "exchange");
  json_array_append_new(exchanges, json_deep_copy(json_array_get(exchanges, 0)));
  for (size_t c = 0; c < 2; c++) {
    json_t *exchange = json_array_get(exchanges, c);
    json_object_set_new(exchange, "comm", json_string(comms[c]));
    for (int i = 0; i < BS_EXCHANGES; i++)
      json_object_set_new(exchange, bs_exchange_keys[i], json_real(latency + bs_exchange_bytes[i] * 1e-6));
  }
  json_t *f32 = json_array_get(json_object_get(constants, "arithmetic"), 1);
  json_object_set_new(f32, "flops_core", json_real(2e7));
  json_object_set_new(f32, "flops_all", json_real(4e7));
  snprintf(path, sizeof path, "%s/machine.json", dir);
  ck_assert_int_eq(bs_constants_store(path, constants, &err), BS_OK);
  json_decref(constants);
}

/* The chunks of overlap=auto, as the record has them. */
static int chosen(const char *launch, const char *cache, const char *phase) {
  ran r = bsrun(dir, "--launch", launch, "--method", "row_parallel", "-P", "2", "--threads", "1", "--phase",
                phase, "--cache", cache, "--tune-cache", "off", SMALL, "--set", "model.K=384", "--set",
                "model.dtype=f32", "--set", "phase.dense_arm=false", "--set", "method.overlap=auto", NULL);
  must_be(&r, 0);
  char *text = read_text(run_folder(&r, dir, 0), "metrics.jsonl");
  json_t *record = json_loads(text, 0, NULL);
  ck_assert(json_is_true(json_object_get(record, "claims_match_counts")));
  const int chunks = (int)json_integer_value(json_object_get(record, "overlap_chunks"));
  json_decref(record);
  free(text);
  ran_free(&r);
  return chunks;
}

/* By its own constants the method divides nothing of this size; on the slow machine all divide it alike, and
 * where a call takes longer into fewer. */
START_TEST(same_as_threads) {
  static const double latency[] = {1e-6, 2e-3};
  int least = 9;
  for (size_t i = 0; i < 2; i++) {
    write_constants(latency[i]);
    const int threads = chosen("threads", "machine.json", "1");
    ck_assert_int_ge(threads, 2);
    ck_assert_int_lt(threads, least);
    ck_assert_int_eq(chosen("processes", "machine.json", i == 0 ? "1" : "0"), threads);
    least = threads;
  }
}
END_TEST

/* Nothing is stored: rank 0 measures, its all-reduces with the others. */
START_TEST(measured) {
  ck_assert_int_ge(chosen("processes", "off", "1"), 1);
}
END_TEST

/* A rank is gone in the all-reduces that rank 0 times for the choice. */
START_TEST(rank_dies) {
  ran r =
      bsrun(dir, "--launch", "processes", "--method", "row_parallel", "-P", "2", "--threads", "1", "--phase",
            "0", "--cache", "off", "--tune-cache", "off", "--plugin", "fault", "--comm", "fault:shm",
            "--timeout", "60", "--set", "plugins.fault.plan=rank=1,op=all_reduce,seq=20,do=kill", SMALL,
            "--set", "model.dtype=f32", "--set", "method.overlap=auto", NULL);
  must_be(&r, 7);
  ck_assert_msg(strstr(r.err, "rank 1") != NULL && strstr(r.err, "lab.machine") != NULL, "%s", r.err);
  ran_free(&r);
}
END_TEST

int main(void) {
  const test_case tests[] = {{same_as_threads}, {measured}, {rank_dies}, {0}};
  return run_tests("bsrun_overlap", tests, (test_setup){dir_make, dir_remove, 120});
}
