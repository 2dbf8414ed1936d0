/* SPDX-License-Identifier: MIT
 * flight.c - reads the file of core/world/flight.h after a process has died. */
#include <stdlib.h>
#include <string.h>

#include "core/world/flight.h"
#include "lab/error.h"
#include "lab/store/env.h"
#include "lab/store/folder.h"
#include "lab/store/why.h"

static const bs_flight_slot *newest_of(const bs_flight_file *f, uint32_t rank) {
  const bs_flight_slot *newest = NULL;
  for (uint32_t i = 0; i < BS_FLIGHT_SLOTS; i++) {
    const bs_flight_slot *s = &f->slot[rank][i];
    if (s->state != BS_FLIGHT_EMPTY && (newest == NULL || s->seq > newest->seq)) newest = s;
  }
  return newest;
}

static json_t *row_of(const bs_flight_slot *s, uint32_t rank, uint64_t last_ns) {
  static const char *const states[] = {"", "in it", "left it", "failed in it"};
  char site[BS_FLIGHT_SITE + 1] = "";
  memcpy(site, s->site, BS_FLIGHT_SITE);
  return json_pack("{s:i, s:s, s:s, s:I, s:o, s:s, s:I, s:f}", "rank", (int)rank, "op",
                   bs_name_of(BS_NAMES_COLL, s->kind), "dtype", bs_dtype_name(s->dtype), "count",
                   (json_int_t)s->count, "site", bs_env_string(site), "state",
                   states[s->state < 4 ? s->state : 3], "seq", (json_int_t)s->seq, "since_s",
                   (double)(last_ns - s->ns) * 1e-9);
}

int32_t bs_flight_read(int folder_fd, json_t **out_ranks, bs_error *err) {
  char *text;
  size_t size;
  uint64_t last_ns = 0;
  *out_ranks = NULL;
  int32_t rc = bs_folder_file(folder_fd, "flight", &text, &size, err);
  if (rc != BS_OK) return rc;
  const bs_flight_file *f = (const bs_flight_file *)(const void *)text; /* malloc'ed: aligned */
  if (text != NULL && (size != sizeof *f || memcmp(f->magic, "BSFLIGHT", 8) != 0 || f->version != 1)) {
    free(text);
    return bs_error_set(err, BS_CORRUPT, "BS-FLIGHT", "the file `flight` is no flight recorder's");
  }
  *out_ranks = json_array();
  for (uint32_t r = 0; text != NULL && r < BS_FLIGHT_RANKS; r++) {
    const bs_flight_slot *s = newest_of(f, r);
    if (s != NULL && s->ns > last_ns) last_ns = s->ns;
  }
  for (uint32_t r = 0; text != NULL && r < BS_FLIGHT_RANKS; r++) {
    const bs_flight_slot *s = newest_of(f, r);
    if (s != NULL) json_array_append_new(*out_ranks, row_of(s, r, last_ns));
  }
  free(text);
  return *out_ranks != NULL ? BS_OK : bs_no_memory(err, "ranks");
}
