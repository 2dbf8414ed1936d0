/* SPDX-License-Identifier: MIT
 *
 * tp_mlp.c - trains a two-layer MLP, split over the ranks of a tensor group, by libblockshock-tp. One source
 * for ranks that are threads, simulated ranks, and the processes of an MPI job:
 *
 *   ./tp-mlp                                    2 threads
 *   ./tp-mlp --ranks 4 --tensor 2               4 threads: 2 tensor groups, the batch is divided between them
 *   ./tp-mlp --ranks 4 --comm sim --backend virtual:ref     4 simulated ranks that compute real values
 *   mpirun -n 2 ./tp-mlp --comm mpi             2 processes (the launcher says how many)
 *   ./tp-mlp --method blockshock                the second layer by another method
 *
 * Every rank has the same loss, and every way of running prints the same lines. Exit 0 when the loss fell.
 */
#include <blockshock/tp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 16, IN = 32, HIDDEN = 64, OUT = 8, STEPS = 20, SHOWN_EVERY = 5 };

typedef struct job {
  const char *method;
  bs_source w1, b1, w2, b2;
  const float *x, *target;
  float first_loss, last_loss; /* of rank 0 of this process's world, or this process's rank */
} job;

/* A number that depends on i alone, between -scale and scale. */
static float number(int i, int seed, float scale) {
  const unsigned h = ((unsigned)i * 2654435761u) ^ ((unsigned)seed * 40503u);
  return ((float)(h >> 8 & 0xffffu) / 32768.0f - 1.0f) * scale;
}

/* The state of a rank. */
typedef struct state {
  bs_tp_place place;
  int tokens, first; /* this rank's share of the batch */
  bs_tp_mlp *mlp;
  bs_tensor x, y, dy;
  bs_tensor *gradient[4];
  bs_coll_plan *sum[4]; /* of the gradients over the data group */
} state;

static int32_t prepare_sums(bs_rank *rank, state *s, bs_error *err) {
  int32_t rc = bs_tp_linear_gradients(bs_tp_mlp_column(s->mlp), &s->gradient[0], &s->gradient[1], err);
  if (rc == BS_OK) rc = bs_tp_linear_gradients(bs_tp_mlp_row(s->mlp), &s->gradient[2], &s->gradient[3], err);
  for (int i = 0; i < 4 && rc == BS_OK && s->place.data_size > 1; ++i) {
    const bs_tensor *g = s->gradient[i];
    bs_collective what;
    memset(&what, 0, sizeof what);
    what.struct_size = sizeof what;
    what.kind = BS_COLL_ALL_REDUCE;
    what.dtype_in = g->dtype;
    what.rows = g->rank == 2 ? (uint64_t)g->dims[0] : 1;
    what.count = (uint64_t)g->dims[g->rank - 1];
    what.site = "gradient";
    what.group = s->place.data_group;
    rc = bs_rank_get_api()->collective_prepare(rank, &what, &s->sum[i], err);
  }
  return rc;
}

static int32_t prepare(bs_rank *rank, const job *j, state *s, bs_error *err) {
  s->place.struct_size = sizeof s->place;
  int32_t rc = bs_tp_get_place(rank, &s->place, err);
  if (rc != BS_OK) return rc;
  if (TOKENS % s->place.data_size != 0) {
    snprintf(err->id, sizeof err->id, "TP-MLP-BATCH");
    snprintf(err->message, sizeof err->message, "%d tokens cannot be divided evenly among %u data ranks",
             TOKENS, (unsigned)s->place.data_size);
    return err->code = BS_CONFIG;
  }
  s->tokens = TOKENS / (int)s->place.data_size;
  s->first = s->tokens * (int)s->place.data_rank;
  bs_tp_mlp_spec spec;
  memset(&spec, 0, sizeof spec);
  spec.struct_size = sizeof spec;
  spec.bias = 1;
  spec.tokens = s->tokens;
  spec.in_features = IN;
  spec.hidden_features = HIDDEN;
  spec.out_features = OUT;
  spec.activation = BS_ACT_GELU;
  spec.flags = BS_LAYER_BACKWARD | BS_LAYER_SGD;
  spec.row_method = j->method;
  rc = bs_tp_mlp_make(rank, &spec, &j->w1, &j->b1, &j->w2, &j->b2, &s->mlp, err);
  if (rc == BS_OK) rc = prepare_sums(rank, s, err);
  if (rc == BS_OK) rc = bs_tp_tensor_make(rank, BS_F32, s->tokens, IN, &s->x, err);
  if (rc == BS_OK) rc = bs_tp_tensor_make(rank, BS_F32, s->tokens, OUT, &s->y, err);
  if (rc == BS_OK) rc = bs_tp_tensor_make(rank, BS_F32, s->tokens, OUT, &s->dy, err);
  return rc == BS_OK ? bs_tp_copy_in(rank, j->x + s->first * IN, &s->x, err) : rc;
}

static void release(bs_rank *rank, state *s) {
  for (int i = 0; i < 4; ++i) bs_tp_plan_release(rank, s->sum[i]);
  bs_tp_tensor_free(rank, &s->x);
  bs_tp_tensor_free(rank, &s->y);
  bs_tp_tensor_free(rank, &s->dy);
  bs_tp_mlp_free(s->mlp);
}

/* The mean of the squared errors over the whole batch: this rank's share is summed over the data group. */
static int32_t find_loss(bs_rank *rank, const job *j, const state *s, float *out_loss, bs_error *err) {
  float y[TOKENS * OUT], dy[TOKENS * OUT], loss = 0.0f;
  int32_t rc = bs_tp_copy_out(rank, &s->y, y, err);
  if (rc != BS_OK) return rc;
  for (int i = 0; i < s->tokens * OUT; ++i) {
    const float e = y[i] - j->target[s->first * OUT + i];
    loss += e * e / TOKENS;
    dy[i] = 2.0f * e / TOKENS;
  }
  bs_tensor gradient = s->dy;
  rc = bs_tp_copy_in(rank, dy, &gradient, err);
  bs_collective what;
  memset(&what, 0, sizeof what);
  what.struct_size = sizeof what;
  what.kind = BS_COLL_ALL_REDUCE;
  what.dtype_in = BS_F32;
  what.rows = what.count = 1;
  what.site = "loss";
  what.group = s->place.data_group;
  if (rc == BS_OK && s->place.data_size > 1)
    rc = bs_rank_collective_host(rank, &what, &loss, 1, &loss, 1, err);
  *out_loss = loss;
  return rc;
}

/* The function of each rank. */
static int32_t train(bs_rank *rank, void *user, bs_error *err) {
  job *j = user;
  state s;
  bs_step sgd;
  memset(&s, 0, sizeof s);
  memset(&sgd, 0, sizeof sgd);
  sgd.struct_size = sizeof sgd;
  sgd.optimizer = BS_OPT_SGD;
  sgd.lr = 0.05;
  int32_t rc = prepare(rank, j, &s, err);
  for (int step = 0; step < STEPS && rc == BS_OK; ++step) {
    float loss = 0.0f;
    rc = bs_tp_mlp_forward(s.mlp, &s.x, &s.y, err);
    if (rc == BS_OK) rc = find_loss(rank, j, &s, &loss, err);
    if (rc == BS_OK) rc = bs_tp_mlp_backward(s.mlp, &s.x, &s.dy, NULL, err);
    for (int i = 0; i < 4 && rc == BS_OK && s.sum[i] != NULL; ++i)
      rc = bs_tp_start(rank, s.sum[i], s.gradient[i], s.gradient[i], err); /* the step waits for them */
    if (rc == BS_OK) rc = bs_tp_mlp_step(s.mlp, &sgd, err);
    if (rc != BS_OK || s.place.world_rank != 0) continue;
    if (step == 0) j->first_loss = loss;
    j->last_loss = loss;
    if (step % SHOWN_EVERY == 0 || step + 1 == STEPS) printf("step %2d  loss %.5f\n", step, (double)loss);
  }
  release(rank, &s);
  return rc;
}

static void tell(void *user, uint32_t rank, const bs_error *err) {
  (void)user;
  fprintf(stderr, "tp-mlp: rank %u: [%s] %s\n", (unsigned)rank, err->id, err->message);
}

/* --NAME VALUE, or what there is without it. */
static const char *option(int argc, char **argv, const char *name, const char *otherwise) {
  for (int i = 1; i + 1 < argc; i += 2)
    if (strcmp(argv[i], name) == 0) return argv[i + 1];
  return otherwise;
}

int main(int argc, char **argv) {
  static float x[TOKENS * IN], target[TOKENS * OUT], w1[HIDDEN * IN], b1[HIDDEN], w2[OUT * HIDDEN], b2[OUT];
  for (int i = 0; i < TOKENS * IN; ++i) x[i] = number(i, 1, 1.0f);
  for (int i = 0; i < TOKENS * OUT; ++i) target[i] = number(i, 2, 0.5f);
  for (int i = 0; i < HIDDEN * IN; ++i) w1[i] = number(i, 3, 0.25f);
  for (int i = 0; i < HIDDEN; ++i) b1[i] = number(i, 4, 0.1f);
  for (int i = 0; i < OUT * HIDDEN; ++i) w2[i] = number(i, 5, 0.2f);
  for (int i = 0; i < OUT; ++i) b2[i] = number(i, 6, 0.1f);

  bs_error err;
  bs_context *context = NULL;
  job j;
  memset(&err, 0, sizeof err);
  memset(&j, 0, sizeof j);
  j.method = option(argc, argv, "--method", NULL);
  j.x = x;
  j.target = target;
  bs_source_from_memory(w1, BS_F32, HIDDEN, IN, IN, &j.w1, &err);
  bs_source_from_memory(b1, BS_F32, 1, HIDDEN, HIDDEN, &j.b1, &err);
  bs_source_from_memory(w2, BS_F32, OUT, HIDDEN, HIDDEN, &j.w2, &err);
  bs_source_from_memory(b2, BS_F32, 1, OUT, OUT, &j.b2, &err);

  bs_world_options world;
  bs_tp_spawn_options spawn;
  memset(&world, 0, sizeof world);
  memset(&spawn, 0, sizeof spawn);
  world.struct_size = sizeof world;
  world.comm = option(argc, argv, "--comm", "threads");
  world.backend = option(argc, argv, "--backend", "cpu");
  const int started = strcmp(world.comm, "mpi") == 0 || strcmp(world.comm, "shm") == 0;
  world.world_size = (uint32_t)strtoul(option(argc, argv, "--ranks", started ? "0" : "2"), NULL, 10);
  spawn.struct_size = sizeof spawn;
  spawn.world = &world;
  spawn.failed = tell;
  const uint32_t tensor = (uint32_t)strtoul(option(argc, argv, "--tensor", "2"), NULL, 10);
  spawn.tensor_size = tensor != 0 ? tensor : 1;

  int32_t rc = bs_context_open(NULL, &context, &err);
  if (rc == BS_OK) rc = bs_tp_spawn(context, &spawn, train, &j, &err);
  const uint32_t rank = context != NULL ? bs_context_rank(context) : 0;
  bs_context_close(context);
  bs_source_release(&j.w1);
  bs_source_release(&j.b1);
  bs_source_release(&j.w2);
  bs_source_release(&j.b2);
  if (rc != BS_OK) {
    char text[1024];
    bs_error_format(&err, "tp-mlp", text, sizeof text);
    fprintf(stderr, "%s\n", text);
    return bs_status_exit_code(rc);
  }
  return rank != 0 || j.last_loss < 0.5f * j.first_loss ? 0 : 6; /* rank 0's process has the losses */
}
