/* SPDX-License-Identifier: MIT
 * test_split_follow.c - models over ranks that are processes, over "shm": rank 0 makes the calls, and the
 * others follow. The bits are those of threads. What one rank fails with is an error of all: one that dies,
 * comes too late, opens another file, or has a wrong layer. */
#include "blockshock/graph.h"
#include "core/world/executor.h"
#include "graph/run/session.h"
#include "graph/split/method.h"
#include "tests/comm/processes.h"
#include "tests/graph/folder_case.h"

enum { WORDS = 5, PROMPT = 4, ALL = 8, RUNS = ALL - PROMPT + 2, RANKS = 2 };
static const entry no_change[] = {{0}};
static const struct {
  const entry *config, *weights;
} models[] = {{gpt2_config, gpt2_weights}, {llama_config, llama_weights}};
static const char *const methods[] = {"row_parallel", "column_parallel+row_parallel", "blockshock"};
enum { MODELS = 2, METHODS = sizeof methods / sizeof methods[0] };
static const int64_t tokens[ALL] = {3, 1, 4, 1, 3, 4, 3, 4};

static bs_graph *model;
static bs_world *world;
static bs_session *session;
static const char *method = "row_parallel";
static double timeout_s = 60;
static int64_t cache_tokens;   /* 0: as the model says */
static float (*logits)[WORDS]; /* shared: of each run of rank 0 */
static pid_t *pids;            /* shared: of each rank */

static void before(void) {
  setup();
  files_begin();
  logits = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ck_assert_ptr_ne(logits, MAP_FAILED);
  pids = (pid_t *)(void *)(logits + RUNS);
}

static void after(void) {
  munmap(logits, 4096);
  files_end();
  teardown();
}

static void write_model(int which) {
  write_config(models[which].config, no_change);
  write_weights("model.safetensors", models[which].weights, 0, 100, no_change);
}

static const bs_dim *const *dims_of(int64_t n) {
  static bs_dim dim;
  static const bs_dim *list[1] = {&dim};
  dim = (bs_dim){.struct_size = (uint32_t)sizeof dim, .name = "sequence", .size = n};
  return list;
}

/* The model's session over a new world; threads where comm is NULL. */
static int32_t open_session(const char *comm, const bs_dim *const *dims, uint32_t n_dims, bs_error *err) {
  const bs_world_options w = {.struct_size = sizeof w,
                              .world_size = RANKS,
                              .comm = comm,
                              .threads_per_rank = 1,
                              .fallback = 1,
                              .timeout_s = timeout_s};
  const int32_t rc = bs_world_create(test_context, &w, &world, err);
  const bs_session_options o = {
      .struct_size = sizeof o, .dims = dims, .n_dims = n_dims, .world = world, .method = method};
  return rc == BS_OK ? bs_session_open(test_context, model, &o, &session, err) : rc;
}

static int32_t open_context(bs_error *err) {
  const bs_context_options c = {.struct_size = sizeof c, .trust = BS_TRUST_ANY};
  return bs_context_open(&c, &test_context, err);
}

/* Everything up to the session, on each rank. */
static int32_t open_all(const char *folder, const char *comm, bs_error *err) {
  const bs_graph_options o = {.struct_size = sizeof o, .cache_tokens = cache_tokens};
  int32_t rc = open_context(err);
  if (rc == BS_OK) rc = bs_graph_open(test_context, folder, &o, &model, err);
  return rc == BS_OK ? open_session(comm, dims_of(PROMPT), 1, err) : rc;
}

static void close_all(void) {
  bs_session_close(session);
  bs_world_destroy(world);
  bs_graph_close(model);
  bs_context_close(test_context);
  session = NULL;
  world = NULL;
  model = NULL;
}

static int32_t set_tokens(const int64_t *ids, int64_t n, bs_error *err) {
  const bs_tensor in = {.struct_size = (uint32_t)sizeof in,
                        .dtype = BS_I64,
                        .rank = 2,
                        .dims = {1, n},
                        .strides = {n, 1},
                        .data = (void *)(uintptr_t)ids,
                        .bytes = 8 * (uint64_t)n};
  const int32_t rc = bs_session_bind(session, dims_of(n), 1, err);
  return rc == BS_OK ? bs_session_set(session, 0, &in, err) : rc;
}

/* The logits of the last of n tokens behind those in the cache. */
static int32_t run(const int64_t *ids, int64_t n, float *out, bs_error *err) {
  bs_tensor all = {.struct_size = (uint32_t)sizeof all};
  int32_t rc = set_tokens(ids, n, err);
  if (rc == BS_OK) rc = bs_session_run(session, err);
  if (rc == BS_OK) rc = bs_session_get(session, 1, &all, err);
  if (rc == BS_OK) memcpy(out, (const float *)all.data + (n - 1) * WORDS, WORDS * sizeof *out);
  return rc;
}

/* A prompt, tokens behind it, and one after a cut of the cache. */
static int32_t generate(float (*out)[WORDS], bs_error *err) {
  int32_t rc = run(tokens, PROMPT, out[0], err);
  for (int i = PROMPT; rc == BS_OK && i < ALL; i++) rc = run(&tokens[i], 1, out[i - PROMPT + 1], err);
  if (rc == BS_OK) rc = bs_session_cache(session, PROMPT, err);
  return rc == BS_OK ? run(&tokens[PROMPT], 1, out[RUNS - 1], err) : rc;
}

/* ---- processes ------------------------------------------------------------------------------- */

static void run_rank(uint32_t rank, int fd, int32_t (*body)(uint32_t rank, bs_error *err)) {
  outcome *out = &outcomes[rank];
  bs_error err = BS_ERROR_INIT;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  pids[rank] = getpid();
  set("BLOCKSHOCK_RANK", rank);
  set("BLOCKSHOCK_WORLD_SIZE", RANKS);
  set("BLOCKSHOCK_SHM_FD", (uint32_t)fd);
  out->rc = body(rank, &err);
  out->err = err;
  out->finished = 1;
  close_all();
}

/* killed: the rank that a signal ends; RANKS: none. */
static void run_processes(int32_t (*body)(uint32_t rank, bs_error *err), uint32_t killed) {
  pid_t started[RANKS];
  const int fd = (int)syscall(SYS_memfd_create, "test", 0u);
  ck_assert_int_ge(fd, 0);
  fflush(NULL);
  for (uint32_t r = 0; r < RANKS; ++r) {
    started[r] = fork();
    ck_assert_int_ge(started[r], 0);
    if (started[r] != 0) continue;
    run_rank(r, fd, body);
    _exit(0);
  }
  for (uint32_t r = 0; r < RANKS; ++r) {
    int status = -1;
    ck_assert_int_eq(waitpid(started[r], &status, 0), started[r]);
    ck_assert_int_eq(status, r == killed ? SIGKILL : 0);
  }
  close(fd);
}

static int32_t serve(bs_error *err) {
  return bs_session_follow(session, err);
}

static int32_t generate_there(uint32_t rank, bs_error *err) {
  bs_verify_report report = {.struct_size = (uint32_t)sizeof report};
  int32_t rc = open_all(files_folder, "shm", err);
  if (rc != BS_OK || rank > 0) return rc == BS_OK ? serve(err) : rc;
  rc = generate(logits, err);
  if (rc == BS_OK) rc = set_tokens(tokens, PROMPT, err);
  if (rc == BS_OK && bs_session_run(session, NULL) != BS_OVERFLOW) return BS_INTERNAL; /* and all go on */
  if (rc == BS_OK) rc = bs_session_cache(session, 0, err);
  if (rc == BS_OK) rc = bs_session_check(session, NULL, NULL, err);
  if (rc == BS_OK) rc = bs_session_cache(session, 0, err);
  return rc == BS_OK ? bs_session_verify(session, &report, err) : rc;
}

START_TEST(processes_have_the_bits_of_threads) {
  float want[RUNS][WORDS];
  bs_error err = BS_ERROR_INIT;
  write_model(_i % MODELS);
  method = methods[_i / MODELS];
  ck_assert_msg(open_all(files_folder, NULL, &err) == BS_OK, "%s: %s", err.id, err.message);
  ck_assert_msg(generate(want, &err) == BS_OK, "%s: %s", err.id, err.message);
  close_all();
  run_processes(generate_there, RANKS);
  for (uint32_t r = 0; r < RANKS; r++)
    ck_assert_msg(outcomes[r].rc == BS_OK, "rank %u: %s %s", r, outcomes[r].err.id, outcomes[r].err.message);
  ck_assert_mem_eq(logits, want, sizeof want);
}
END_TEST

/* Rank 1 dies while it follows. The signal may come a run late. */
static int32_t kill_one(uint32_t rank, bs_error *err) {
  int32_t rc = open_all(files_folder, "shm", err);
  if (rc != BS_OK || rank > 0) return rc == BS_OK ? serve(err) : rc;
  rc = run(tokens, PROMPT, logits[0], err);
  if (rc == BS_OK) kill(pids[1], SIGKILL);
  while (rc == BS_OK) {
    rc = bs_session_cache(session, 0, err);
    if (rc == BS_OK) rc = bs_session_run(session, err);
  }
  return rc;
}

START_TEST(a_rank_that_dies_ends_the_session) {
  write_model(0);
  run_processes(kill_one, 1);
  ck_assert_int_eq(outcomes[0].rc, BS_RANK_FAILED);
  ck_assert_int_eq((int)bs_status_exit_code(outcomes[0].rc), 7);
  ck_assert_ptr_nonnull(strstr(outcomes[0].err.message, "rank 1"));
  ck_assert_int_eq(outcomes[1].finished, 0);
}
END_TEST

/* Rank 1 opens the session, and follows when rank 0 has given up. */
static int32_t come_late(uint32_t rank, bs_error *err) {
  const int32_t rc = open_all(files_folder, "shm", err);
  if (rc != BS_OK) return rc;
  if (rank == 0) return run(tokens, PROMPT, logits[0], err);
  while (*(volatile uint32_t *)&outcomes[0].finished == 0) usleep(1000);
  return serve(err);
}

START_TEST(a_rank_that_is_late_ends_the_session) {
  write_model(0);
  timeout_s = 0.3;
  run_processes(come_late, RANKS);
  timeout_s = 60;
  ck_assert_int_eq(outcomes[0].rc, BS_DEADLINE);
  ck_assert_int_eq((int)bs_status_exit_code(outcomes[0].rc), 8);
  ck_assert_ptr_nonnull(strstr(outcomes[0].err.message, "rank 1"));
  ck_assert_int_ne(outcomes[1].rc, BS_OK);
}
END_TEST

/* One bit of the last weight differs. */
static const char *const own_files[] = {"config.json", "model.safetensors"};
static void write_other(void) {
  char name[64];
  unsigned char last[4];
  ck_assert_int_eq(mkdir(files_path("other"), 0700), 0);
  for (int i = 0; i < 2; i++) {
    snprintf(name, sizeof name, "other/%s", own_files[i]);
    ck_assert_int_eq(link(files_path(own_files[i]), files_path(name)), 0);
  }
  unlink(files_path("other/model.safetensors"));
  write_weights("other/model.safetensors", gpt2_weights, 0, 100, no_change);
  FILE *f = fopen(files_path("other/model.safetensors"), "r+b");
  ck_assert_ptr_nonnull(f);
  fseek(f, -4, SEEK_END);
  ck_assert_uint_eq(fread(last, 1, 4, f), 4);
  last[2] ^= 1;
  fseek(f, -4, SEEK_END);
  ck_assert_uint_eq(fwrite(last, 1, 4, f), 4);
  fclose(f);
}

static int32_t open_other(uint32_t rank, bs_error *err) {
  return open_all(rank == 0 ? files_folder : files_path("other"), "shm", err);
}
static int32_t open_with_another_method(uint32_t rank, bs_error *err) {
  method = methods[rank];
  return open_all(files_folder, "shm", err);
}

static int32_t open_with_another_cache(uint32_t rank, bs_error *err) {
  cache_tokens = ALL - rank;
  return open_all(files_folder, "shm", err);
}

START_TEST(ranks_that_open_something_else_are_named) {
  static int32_t (*const bodies[])(uint32_t, bs_error *) = {open_other, open_with_another_method,
                                                            open_with_another_cache};
  static const char *const says[] = {
      "rank 1 opens its session with another model, or other bytes of its files",
      "rank 1 opens its session with another method", "rank 1 opens its session with other options"};
  write_model(0);
  write_other();
  run_processes(bodies[_i], RANKS);
  for (int i = 0; i < 2; i++) unlink(files_path(i == 0 ? "other/config.json" : "other/model.safetensors"));
  rmdir(files_path("other"));
  for (uint32_t r = 0; r < RANKS; r++) {
    ck_assert_int_eq(outcomes[r].rc, BS_MISMATCH);
    ck_assert_int_eq((int)bs_status_exit_code(outcomes[r].rc), 9);
    ck_assert_ptr_nonnull(strstr(outcomes[r].err.message, says[_i]));
  }
}
END_TEST

/* A layer of rank 1 gives other numbers, which stay on that rank: rank 0 hears of it, and whose it is. */
static int32_t plant_wrong(uint32_t rank, bs_error *err) {
  int32_t rc = open_all(files_folder, "shm", err);
  if (rc != BS_OK) return rc;
  if (rank == 0) {
    rc = set_tokens(tokens, PROMPT, err);
    return rc == BS_OK ? bs_session_check(session, NULL, NULL, err) : rc;
  }
  glayer **layers = gsession_lead(session)->core->layers;
  glayer *first = layers[2], *other = layers[6]; /* the first half of the MLP of both blocks */
  if (first->spec.N != other->spec.N || first->spec.K != other->spec.K) return BS_INTERNAL;
  bs_layer *mine = first->layer, *theirs = other->layer;
  first->layer = theirs;
  other->layer = mine;
  return serve(err);
}

START_TEST(a_wrong_layer_of_another_rank_is_found) {
  write_model(0);
  method = methods[1];
  run_processes(plant_wrong, RANKS);
  ck_assert_int_eq(outcomes[0].rc, BS_NUMERIC);
  ck_assert_str_eq(outcomes[0].err.id, "BS-GRAPH-CHECK");
  ck_assert_int_eq(outcomes[0].err.rank, 1);
  ck_assert_int_eq(outcomes[1].rc, BS_OK); /* rank 0 has closed the session */
}
END_TEST

/* A layer that refuses its forward on rank 1 alone ends the world: rank 0 waits for no deadline. */
static int32_t refuse_layer(uint32_t rank, bs_error *err) {
  int32_t rc = open_all(files_folder, "shm", err);
  if (rc != BS_OK) return rc;
  if (rank == 0) return run(tokens, PROMPT, logits[0], err);
  glayer **layers = gsession_lead(session)->core->layers;
  bs_layer *mine = layers[0]->layer;
  layers[0]->layer = layers[3]->layer; /* of the MLP: its x is wider */
  layers[3]->layer = mine;
  return serve(err);
}

START_TEST(an_error_of_one_rank_ends_the_run) {
  write_model(0);
  run_processes(refuse_layer, RANKS);
  for (uint32_t r = 0; r < RANKS; r++) {
    ck_assert_int_eq(outcomes[r].rc, BS_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(outcomes[r].err.message, "the layer wants"));
  }
  ck_assert_ptr_nonnull(strstr(outcomes[0].err.message, "rank 1"));
}
END_TEST

/* What fails on rank 0 between two calls ends those that wait for the next one. */
static int32_t fail_there(uint32_t rank, bs_error *err) {
  bs_rank *me = NULL;
  bs_error mine = BS_ERROR_INIT;
  int32_t rc = open_all(files_folder, "shm", err);
  if (rc != BS_OK || rank > 0) return rc == BS_OK ? serve(err) : rc;
  rc = bs_world_enter(world, &me, err);
  if (rc != BS_OK) return rc;
  bs_error_set(&mine, BS_NUMERIC, "BS-TEST-NAN", "y[3] is NaN");
  bs_world_fail(world, BS_NUMERIC, &mine);
  return bs_world_leave(world, err);
}

START_TEST(a_failure_of_rank_0_ends_the_others) {
  write_model(0);
  run_processes(fail_there, RANKS);
  says(0, BS_NUMERIC, "BS-TEST-NAN", "y[3] is NaN", "");
  says(1, BS_NUMERIC, "BS-COLL-ABORTED", "rank 0", "y[3] is NaN");
}
END_TEST

/* Calls of the wrong rank are refused, and change nothing. */
static int32_t call_wrongly(uint32_t rank, bs_error *err) {
  int32_t rc = open_all(files_folder, "shm", err);
  if (rc != BS_OK) return rc;
  if (rank == 0) {
    const bs_session_options o = {.struct_size = sizeof o, .world = world, .share = session};
    bs_session *other = NULL;
    if (bs_session_open(test_context, model, &o, &other, err) != BS_UNSUPPORTED) return BS_INTERNAL;
    if (bs_session_follow(session, err) != BS_INVALID_ARGUMENT) return BS_INTERNAL;
    return run(tokens, PROMPT, logits[0], err);
  }
  if (bs_session_bind(session, dims_of(1), 1, err) != BS_INVALID_ARGUMENT) return BS_INTERNAL;
  if (bs_session_run(session, err) != BS_INVALID_ARGUMENT) return BS_INTERNAL;
  if (strcmp(err->id, "BS-GRAPH-FOLLOW") != 0) return BS_INTERNAL;
  if (bs_session_cache(session, 0, err) != BS_INVALID_ARGUMENT) return BS_INTERNAL;
  bs_verify_report report = {.struct_size = (uint32_t)sizeof report};
  if (bs_session_verify(session, &report, err) != BS_INVALID_ARGUMENT) return BS_INTERNAL;
  if (serve(err) != BS_OK) return BS_INTERNAL;
  const int32_t again = serve(err);
  const bs_tensor none = {.struct_size = sizeof none}; /* rank 0 has closed the session */
  bs_tensor got = none;
  return again == BS_INVALID_ARGUMENT && bs_session_set(session, 0, &none, err) == BS_INVALID_ARGUMENT &&
                 bs_session_get(session, 0, &got, err) == BS_INVALID_ARGUMENT &&
                 bs_session_check(session, NULL, NULL, err) == BS_INVALID_ARGUMENT &&
                 bs_session_trace(session, NULL, NULL, err) == BS_INVALID_ARGUMENT &&
                 bs_session_verify(session, &report, err) == BS_INVALID_ARGUMENT &&
                 bs_session_port_count(session) == 0
             ? BS_OK
             : BS_INTERNAL;
}

START_TEST(calls_of_the_wrong_rank_are_refused) {
  bs_error err = BS_ERROR_INIT;
  write_model(0);
  run_processes(call_wrongly, RANKS);
  for (uint32_t r = 0; r < RANKS; r++)
    ck_assert_msg(outcomes[r].rc == BS_OK, "rank %u: %s %s", r, outcomes[r].err.id, outcomes[r].err.message);
  ck_assert_int_eq(open_all(files_folder, NULL, &err), BS_OK);
  ck_assert_int_eq(bs_session_follow(session, &err), BS_INVALID_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(err.message, "no processes"));
  close_all();
}
END_TEST

/* y = x w, where x has no rows, and z = a + a: an input without elements is set on every rank. */
static int32_t run_empty(uint32_t rank, bs_error *err) {
  static const float w[16] = {1, 2, 3, 4};
  static float x[4], a[4] = {1, 2, 3, 4};
  const bs_tensor_desc of[] = {{.struct_size = sizeof of[0], .dtype = BS_F32, .rank = 2, .dims = {4, 4}},
                               {.struct_size = sizeof of[0], .dtype = BS_F32, .rank = 2, .dims = {0, 4}},
                               {.struct_size = sizeof of[0], .dtype = BS_F32, .rank = 1, .dims = {4}}};
  uint32_t values[3], y = 0, z = 0;
  int32_t rc = open_context(err);
  if (rc == BS_OK) rc = bs_graph_new(test_context, &model, err);
  if (rc == BS_OK) rc = bs_graph_constant(model, "w", &of[0], w, &values[0], err);
  if (rc == BS_OK) rc = bs_graph_input(model, "x", &of[1], NULL, &values[1], err);
  if (rc == BS_OK) rc = bs_graph_input(model, "a", &of[2], NULL, &values[2], err);
  if (rc != BS_OK) return rc;
  const uint32_t product[] = {values[1], values[0]}, sum[] = {values[2], values[2]};
  rc = bs_graph_op(model, "MatMul", product, 2, NULL, 0, &y, 1, err);
  if (rc == BS_OK) rc = bs_graph_op(model, "Add", sum, 2, NULL, 0, &z, 1, err);
  if (rc == BS_OK) rc = bs_graph_output(model, "y", y, err);
  if (rc == BS_OK) rc = bs_graph_output(model, "z", z, err);
  if (rc == BS_OK) rc = open_session("shm", NULL, 0, err);
  if (rc != BS_OK || rank > 0) return rc == BS_OK ? serve(err) : rc;
  const bs_tensor in[] = {
      {.struct_size = sizeof in[0], .dtype = BS_F32, .rank = 2, .dims = {0, 4}, .strides = {4, 1}, .data = x},
      {.struct_size = sizeof in[0],
       .dtype = BS_F32,
       .rank = 1,
       .dims = {4},
       .strides = {1},
       .data = a,
       .bytes = sizeof a}};
  bs_tensor out = {.struct_size = sizeof out};
  for (uint32_t i = 0; rc == BS_OK && i < 2; i++) rc = bs_session_set(session, i, &in[i], err);
  if (rc == BS_OK) rc = bs_session_run(session, err);
  if (rc == BS_OK) rc = bs_session_check(session, NULL, NULL, err);
  if (rc == BS_OK) rc = bs_session_get(session, 3, &out, err);
  return rc == BS_OK && ((const float *)out.data)[3] != 8 ? BS_INTERNAL : rc;
}

START_TEST(an_input_may_have_no_elements) {
  run_processes(run_empty, RANKS);
  for (uint32_t r = 0; r < RANKS; r++)
    ck_assert_msg(outcomes[r].rc == BS_OK, "rank %u: %s %s", r, outcomes[r].err.id, outcomes[r].err.message);
}
END_TEST

int main(void) {
  const test_case rows[] = {{processes_have_the_bits_of_threads, MODELS * METHODS},
                            {a_rank_that_dies_ends_the_session},
                            {a_rank_that_is_late_ends_the_session},
                            {ranks_that_open_something_else_are_named, 3},
                            {a_wrong_layer_of_another_rank_is_found},
                            {an_error_of_one_rank_ends_the_run},
                            {a_failure_of_rank_0_ends_the_others},
                            {calls_of_the_wrong_rank_are_refused},
                            {an_input_may_have_no_elements},
                            {0}};
  return run_tests("split_follow", rows, (test_setup){.before = before, .after = after, .timeout = 60});
}
