/* SPDX-License-Identifier: MIT
 * hosted.c - nodes that a device lacks run on the host, between nodes of the device: their inputs come down,
 * what they compute goes up. They are few where a device has the ops of graphs, and each is counted. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "graph/run/run.h"

static int32_t open_host(grank *rank, const char *backend, bs_error *err) {
  const bs_session_options o = {
      .struct_size = (uint32_t)sizeof o, .backend = backend, .threads = rank->threads};
  grank *host = calloc(1, sizeof *host);
  if (host == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a rank");
  const int32_t rc = grank_open(rank->context, &o, 1, host, err);
  host->refs = 1;
  if (rc == BS_OK)
    rank->host = host;
  else
    free(host);
  return rc;
}

int32_t ghosted_rank(grank *rank, grank **out_host, bs_error *err) {
  int32_t rc = BS_OK;
  if (rank->host == NULL) rc = open_host(rank, "cpu", err);
  if (rc == BS_NOT_FOUND) {
    bs_error_clear(err);
    rc = open_host(rank, "ref", err);
  }
  *out_host = rank->host;
  return rc;
}

static int32_t run_there(grank *host, const gstep *s, bs_error *err) {
  const int32_t rc = grank_enter(host, err);
  return rc == BS_OK ? grank_leave(host, bs_dispatch_run_unchecked(s->plan, s->args, NULL, err), err) : rc;
}

int32_t ghosted_run(gbinding *b, const gstep *step, bs_error *err) {
  gstep there = *step;
  gshadow shadow;
  int32_t rc = gshadow_take(b, &there, 1, &shadow, err);
  if (rc != BS_OK) return rc;
  rc = run_there(b->rank->host, &there, err);
  if (rc == BS_OK) rc = gshadow_up(b, &there, &shadow, err);
  gshadow_give(&there, &shadow);
  return rc;
}

int32_t ghosted_refuse(const gbinding *b, const uint32_t *nodes, uint32_t n, bs_error *err) {
  bs_text list = {0};
  for (uint32_t i = 0; i < n; i++) {
    const gnode *node = &b->g->nodes[nodes[i]];
    bs_text_printf(&list, "%s%s", i > 0 ? ", " : "", graph_op_name(node->op));
    if (node->origin != GNONE)
      bs_text_printf(&list, " of %s", graph_text_of(b->g, b->g->origins[node->origin].text));
  }
  bs_error_set(err, BS_UNSUPPORTED, "BS-GRAPH-DEVICE", "backend %.64s does not serve %u of %u nodes: %.700s",
               b->core->backend, n, b->n_steps, list.data != NULL ? list.data : "");
  bs_error_hint(err, "without no_fallback they run on the host");
  bs_text_free(&list);
  return BS_UNSUPPORTED;
}
