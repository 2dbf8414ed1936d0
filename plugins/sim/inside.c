/* SPDX-License-Identifier: MIT
 * inside.c - the device that hardware.device names: its sums for the roofline, and the time of an op inside
 * of it, which is simulated once. */
#include "world.h"

struct sim_inside {
  const bs_host *host;
  pthread_mutex_t lock;
  sim_asks *asks; /* its table is protected by the lock */
  const char *name;
};

/* ---- the machine -------------------------------------------------------------------------------- */

/* What the device does not have stays as the hardware file gives it. */
static double either(double sum, double given) {
  return sum > 0 ? sum : given;
}

static int32_t take_sums(sim_machine *m, const sim_sums *s, const sim_given *given, bs_error *err) {
  const double f32 = either(s->flops_f32, given->flops_f32), f64 = either(s->flops_f64, given->flops_f64),
               f8 = either(s->flops_f8, given->flops_f8);
  int32_t rc = sim_sums_agree(s, "flops", given->flops, err);
  if (rc == BS_OK) rc = sim_sums_agree(s, "flops_f32", given->flops_f32, err);
  if (rc == BS_OK) rc = sim_sums_agree(s, "flops_f64", given->flops_f64, err);
  if (rc == BS_OK) rc = sim_sums_agree(s, "flops_f8", given->flops_f8, err);
  if (rc == BS_OK) rc = sim_sums_agree(s, "mem_Bps", given->mem_Bps, err);
  if (rc == BS_OK) rc = sim_sums_agree(s, "launch_s", given->launch_s, err);
  if (rc != BS_OK) return rc;
  m->roof.flops = sim_rate(either(s->flops, given->flops));
  m->flops_f32 = f32 > 0 ? sim_rate(f32) : m->roof.flops;
  m->flops_f64 = f64 > 0 ? sim_rate(f64) : m->flops_f32;
  m->flops_f8 = f8 > 0 ? sim_rate(f8) : m->roof.flops;
  m->roof.mem_Bps = sim_rate(either(s->mem_Bps, given->mem_Bps));
  if (m->mem_bytes == 0) m->mem_bytes = (uint64_t)sim_round(s->mem_bytes);
  if (s->launch > 0) m->roof.launch = s->launch;
  if (strcmp(s->label, "calibrated") != 0) m->label = s->label;
  return BS_OK;
}

int32_t sim_inside_open(sim_plugin *plugin, const char *text, const sim_given *given, bs_error *err) {
  const bs_host *host = plugin->host;
  sim_sums sums;
  sim_inside *in = host->alloc(host->ctx, sizeof *in, 64);
  if (in == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-SIM-MEMORY", "no memory for a device");
  memset(in, 0, sizeof *in);
  in->host = host;
  if (pthread_mutex_init(&in->lock, NULL) != 0) {
    host->free(host->ctx, in);
    return bs_fail(err, BS_NO_MEMORY, "BS-SIM-MEMORY", "no mutex for a device");
  }
  plugin->inside = in;
  int32_t rc = sim_asks_open(text, &in->asks, err);
  if (rc != BS_OK) return rc;
  sim_device_sums(sim_asks_device(in->asks), &sums);
  in->name = sums.name;
  rc = sim_ask_launch(sim_asks_device(in->asks), &sums.launch, err);
  if (rc != BS_OK) return rc;
  return take_sums(&plugin->machine, &sums, given, err);
}

void sim_inside_close(sim_plugin *plugin) {
  sim_inside *in = plugin->inside;
  if (in == NULL) return;
  sim_asks_close(in->asks);
  (void)pthread_mutex_destroy(&in->lock);
  in->host->free(in->host->ctx, in);
  plugin->inside = NULL;
}

const char *sim_inside_name(const sim_inside *inside) {
  return inside->name;
}

/* ---- an op -------------------------------------------------------------------------------------- */

enum { PRODUCT_NONE = 0, PRODUCT_MATMUL, PRODUCT_DX, PRODUCT_DW, PRODUCT_SCALED, PRODUCT_CONTRACT };

static uint32_t product_of(const char *op) {
  static const char *const names[] = {"", "matmul", "matmul_dx", "matmul_dw", "scaled_matmul", "contract"};
  for (uint32_t i = 1; i < sizeof names / sizeof names[0]; i++)
    if (strcmp(names[i], op) == 0) return i;
  return PRODUCT_NONE;
}

static uint32_t dtype_of(const bs_op_query *q, uint32_t arg) {
  return arg < q->nargs && q->args[arg] != NULL ? q->args[arg]->dtype : 0;
}

/* Ops of the vector unit on an element: the conversion, and each of these that the query has. */
static uint32_t epilogue_of(const bs_op_query *q, uint32_t bias, uint32_t residual) {
  return 1u + (dtype_of(q, bias) != 0) + (residual > 0 && dtype_of(q, residual) != 0) + (q->activation != 0);
}

void sim_inside_prepare(sim_inside_op *out, const bs_op_query *query) {
  sim_ask *ask = &out->ask;
  out->product = product_of(query->op);
  if (out->product == PRODUCT_NONE) return;
  while (ask->op < BS_CORE_OPS && strcmp(bs_name_of(BS_NAMES_OP, ask->op), query->op) != 0) ask->op++;
  const uint32_t columns_of = out->product == PRODUCT_DX ? 1 : 0;
  if (dtype_of(query, columns_of) != 0) out->columns = (uint64_t)query->args[columns_of]->dims[1];
  if (query->partition != NULL) out->columns = (uint64_t)query->partition->count;
  ask->in_dtype = dtype_of(query, 0);
  ask->weight_dtype = query->weight_dtype;
  ask->epilogue = 1;
  switch (out->product) {
    case PRODUCT_MATMUL:
      ask->out_dtype = dtype_of(query, 3);
      ask->epilogue = epilogue_of(query, 1, 2);
      break;
    case PRODUCT_DX:
      ask->out_dtype = dtype_of(query, 1);
      break;
    case PRODUCT_DW:
      ask->weight_dtype = dtype_of(query, 1);
      ask->out_dtype = dtype_of(query, 2);
      break;
    case PRODUCT_SCALED:
      ask->weight_dtype = dtype_of(query, 2);
      ask->out_dtype = dtype_of(query, 6);
      ask->epilogue = 1 + epilogue_of(query, 4, 5); /* and the scales */
      break;
    default:
      ask->weight_dtype = dtype_of(query, 1);
      ask->out_dtype = dtype_of(query, 3);
      ask->epilogue = epilogue_of(query, 2, 0);
  }
}

/* A B whose leading dims are 1 serves all rows of A: one product. 0: another form. */
static int contract_dims(sim_ask *ask, bs_tensor *const *args) {
  const bs_tensor *a = args[0], *b = args[1], *y = args[3];
  const uint32_t rank = y->rank;
  if (rank < 2 || a->rank != rank || b->rank != rank) return 0;
  ask->m = (uint64_t)y->dims[rank - 2];
  ask->n = (uint64_t)y->dims[rank - 1];
  ask->k = (uint64_t)a->dims[rank - 1];
  for (uint32_t d = 0; d + 2 < rank; d++) {
    if (b->dims[d] != 1 || a->dims[d] != y->dims[d]) return 0;
    ask->m *= (uint64_t)y->dims[d];
  }
  return 1;
}

static int read_dims(const sim_inside_op *op, sim_ask *ask, bs_tensor *const *args, uint32_t nargs) {
  const uint32_t most[] = {0, 3, 1, 2, 6, 3}; /* the last arg of each form */
  if (nargs <= most[op->product] || args[0] == NULL || args[most[op->product]] == NULL) return 0;
  const uint64_t rows = (uint64_t)args[0]->dims[0], width = (uint64_t)args[0]->dims[1];
  switch (op->product) {
    case PRODUCT_MATMUL:
      ask->m = rows;
      ask->n = (uint64_t)args[3]->dims[1];
      ask->k = op->columns;
      return 1;
    case PRODUCT_DX:
      ask->m = rows;
      ask->n = op->columns;
      ask->k = width;
      return 1;
    case PRODUCT_DW:
      ask->m = (uint64_t)args[2]->dims[0];
      ask->n = op->columns;
      ask->k = rows;
      return 1;
    case PRODUCT_SCALED:
      ask->m = rows;
      ask->n = (uint64_t)args[6]->dims[1];
      ask->k = width;
      return 1;
    default:
      return args[1] != NULL && contract_dims(ask, args);
  }
}

static int is_apart(const bs_tensor *t, uint64_t width) {
  if (t == NULL || t->rank < 2 || t->dims[t->rank - 2] < 2) return 0;
  return (uint64_t)t->strides[t->rank - 2] != width;
}

/* Do rows of an operand that is read lie apart? Then its tiles are pieces, and may share channels. */
static uint32_t rows_apart(const sim_inside_op *op, const sim_ask *ask, bs_tensor *const *args) {
  switch (op->product) {
    case PRODUCT_MATMUL:
    case PRODUCT_DX:
      return (uint32_t)is_apart(args[0], ask->k);
    case PRODUCT_DW:
      return (uint32_t)(is_apart(args[0], ask->n) || is_apart(args[1], ask->m));
    case PRODUCT_SCALED:
      return (uint32_t)(is_apart(args[0], ask->k) || is_apart(args[2], ask->k));
    default:
      return (uint32_t)(is_apart(args[0], ask->k) || is_apart(args[1], ask->n));
  }
}

typedef struct miss {
  const sim_inside *inside;
  const sim_ask *ask;
  sim_inside_time *out;
  bs_error *err;
  int32_t rc;
} miss;

static void simulate(void *arg) {
  miss *m = arg;
  m->rc = sim_ask_run(sim_asks_device(m->inside->asks), m->ask, m->out, m->err);
}

int32_t sim_inside_ask(const sim_inside_op *op, sim_rank *rank, bs_tensor *const *args, uint32_t nargs,
                       sim_inside_time *out, int *out_has, bs_error *err) {
  sim_inside *in = rank->plugin->inside;
  sim_ask ask = op->ask;
  memset(out, 0, sizeof *out);
  *out_has =
      op->product != PRODUCT_NONE && read_dims(op, &ask, args, nargs) && ask.m > 0 && ask.n > 0 && ask.k > 0;
  if (!*out_has) return BS_OK;
  ask.rows = rows_apart(op, &ask, args);
  (void)pthread_mutex_lock(&in->lock);
  const int known = sim_asks_find(in->asks, &ask, out);
  (void)pthread_mutex_unlock(&in->lock);
  rank->inside_known += known != 0;
  if (known) return BS_OK;
  miss m = {.inside = in, .ask = &ask, .out = out, .err = err};
  /* The stack of a rank is too small. */
  sim_on_main(rank->world != NULL ? rank->world->coroutines : NULL, simulate, &m);
  if (m.rc != BS_OK) return m.rc;
  rank->inside_simulated++;
  (void)pthread_mutex_lock(&in->lock);
  sim_asks_keep(in->asks, &ask, out);
  (void)pthread_mutex_unlock(&in->lock);
  return BS_OK;
}
