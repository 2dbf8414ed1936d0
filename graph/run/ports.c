/* SPDX-License-Identifier: MIT
 * ports.c - between the host and a device: inputs and the length go up before a run, outputs come down after
 * it, and those who look at values get copies. Where the backend's memory is the host's, nothing moves. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/world/executor.h"
#include "graph/run/run.h"

enum { PORT_ALIGN = 256, TOGETHER = 1 << 20 };

/* Inputs lie in one block of the device, and the length after them; small ones go up in one
 * copy of the same block on the host. Outputs stay where the plan has them. */
typedef struct gports {
  void **given;           /* of each port, the caller's; NULL */
  void **left;            /* of each output: memory for what a run leaves; NULL */
  uint64_t *at;           /* of each input, and of the length */
  uint64_t bytes;         /* of the block */
  unsigned char *device;  /* the block */
  unsigned char *staging; /* of it, on the host; NULL: each input goes up by itself */
} gports;

static int is_apart(const gbinding *b) {
  return b->rank->apart && !b->rank->phantom;
}

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for the ports of a session");
}

static uint32_t value_of(const graph *g, uint32_t port) {
  return port < g->n_inputs ? g->inputs[port].value : g->outputs[port - g->n_inputs].value;
}

static uint32_t length_of(const graph *g) {
  for (uint32_t i = 0; i < g->n_values; i++)
    if (g->values[i].kind == GV_INPUT && g->values[i].flags & GV_LENGTH) return i;
  return GNONE;
}

static uint64_t up_to_edge(uint64_t bytes) {
  return (bytes + PORT_ALIGN - 1) / PORT_ALIGN * PORT_ALIGN;
}

int32_t gports_make(gbinding *b, bs_error *err) {
  const graph *g = b->g;
  if (!b->rank->apart) return BS_OK;
  gports *p = b->ports = calloc(1, sizeof *p);
  if (p == NULL) return no_memory(err);
  p->given = calloc(g->n_inputs + g->n_outputs + 1u, sizeof *p->given);
  p->left = calloc(g->n_outputs + 1u, sizeof *p->left);
  p->at = calloc(g->n_inputs + 1u, sizeof *p->at);
  if (p->given == NULL || p->left == NULL || p->at == NULL) return no_memory(err);
  for (uint32_t i = 0; i <= g->n_inputs; i++) {
    p->at[i] = p->bytes;
    p->bytes += up_to_edge(i < g->n_inputs ? graph_bytes(&g->values[value_of(g, i)]) : sizeof b->length);
  }
  void *block = NULL;
  const int32_t rc = gdevice_take(b->core, b->rank, "the inputs", p->bytes, b, &block, err);
  if (rc != BS_OK) return rc;
  p->device = block;
  for (uint32_t i = 0; i < g->n_inputs; i++)
    gbinding_set_root(b, g->values[value_of(g, i)].base, p->device + p->at[i]);
  const uint32_t length = length_of(g);
  if (length != GNONE) gbinding_set_root(b, length, p->device + p->at[g->n_inputs]);
  if (b->rank->phantom || p->bytes > TOGETHER) return BS_OK;
  p->staging = calloc(1, (size_t)p->bytes);
  return p->staging != NULL ? BS_OK : no_memory(err);
}

void gports_free(gbinding *b) {
  gports *p = b->ports;
  if (p == NULL) return;
  for (uint32_t i = 0; p->left != NULL && i < b->g->n_outputs; i++) free(p->left[i]);
  free(p->given);
  free(p->left);
  free(p->at);
  free(p->staging);
  free(p);
  b->ports = NULL;
}

void gports_set(gbinding *b, uint32_t port, void *data) {
  b->ports->given[port] = data;
}

void *gports_host(const gbinding *b, uint32_t port) {
  const gports *p = b->ports;
  if (p->given[port] != NULL || port < b->g->n_inputs) return p->given[port];
  return p->left[port - b->g->n_inputs];
}

static int32_t copy_up(const gbinding *b, void *to, const void *from, uint64_t bytes, bs_error *err) {
  b->rank->copied += bytes;
  return bs_rank_copy(b->rank->rank, to, from, bytes, BS_COPY_HOST_TO_DEVICE, err);
}

int32_t gports_up(gbinding *b, bs_error *err) {
  const graph *g = b->g;
  const gports *p = b->ports;
  const uint32_t length = g->n_inputs;
  if (!is_apart(b)) return BS_OK;
  int32_t rc = gindices_check(b, err);
  for (uint32_t i = 0; i < g->n_inputs && rc == BS_OK; i++) {
    const uint64_t bytes = graph_bytes(&g->values[value_of(g, i)]);
    if (bytes == 0 || p->given[i] == NULL) continue;
    if (p->staging != NULL)
      memcpy(p->staging + p->at[i], p->given[i], (size_t)bytes);
    else
      rc = copy_up(b, p->device + p->at[i], p->given[i], bytes, err);
  }
  if (rc != BS_OK) return rc;
  if (p->staging == NULL) return copy_up(b, p->device + p->at[length], &b->length, sizeof b->length, err);
  memcpy(p->staging + p->at[length], &b->length, sizeof b->length);
  return copy_up(b, p->device, p->staging, p->bytes, err);
}

/* Memory of the host for an output. */
static void *output_room(const gbinding *b, uint32_t output, uint64_t bytes) {
  gports *p = b->ports;
  void *given = p->given[b->g->n_inputs + output];
  if (given != NULL) return given;
  if (p->left[output] == NULL) p->left[output] = aligned_alloc(64, (size_t)((bytes + 64u) & ~UINT64_C(63)));
  return p->left[output];
}

int32_t gports_down(gbinding *b, bs_error *err) {
  const graph *g = b->g;
  if (!is_apart(b)) return BS_OK;
  for (uint32_t i = 0; i < g->n_outputs; i++) {
    const uint32_t value = g->outputs[i].value;
    const uint64_t bytes = graph_bytes(&g->values[value]);
    void *to = output_room(b, i, bytes);
    if (to == NULL) return no_memory(err);
    b->rank->copied += bytes;
    const int32_t rc =
        bs_rank_copy(b->rank->rank, to, b->tensors[value].data, bytes, BS_COPY_DEVICE_TO_HOST, err);
    if (rc != BS_OK) return rc;
  }
  b->rank->waits++;
  return bs_rank_sync(b->rank->rank, err);
}

int32_t gports_read(const gbinding *b, uint32_t value, void *out_bytes, bs_error *err) {
  const uint64_t bytes = graph_bytes(&b->g->values[value]);
  int32_t rc = grank_enter(b->rank, err);
  if (rc != BS_OK) return rc;
  rc = bs_rank_copy(b->rank->rank, out_bytes, b->tensors[value].data, bytes, BS_COPY_DEVICE_TO_HOST, err);
  if (rc == BS_OK) rc = bs_rank_sync(b->rank->rank, err);
  return grank_leave(b->rank, rc, err);
}

/* ---- a step's arguments on the host ---------------------------------------------------------- */

static uint64_t reach_of(const bs_tensor *t) {
  int64_t last = 0;
  for (uint32_t d = 0; d < t->rank; d++) {
    if (t->dims[d] == 0) return 0;
    last += (t->dims[d] - 1) * t->strides[d];
  }
  return (uint64_t)(last + 1) * BS_DTYPE_BYTES(t->dtype);
}

/* Constants are where the model has them. */
static void *constant_at(const gbinding *b, uint32_t value, const bs_tensor *t) {
  const gvalue *v = &b->g->values[value], *root = &b->g->values[v->base];
  if (root->kind != GV_CONST || t != &b->tensors[value]) return NULL;
  unsigned char *data =
      (unsigned char *)(uintptr_t)root->data + (uint64_t)v->offset * BS_DTYPE_BYTES(v->dtype);
  return ((uintptr_t)data & (BS_DTYPE_BYTES(v->dtype) - 1u)) == 0 ? data : NULL;
}

static const unsigned char *begin_of(const bs_tensor *t) {
  return t->data;
}

/* Arguments of one root share a copy, as they share memory: outputs may lie between each other's elements. */
static void group_roots(const gbinding *b, const gstep *step, gshadow *s) {
  uint32_t values[BS_MAX_OP_ARGS];
  graph_arguments(&b->g->nodes[step->node], values);
  for (uint32_t i = 0; i < step->nargs; i++) {
    const bs_tensor *t = s->device[i];
    s->group[i] = i;
    if (t == NULL) continue;
    s->tensors[i] = *t;
    s->args[i] = &s->tensors[i];
    s->tensors[i].data = constant_at(b, values[i], t);
    if (s->tensors[i].data != NULL) continue;
    uint32_t k = 0;
    while (k < i && (values[k] == GNONE || s->bytes[k] == 0 || s->group[k] != k ||
                     b->g->values[values[k]].base != b->g->values[values[i]].base))
      k++;
    const unsigned char *end = begin_of(t) + reach_of(t);
    s->group[i] = k;
    if (k == i) {
      s->from[i] = t->data;
      s->bytes[i] = reach_of(t);
      continue;
    }
    if (end < s->from[k] + s->bytes[k]) end = s->from[k] + s->bytes[k];
    if (begin_of(t) < s->from[k]) s->from[k] = t->data;
    s->bytes[k] = (uint64_t)(end - s->from[k]);
  }
}

/* 1: the group's copy has to have what is on the device: a node reads it, or lets some of it be. */
static int is_needed(const gbinding *b, const gstep *step, const gshadow *s, uint32_t group) {
  uint64_t written = 0;
  for (uint32_t i = 0; i < step->nargs; i++) {
    if (s->device[i] == NULL || s->group[i] != group || s->base[group] == NULL) continue;
    if (i < b->g->nodes[step->node].n_in) return 1;
    written += tensor_elements(s->device[i]) * BS_DTYPE_BYTES(s->device[i]->dtype);
  }
  return written != s->bytes[group];
}

static int has_output(const gbinding *b, const gstep *step, const gshadow *s, uint32_t group) {
  for (uint32_t i = b->g->nodes[step->node].n_in; i < step->nargs; i++)
    if (s->device[i] != NULL && s->group[i] == group && s->base[group] != NULL) return 1;
  return 0;
}

static int32_t copy_down(const gbinding *b, const gshadow *s, uint32_t group, bs_error *err) {
  b->rank->copied += s->bytes[group];
  return bs_rank_copy(b->rank->rank, s->base[group], s->from[group], s->bytes[group], BS_COPY_DEVICE_TO_HOST,
                      err);
}

static int32_t make_copies(const gbinding *b, gstep *step, int for_run, gshadow *s, bs_error *err) {
  for (uint32_t i = 0; i < step->nargs; i++) {
    if (s->args[i] == NULL || s->group[i] != i || s->tensors[i].data != NULL) continue;
    s->base[i] = aligned_alloc(64, (size_t)((s->bytes[i] + 128u) & ~UINT64_C(63)));
    if (s->base[i] == NULL) return no_memory(err);
    const int32_t rc = for_run && !is_needed(b, step, s, i) ? BS_OK : copy_down(b, s, i, err);
    if (rc != BS_OK) return rc;
  }
  for (uint32_t i = 0; i < step->nargs; i++) {
    const uint32_t k = s->group[i];
    if (s->args[i] != NULL && s->base[k] != NULL)
      s->tensors[i].data = s->base[k] + (begin_of(s->device[i]) - s->from[k]);
  }
  return bs_rank_sync(b->rank->rank, err);
}

int32_t gshadow_take(const gbinding *b, gstep *step, int for_run, gshadow *s, bs_error *err) {
  s->device = NULL;
  if (!is_apart(b)) return BS_OK;
  memset(s, 0, sizeof *s);
  s->device = step->args;
  group_roots(b, step, s);
  b->rank->waits++;
  const int32_t rc = make_copies(b, step, for_run, s, err);
  step->args = s->args;
  if (rc == BS_OK) return rc;
  bs_rank_sync(b->rank->rank, NULL);
  gshadow_give(step, s);
  return rc;
}

int32_t gshadow_up(const gbinding *b, const gstep *step, const gshadow *s, bs_error *err) {
  int32_t rc = BS_OK, waited;
  for (uint32_t i = 0; i < step->nargs && rc == BS_OK; i++)
    if (has_output(b, step, s, i))
      rc = copy_up(b, (void *)(uintptr_t)s->from[i], s->base[i], s->bytes[i], err);
  b->rank->waits++;
  waited = bs_rank_sync(b->rank->rank, rc == BS_OK ? err : NULL); /* the copies are freed next */
  return rc == BS_OK ? waited : rc;
}

int32_t gshadow_run(const gbinding *b, gstep *step, gshadow *s, bs_error *err) {
  if (s->device == NULL) return gstep_run(step, err);
  step->args = s->device;
  int32_t rc = gstep_run(step, err);
  for (uint32_t i = 0; i < step->nargs && rc == BS_OK; i++)
    if (has_output(b, step, s, i)) rc = copy_down(b, s, i, err);
  const int32_t waited = bs_rank_sync(b->rank->rank, rc == BS_OK ? err : NULL);
  step->args = s->args;
  return rc == BS_OK ? waited : rc;
}

void gshadow_give(gstep *step, gshadow *s) {
  if (s->device == NULL) return;
  step->args = s->device;
  for (uint32_t i = 0; i < step->nargs; i++) free(s->base[i]);
  s->device = NULL;
}
