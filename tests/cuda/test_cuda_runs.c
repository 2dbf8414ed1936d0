/* SPDX-License-Identifier: MIT
 * test_cuda_runs.c - bsrun over the stand-ins: which communicator ranks on devices take, as threads and as
 * processes, what their passes spend on the host, and how runs end in which a call of NVIDIA's libraries
 * never returns. */
#include "tests/cuda/backend.h"
#include "tests/lab/lab_test.h"
#include "tests/run_tests.h"
#include "tests/spawn.h"

typedef struct job {
  const char *driver, *nccl, *lt; /* what the stand-ins are told */
  const char *launch, *comm;      /* comm NULL: none is named */
  int code;
  const char *said; /* in the record, or of the error */
} job;

static void run_job(const job *j) {
  char library[600], driver[200], nccl[200], lt[200];
  const int processes = strcmp(j->launch, "processes") == 0;
  ran r;
  snprintf(library, sizeof library, "BS_CUDA_DRIVER=%s", standin_path());
  snprintf(driver, sizeof driver, "BS_CUDA_STANDIN=%s", j->driver);
  snprintf(nccl, sizeof nccl, "BS_NCCL_STANDIN=%s%s;%s", processes ? "dir=" : "", processes ? dir : "",
           j->nccl);
  snprintf(lt, sizeof lt, "BS_CUBLASLT_STANDIN=%s", j->lt);
  const char *const env[] = {library, driver, nccl, lt, NULL};
  const char *const args[] = {"--plugin",
                              "cuda",
                              "-P",
                              "2",
                              "--method",
                              "row_parallel",
                              "--launch",
                              j->launch,
                              "--phase",
                              "0",
                              "--set",
                              "model.N=96",
                              "--set",
                              "model.K=64",
                              "--set",
                              "model.B=9",
                              "--set",
                              "plugin_trust=any",
                              "--timeout",
                              j->code == 0 ? "60" : "1.5",
                              "--run-id",
                              "a",
                              "--tune-cache",
                              "off",
                              j->comm != NULL ? "--comm" : NULL,
                              j->comm,
                              NULL};
  run_bsrun(&r, dir, env, args);
  run_expect(&r, j->code, r.err);
  if (j->code == 0) {
    size_t size = 0;
    char *record = run_read(dir, "results/raw/phase0_correctness/row_parallel/a/metrics.jsonl", &size);
    ck_assert_msg(record != NULL && strstr(record, j->said) != NULL, "%s", record != NULL ? record : r.err);
    free(record);
  } else {
    ck_assert_msg(strstr(r.err, j->said) != NULL, "%s", r.err);
  }
  ran_free(&r);
}

/* Of ranks that are processes NCCL's id goes through their shared memory. Where no communicator is named, it
 * is the one that fits the devices. */
static const job communicators[] = {
    {"devices=2", "", "", "processes", "nccl:threads", 0, "collectives@cuda/nccl 2.28.9"},
    {"devices=2", "", "", "processes", NULL, 0, "collectives@cuda/nccl 2.28.9"},
    {"devices=1", "", "", "processes", NULL, 0, "collectives@host/staged"},
    {"devices=1", "", "", "threads", NULL, 0, "collectives@cuda/devlocal"},
    {"devices=1", "", "", "threads", "threads", 0, "collectives@host/staged"},
    {"devices=2", "version=21703", "", "threads", NULL, 0, "collectives@host/staged"},
};
START_TEST(the_communicator_that_fits_is_taken) {
  run_job(&communicators[_i]);
}
END_TEST

/* What `bsrun diagnose` finds of passes on a device: collectives, waits and copies through the host, and
 * graphs that are none or are lost to another number of tokens. */
static const struct {
  const char *method, *ranks, *checks, *said[4];
} passes[] = {
    {"row_parallel",
     "2",
     "staged, waits, capture",
     {"collectives go through the host's memory", "waits for the device and",
      "the pass is never a graph of the device: ranks meet on the host in"}},
    {"dense",
     "1",
     "capture",
     {"\"findings\": []", "\"value\": \"captured\"", "\"value\": \"a forward had another shape\""}},
};
START_TEST(what_passes_spend_on_the_host) {
  char library[600];
  ran r;
  snprintf(library, sizeof library, "BS_CUDA_DRIVER=%s", standin_path());
  const char *const env[] = {library, "BS_CUDA_STANDIN=devices=1", NULL};
  const char *const args[] = {"diagnose",
                              "--plugin",
                              "cuda",
                              "--method",
                              passes[_i].method,
                              "-P",
                              passes[_i].ranks,
                              "--comm",
                              "threads",
                              "--b=8",
                              "--n=96",
                              "--k=64",
                              "--set=plugin_trust=any",
                              "--set=hardware.graph=true",
                              "--only",
                              passes[_i].checks,
                              "--seconds=0.01",
                              "--out=off",
                              "-qo",
                              "json",
                              NULL};
  run_bsrun(&r, dir, env, args);
  run_expect(&r, 0, r.err);
  for (int i = 0; passes[_i].said[i] != NULL; i++)
    ck_assert_msg(strstr(r.out, passes[_i].said[i]) != NULL, "%s: %s", passes[_i].said[i], r.out);
  ran_free(&r);
}
END_TEST

/* What never returns is missed by the other rank, or by the device's own deadline, and named. */
static const job hangs[] = {
    {"devices=2", "plan=ncclGroupEnd:1=hang", "", "processes", NULL, 8, "1.5 s passed on the device of rank"},
    {"devices=1;plan=cuLaunchKernel:30=hang", "", "", "threads", NULL, 8, "missing: rank"},
    {"devices=1;plan=cuLaunchKernel:30=hang", "", "", "processes", NULL, 8, "missing: rank"},
    {"devices=1", "", "plan=cublasLtMatmul:2=hang", "threads", "threads", 8, "missing: rank"},
};
START_TEST(calls_that_hang_end_the_run) {
  run_job(&hangs[_i]);
}
END_TEST

int main(void) {
  const test_case tests[] = {{the_communicator_that_fits_is_taken, TEST_COUNT(communicators)},
                             {what_passes_spend_on_the_host, TEST_COUNT(passes)},
                             {calls_that_hang_end_the_run, TEST_COUNT(hangs)},
                             {0}};
  return run_tests("cuda_runs", tests, (test_setup){dir_make, dir_remove, .timeout = 60, .at_once = 2});
}
