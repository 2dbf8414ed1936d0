/* SPDX-License-Identifier: MIT
 * test_cuda_overlap.c - collectives that are started have a stream of their own: what a rank gives its device
 * meanwhile does not wait for them, what it gives behind the wait does, and calls of one communicator on
 * several streams keep their order. A stream is held by a function of the test in the stand-in's worker. */
#include <cuda.h>
#include <stdatomic.h>
#include <time.h>

#include "tests/cuda/comm_case.h"
#include "tests/run_tests.h"

enum { N = 1000 };
static atomic_int released, gave_up;
static const char *const comms[] = {"devlocal:threads", "nccl:threads"};

static void nap(long ms) {
  const struct timespec t = {.tv_nsec = ms * 1000000};
  (void)nanosleep(&t, NULL);
}

/* Until it is released, and a little longer: who does not wait for it is ahead. */
static void hold(void *arg, int lost) {
  (void)arg, (void)lost;
  for (int i = 0; i < 5000 && !atomic_load(&released); i++) nap(1);
  if (!atomic_load(&released)) atomic_store(&gave_up, 1);
  nap(20);
}

static void hold_stream(const bs_rank *rank, bs_stream *stream) {
  CUresult (*queue)(const char *function, CUstream stream, void (*call)(void *arg, int lost), void *arg);
  void *at = standin_symbol("si_queue");
  memcpy(&queue, &at, sizeof queue);
  CUstream native = rank->world->backend->native_handle(rank->device, BS_NATIVE_STREAM, stream);
  ck_assert_int_eq(queue("the test's hold", native, hold, NULL), CUDA_SUCCESS);
}

typedef struct sums {
  bs_tensor in, out;
  bs_coll_plan *plan;
} sums;
#define SUMS \
  { {.struct_size = sizeof(bs_tensor)}, {.struct_size = sizeof(bs_tensor)}, NULL }

/* in = me + seed, summed into out. */
static int32_t sums_make(bs_rank *rank, const char *site, float seed, sums *s, bs_error *err) {
  static float values[CC_RANKS][N];
  const bs_rank_api *api = bs_rank_get_api();
  const uint32_t me = api->rank(rank);
  const bs_collective what = {.struct_size = sizeof what,
                              .kind = BS_COLL_ALL_REDUCE,
                              .dtype_in = BS_F32,
                              .rows = 1,
                              .count = N,
                              .site = site};
  for (int i = 0; i < N; i++) values[me][i] = (float)me + seed;
  int32_t rc = cc_tensor(rank, BS_F32, 1, N, 0, &s->in, err);
  if (rc == BS_OK) rc = cc_tensor(rank, BS_F32, 1, N, 0, &s->out, err);
  if (rc == BS_OK) rc = cc_copy(rank, s->in.data, values[me], sizeof values[me], BS_COPY_HOST_TO_DEVICE, err);
  return rc == BS_OK ? api->collective_prepare(rank, &what, &s->plan, err) : rc;
}

static int32_t sums_check(bs_rank *rank, const sums *s, float seed, bs_error *err) {
  float got[N];
  const int32_t rc = cc_copy(rank, got, s->out.data, sizeof got, BS_COPY_DEVICE_TO_HOST, err);
  for (int i = 0; rc == BS_OK && i < N; i++)
    ck_assert_msg(got[i] == 1.0f + 2.0f * seed, "element %d is %g", i, (double)got[i]);
  return rc;
}

static void sums_free(bs_rank *rank, sums *s) {
  const bs_rank_api *api = bs_rank_get_api();
  api->collective_release(s->plan);
  api->tensor_free(rank, &s->in);
  api->tensor_free(rank, &s->out);
}

static void with_two(const char *comm, int32_t (*rank_main)(bs_rank *rank, void *arg, bs_error *err)) {
  setenv("BS_CUDA_NCCL", NCCL_STANDIN, 1);
  const over o = over_open(NULL, comm[0] == 'n' ? "devices=2" : "devices=1");
  cc_world w = cc_open(o, comm, 2, 60.0);
  bs_error err = BS_ERROR_INIT;
  const int32_t rc = bs_world_run(w.world, rank_main, NULL, &err);
  ck_assert_msg(rc == BS_OK, "%s: %s", err.id, err.message);
  ck_assert_ptr_nonnull(strstr(bs_world_algorithms(w.world), "overlap@cuda/stream"));
  cc_close(&w);
  nothing_lives();
  over_close(&o);
}

/* Rank 1's device is busy before its part is there. Rank 0 has started its own, and computes on. */
static int32_t beside_main(bs_rank *rank, void *arg, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  const uint32_t me = api->rank(rank);
  char word[64] = "";
  bs_tensor other = {.struct_size = sizeof other};
  sums s = SUMS;
  (void)arg;
  int32_t rc = sums_make(rank, "beside", 3.0f, &s, err);
  if (rc == BS_OK) rc = cc_tensor(rank, BS_U8, 1, sizeof word, 0, &other, err);
  if (rc == BS_OK && me == 1) hold_stream(rank, NULL);
  if (rc == BS_OK) rc = api->collective_start(s.plan, &s.in, &s.out, NULL, err);
  if (rc == BS_OK) rc = bs_rank_barrier(rank, "all of it is queued", err);
  if (rc == BS_OK && me == 0) rc = cc_copy(rank, other.data, word, sizeof word, BS_COPY_HOST_TO_DEVICE, err);
  if (rc == BS_OK && me == 0)
    ck_assert_msg(!atomic_load(&gave_up), "rank 0's own stream waits for rank 1's part");
  if (rc == BS_OK) rc = api->collective_wait(s.plan, err);
  if (me == 0) atomic_store(&released, 1);
  if (rc == BS_OK) rc = sums_check(rank, &s, 3.0f, err);
  sums_free(rank, &s);
  api->tensor_free(rank, &other);
  return rc;
}
START_TEST(the_device_goes_on) {
  with_two(comms[_i], beside_main);
}
END_TEST

/* A call behind a started one, from another stream than the started one waits for on rank 1. */
static int32_t turns_main(bs_rank *rank, void *arg, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  const bs_backend *b = rank->world->backend;
  const uint32_t me = api->rank(rank);
  bs_stream *stream = NULL;
  sums first = SUMS, second = SUMS;
  (void)arg;
  int32_t rc = sums_make(rank, "first", 3.0f, &first, err);
  if (rc == BS_OK) rc = sums_make(rank, "second", 50.0f, &second, err);
  if (rc == BS_OK) rc = b->stream_create(rank->device, &stream, err);
  if (rc == BS_OK && me == 1) hold_stream(rank, stream);
  if (rc == BS_OK) rc = api->collective_start(first.plan, &first.in, &first.out, stream, err);
  if (rc == BS_OK) rc = api->collective_run(second.plan, &second.in, &second.out, NULL, err);
  if (me == 1) {
    nap(20); /* who does not wait for its turn has it now */
    atomic_store(&released, 1);
  }
  if (rc == BS_OK) rc = api->collective_wait(first.plan, err);
  if (rc == BS_OK) rc = b->stream_sync(rank->device, stream, err);
  if (rc == BS_OK) rc = sums_check(rank, &first, 3.0f, err);
  if (rc == BS_OK) rc = sums_check(rank, &second, 50.0f, err);
  sums_free(rank, &first);
  sums_free(rank, &second);
  if (stream != NULL) b->stream_destroy(rank->device, stream);
  return rc;
}
START_TEST(calls_take_turns) {
  with_two(comms[_i], turns_main);
}
END_TEST

int main(void) {
  const test_case tests[] = {{the_device_goes_on, 2}, {calls_take_turns, 2}, {0}};
  return run_tests("cuda_overlap", tests, (test_setup){.timeout = 60});
}
