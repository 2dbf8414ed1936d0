/* SPDX-License-Identifier: MIT
 * asks.c - the table of ask.h: open addressing, half full at most. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "sim/ask.h"
#include "sim/device.h"

enum { SLOTS = 2 * SIM_ASKS_KEPT };

typedef struct entry {
  uint64_t key[SIM_ASK_WORDS];
  sim_inside_time time;
} entry;

struct sim_asks {
  sim_device device;
  uint32_t n, slots[SLOTS]; /* the number of an entry, from 1 on; 0: free */
  entry entries[SIM_ASKS_KEPT];
};

int32_t sim_asks_open(const char *text, sim_asks **out, bs_error *err) {
  sim_asks *asks = calloc(1, sizeof *asks);
  *out = NULL;
  if (asks == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-SIM-MEMORY", "no memory for the times of a device");
  const int32_t rc = sim_device_read(text, &asks->device, err);
  if (rc != BS_OK)
    free(asks);
  else
    *out = asks;
  return rc;
}

void sim_asks_close(sim_asks *asks) {
  free(asks);
}

const sim_device *sim_asks_device(const sim_asks *asks) {
  return &asks->device;
}

_Static_assert(sizeof(sim_ask) == SIM_ASK_WORDS * sizeof(uint64_t), "the key is all of a question");

static void key_of(const sim_ask *a, uint64_t out[SIM_ASK_WORDS]) {
  memcpy(out, a, sizeof *a);
}

/* The slot of the key, or the free one where it belongs. */
static uint32_t slot_of(const sim_asks *asks, const uint64_t *key) {
  uint64_t h = UINT64_C(0xcbf29ce484222325);
  for (uint32_t i = 0; i < SIM_ASK_WORDS; i++) {
    h = (h ^ key[i]) * UINT64_C(0x100000001b3);
    h ^= h >> 29;
  }
  uint32_t at = (uint32_t)(h % SLOTS);
  while (asks->slots[at] != 0 &&
         memcmp(asks->entries[asks->slots[at] - 1].key, key, SIM_ASK_WORDS * sizeof *key) != 0)
    at = (at + 1) % SLOTS;
  return at;
}

int sim_asks_find(const sim_asks *asks, const sim_ask *ask, sim_inside_time *out) {
  uint64_t key[SIM_ASK_WORDS];
  key_of(ask, key);
  const uint32_t number = asks->slots[slot_of(asks, key)];
  if (number == 0) return 0;
  *out = asks->entries[number - 1].time;
  return 1;
}

void sim_asks_keep(sim_asks *asks, const sim_ask *ask, const sim_inside_time *time) {
  uint64_t key[SIM_ASK_WORDS];
  key_of(ask, key);
  uint32_t at = slot_of(asks, key);
  if (asks->slots[at] != 0) return; /* another thread was first */
  if (asks->n == SIM_ASKS_KEPT) {
    memset(asks->slots, 0, sizeof asks->slots);
    asks->n = 0;
    at = slot_of(asks, key);
  }
  entry *e = &asks->entries[asks->n++];
  memcpy(e->key, key, sizeof key);
  e->time = *time;
  asks->slots[at] = asks->n;
}
