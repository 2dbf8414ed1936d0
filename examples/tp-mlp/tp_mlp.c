/* SPDX-License-Identifier: MIT
 *
 * tp_mlp.c - trains a two-layer MLP, split over the ranks of a tensor group, by libblockshock-tp. One source
 * for ranks that are threads, simulated ranks, and the processes of an MPI job:
 *
 *   ./tp-mlp                                    2 threads
 *   ./tp-mlp -P 4 --tensor 2                    4 threads: 2 tensor groups, the batch is divided between them
 *   ./tp-mlp -P 4 --comm sim --backend virtual:ref          4 simulated ranks that compute real values
 *   mpirun -n 2 ./tp-mlp --comm mpi             2 processes (the launcher says how many)
 *   ./tp-mlp --method blockshock                the second layer by another method
 *   ./tp-mlp --help                             all options; they have the names that bsrun gives them
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

static const char help[] =
    "usage: tp-mlp [options]\n"
    "Trains a two-layer MLP that is split over the ranks of a tensor group, and prints its loss.\n\n"
    "  -P, --world-size N  number of ranks; default: 2, of processes as many as were started\n"
    "  --tensor N          ranks of a tensor group, which divides P; default: 2\n"
    "  --comm NAME         the communicator: threads (default), sim; of processes shm, mpi or openmpi\n"
    "  --backend NAME      the backend; default: cpu\n"
    "  --method NAME       how the second layer is split; default: row_parallel\n"
    "  --threads N         threads of one rank; default: the cores divided by the ranks\n"
    "  --seed N            of the weights, the inputs and the targets; default: 0\n"
    "  --help              this text\n\n"
    "Exit codes: 0 the loss fell to less than half; 2 wrong options; 6 it did not fall; others as of bsrun\n";

/* Where an option's value goes: a text, or a whole number from 0. */
typedef struct option {
  const char *name, *letter;
  const char **text;
  uint32_t *number;
} option;

static int is_option(const option *o, const char *word, size_t size) {
  return (strlen(o->name) == size && strncmp(o->name, word, size) == 0) ||
         (o->letter != NULL && strcmp(o->letter, word) == 0);
}

static int read_number(const char *text, uint32_t *out) {
  char *end;
  const unsigned long value = strtoul(text, &end, 10);
  if (*text < '0' || *text > '9' || *end != '\0' || value > UINT32_MAX) return 0;
  *out = (uint32_t)value;
  return 1;
}

/* --NAME VALUE or --NAME=VALUE, -P VALUE. Returns -1, or the exit code of a program that ends here. */
static int read_options(int argc, char **argv, const option *options, size_t n) {
  for (int i = 1; i < argc; ++i) {
    const char *word = argv[i], *equals = strchr(word, '='), *value = equals != NULL ? equals + 1 : NULL;
    const size_t size = equals != NULL ? (size_t)(equals - word) : strlen(word);
    size_t k = 0;
    if (strcmp(word, "--help") == 0) return fputs(help, stdout) < 0;
    while (k < n && !is_option(&options[k], word, size)) ++k;
    if (k < n && value == NULL && i + 1 < argc) value = argv[++i];
    if (k == n) {
      fprintf(stderr, "tp-mlp: error[TP-MLP-OPTION] unknown option %s; hint: tp-mlp --help\n", word);
    } else if (value == NULL) {
      fprintf(stderr, "tp-mlp: error[TP-MLP-OPTION] %s needs a value; hint: tp-mlp --help\n", word);
    } else if (options[k].text != NULL) {
      *options[k].text = value;
      continue;
    } else if (read_number(value, options[k].number)) {
      continue;
    } else {
      fprintf(stderr,
              "tp-mlp: error[TP-MLP-OPTION] %s: '%s' is not a whole number from 0; hint: tp-mlp --help\n",
              options[k].name, value);
    }
    return 2;
  }
  return -1;
}

/* Numbers of an array that depend on its own seed and on --seed. */
static void fill(float *out, int n, int own, uint32_t seed, float scale) {
  for (int i = 0; i < n; ++i) out[i] = number(i, own + 16 * (int)(seed % 65536), scale);
}

int main(int argc, char **argv) {
  static float x[TOKENS * IN], target[TOKENS * OUT], w1[HIDDEN * IN], b1[HIDDEN], w2[OUT * HIDDEN], b2[OUT];
  bs_error err;
  bs_context *context = NULL;
  bs_world_options world;
  bs_tp_spawn_options spawn;
  job j;
  memset(&err, 0, sizeof err);
  memset(&j, 0, sizeof j);
  memset(&world, 0, sizeof world);
  memset(&spawn, 0, sizeof spawn);
  world.struct_size = sizeof world;
  world.comm = "threads";
  world.backend = "cpu";
  spawn.struct_size = sizeof spawn;
  spawn.world = &world;
  spawn.failed = tell;
  spawn.tensor_size = 2;
  uint32_t seed = 0;
  const option options[] = {
      {"--world-size", "-P", NULL, &world.world_size},
      {"--tensor", NULL, NULL, &spawn.tensor_size},
      {"--comm", NULL, &world.comm, NULL},
      {"--backend", NULL, &world.backend, NULL},
      {"--method", NULL, &j.method, NULL},
      {"--threads", NULL, NULL, &world.threads_per_rank},
      {"--seed", NULL, NULL, &seed},
  };
  const int ended = read_options(argc, argv, options, sizeof options / sizeof options[0]);
  if (ended >= 0) return ended;
  const int started =
      strcmp(world.comm, "mpi") == 0 || strcmp(world.comm, "openmpi") == 0 || strcmp(world.comm, "shm") == 0;
  if (world.world_size == 0 && !started) world.world_size = 2;
  fill(x, TOKENS * IN, 1, seed, 1.0f);
  fill(target, TOKENS * OUT, 2, seed, 0.5f);
  fill(w1, HIDDEN * IN, 3, seed, 0.25f);
  fill(b1, HIDDEN, 4, seed, 0.1f);
  fill(w2, OUT * HIDDEN, 5, seed, 0.2f);
  fill(b2, OUT, 6, seed, 0.1f);
  j.x = x;
  j.target = target;
  bs_source_from_memory(w1, BS_F32, HIDDEN, IN, IN, &j.w1, &err);
  bs_source_from_memory(b1, BS_F32, 1, HIDDEN, HIDDEN, &j.b1, &err);
  bs_source_from_memory(w2, BS_F32, OUT, HIDDEN, HIDDEN, &j.w2, &err);
  bs_source_from_memory(b2, BS_F32, 1, OUT, OUT, &j.b2, &err);

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
