/* SPDX-License-Identifier: MIT
 * peers.c - see peers.h. Each message is one run of the world of their own: its size, then its bytes. */
#include "lab/peers/peers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "core/plugin/registry.h"
#include "lab/error.h"

/* Followers wait while the leader judges or measures; the communicator notices the end of a process. */
#define PATIENCE_NS (INT64_C(86400) * 1000000000)

struct bs_peers {
  bs_world *world;
  int64_t patience_ns;  /* of a follower */
  int64_t of_leader_ns; /* 0: the world's deadline */
  uint32_t rank;
  int lost;  /* a message was lost */
  int ended; /* END or CHOSEN arrived, and bs_peers_await_end has not returned it yet */
  int32_t status;
};

typedef struct message {
  int64_t patience_ns, of_leader_ns;
  uint32_t root;
  uint64_t bytes;
  void *data; /* in the root's process its own; elsewhere malloc'ed by the run */
} message;

/* The leader waits only as long as for any collective: the others have nothing else to do. */
static int64_t patience(bs_rank *rank, int64_t of_leader, int64_t of_follower) {
  return bs_rank_get_api()->rank(rank) == 0 ? of_leader : of_follower;
}

static int32_t meet_main(bs_rank *rank, void *arg, bs_error *err) {
  const bs_collective what = {.struct_size = sizeof what,
                              .kind = BS_COLL_BARRIER,
                              .timeout_ns = patience(rank, 0, PATIENCE_NS),
                              .site = "lab.peers.meet",
                              .flags = BS_COLL_CONTROL};
  (void)arg;
  return bs_rank_collective_host(rank, &what, NULL, 0, NULL, 0, err);
}

int32_t bs_peers_meet(bs_peers *peers, bs_error *err) {
  const int32_t rc = peers == NULL ? BS_OK : bs_world_run(peers->world, meet_main, NULL, err);
  if (rc != BS_OK) peers->lost = 1;
  return rc;
}

static int32_t broadcast(bs_rank *rank, const message *m, void *data, uint64_t bytes, bs_error *err) {
  const bs_collective what = {.struct_size = sizeof what,
                              .kind = BS_COLL_BROADCAST,
                              .root = m->root,
                              .dtype_in = BS_U8,
                              .dtype_out = BS_U8,
                              .rows = 1,
                              .count = bytes,
                              .timeout_ns = patience(rank, m->of_leader_ns, m->patience_ns),
                              .site = "lab.peers",
                              .flags = BS_COLL_CONTROL};
  return bs_rank_collective_host(rank, &what, data, bytes, data, bytes, err);
}

static int32_t pass_on(bs_rank *rank, void *arg, bs_error *err) {
  message *m = arg;
  const int mine = bs_rank_get_api()->rank(rank) == m->root;
  int32_t rc = broadcast(rank, m, &m->bytes, sizeof m->bytes, err);
  if (rc != BS_OK || m->bytes == 0) return rc;
  if (!mine && (m->data = malloc((size_t)m->bytes)) == NULL)
    return bs_no_memory(err, "%llu bytes of rank %u", (unsigned long long)m->bytes, m->root);
  return broadcast(rank, m, m->data, m->bytes, err);
}

static int32_t share(bs_peers *peers, message *m, bs_error *err) {
  m->patience_ns = peers->patience_ns;
  m->of_leader_ns = peers->of_leader_ns;
  const int32_t rc = bs_world_run(peers->world, pass_on, m, err);
  if (rc != BS_OK) peers->lost = 1;
  if (rc != BS_OK && m->root != peers->rank) {
    free(m->data);
    m->data = NULL;
  }
  return rc;
}

int32_t bs_peers_open(bs_context *context, const char *comm, uint32_t world_size, double timeout_s,
                      bs_peers **out, bs_error *err) {
  bs_attachment here;
  *out = NULL;
  int32_t rc = bs_context_attach(context, comm, &here, err);
  if (rc != BS_OK || here.world_size == 0) return rc;
  if (here.world_size != world_size) { /* a world of one too: its followers would wait for a leader */
    bs_error_set(err, BS_CONFIG, "BS-WORLD-SIZE", "a world of %u ranks, but %u processes were started",
                 world_size, here.world_size);
    bs_error_hint(err, "-P %u, or start as many processes", here.world_size);
    return BS_CONFIG;
  }
  if (world_size == 1) return BS_OK;
  bs_peers *peers = calloc(1, sizeof *peers);
  if (peers == NULL) return bs_no_memory(err, "what ranks tell");
  peers->rank = here.rank;
  peers->patience_ns = PATIENCE_NS;
  const bs_world_options options = {.struct_size = sizeof options,
                                    .world_size = world_size,
                                    .backend = "ref",
                                    .comm = bs_innermost(comm), /* faults are only for the measured world */
                                    .threads_per_rank = 1,
                                    .sync_mode = BS_SYNC_NONE,
                                    .timeout_s = timeout_s};
  rc = bs_world_create(context, &options, &peers->world, err);
  if (rc != BS_OK) {
    free(peers);
    return rc;
  }
  *out = peers;
  return BS_OK;
}

void bs_peers_close(bs_peers *peers) {
  if (peers == NULL) return;
  bs_world_destroy(peers->world);
  free(peers);
}

int bs_peers_lead(const bs_peers *peers) {
  return peers == NULL || peers->rank == 0;
}

int bs_peers_lost(const bs_peers *peers) {
  return peers != NULL && peers->lost;
}

int32_t bs_peers_text(bs_peers *peers, const char *text, char **out_text, bs_error *err) {
  message m = {0};
  *out_text = NULL;
  if (peers == NULL) return BS_OK;
  if (peers->rank == 0) {
    m.data = (void *)(uintptr_t)text; /* only read */
    m.bytes = strlen(text) + 1;
  }
  const int32_t rc = share(peers, &m, err);
  if (rc != BS_OK || peers->rank == 0) return rc;
  if (m.bytes == 0 || m.data == NULL)
    return bs_error_set(err, BS_INTERNAL, "BS-PEERS-WORD", "rank 0 tells nothing where a text was due");
  ((char *)m.data)[m.bytes - 1] = '\0';
  *out_text = m.data;
  return BS_OK;
}

int32_t bs_peers_tell(bs_peers *peers, const bs_told *told, bs_error *err) {
  bs_told copy = *told;
  message m = {.bytes = sizeof copy, .data = &copy};
  return peers == NULL || peers->rank != 0 ? BS_OK : share(peers, &m, err);
}

int32_t bs_peers_tell_soon(bs_peers *peers, const bs_told *told, double seconds, bs_error *err) {
  if (peers == NULL) return BS_OK;
  peers->of_leader_ns = (int64_t)(seconds * 1e9);
  const int32_t rc = bs_peers_tell(peers, told, err);
  peers->of_leader_ns = 0;
  return rc;
}

int32_t bs_peers_hear(bs_peers *peers, bs_told *out, bs_error *err) {
  message m = {0};
  memset(out, 0, sizeof *out);
  int32_t rc = share(peers, &m, err);
  if (rc != BS_OK) return rc;
  if (m.bytes == sizeof *out)
    memcpy(out, m.data, sizeof *out);
  else
    rc = bs_error_set(err, BS_INTERNAL, "BS-PEERS-WORD", "rank 0 tells %llu bytes where a word was due",
                      (unsigned long long)m.bytes);
  free(m.data);
  if (rc == BS_OK && (out->word == BS_WORD_END || out->word == BS_WORD_CHOSEN)) {
    peers->ended = 1;
    peers->status = out->status;
  }
  return rc;
}

int32_t bs_peers_await_end(bs_peers *peers, double seconds, int32_t *out_status, bs_error *err) {
  bs_told told;
  int32_t rc = BS_OK;
  if (seconds > 0.0) peers->patience_ns = (int64_t)(seconds * 1e9);
  while (rc == BS_OK && !peers->ended) rc = bs_peers_hear(peers, &told, err);
  *out_status = peers->status;
  peers->ended = 0;
  peers->patience_ns = PATIENCE_NS;
  return rc;
}

const char *bs_peers_alone(const bs_context *context, const char *comm) {
  const bs_comm *found = NULL;
  void *state = NULL;
  bs_context *asked = (bs_context *)(uintptr_t)context; /* finding opens a plugin that is open by now */
  if (bs_find_comm(asked, comm, &found, &state, NULL) != BS_OK) return comm;
  return found->launch == BS_LAUNCH_ATTACHED ? "threads" : comm;
}

/* ---- configurations ------------------------------------------------------------------------------ */

/* The start of the first line that differs between two texts of "key=value" lines. */
static size_t first_difference(const char *a, const char *b) {
  size_t i = 0, line = 0;
  while (a[i] != '\0' && a[i] == b[i]) {
    if (a[i++] == '\n') line = i;
  }
  return line;
}

/* Two texts of "key=value" lines, this rank's and rank 0's: all learn of the first difference. */
typedef struct comparison {
  const char *mine, *first;
} comparison;

static int32_t compare_main(bs_rank *rank, void *arg, bs_error *err) {
  const comparison *c = arg;
  const bs_collective same = {.struct_size = sizeof same,
                              .kind = BS_COLL_BARRIER,
                              .site = "lab.peers.same",
                              .flags = BS_COLL_CONTROL};
  if (strcmp(c->mine, c->first) == 0) return bs_rank_collective_host(rank, &same, NULL, 0, NULL, 0, err);
  const size_t at = first_difference(c->mine, c->first);
  const char *own = c->mine + at, *first = c->first + at;
  bs_error_set(err, BS_MISMATCH, "BS-RANK-CONFIG", "rank %u is configured with %.*s, rank 0 with %.*s",
               bs_rank_get_api()->rank(rank), (int)strcspn(own, "\n"), own, (int)strcspn(first, "\n"), first);
  bs_error_hint(err, "start every rank with the same options and files");
  return BS_MISMATCH;
}

/* "a.b=value" lines. */
static void flatten(const bs_node *node, const char *path, bs_text *out) {
  char name[256];
  for (const bs_node *n = node->first; n != NULL; n = n->next) {
    snprintf(name, sizeof name, "%s%s%s", path, path[0] != '\0' ? "." : "", n->key != NULL ? n->key : "-");
    if (strcmp(name, "logging.run_group") == 0 || strcmp(name, "run_id") == 0) continue;
    if (n->kind == BS_NODE_SCALAR)
      bs_text_printf(out, "%s=%s\n", name, n->text);
    else
      flatten(n, name, out);
  }
}

int32_t bs_peers_compare(bs_peers *peers, const bs_node *config, const char *extra, bs_error *err) {
  bs_text text = {0};
  if (peers == NULL) return BS_OK;
  flatten(config, "", &text);
  bs_text_printf(&text, "%s\n", extra);
  char *first = NULL;
  int32_t rc =
      text.failed ? bs_no_memory(err, "a configuration") : bs_peers_text(peers, text.data, &first, err);
  comparison c = {.mine = text.data, .first = first != NULL ? first : text.data};
  if (rc == BS_OK) rc = bs_world_run(peers->world, compare_main, &c, err);
  free(first);
  bs_text_free(&text);
  return rc;
}
