/* SPDX-License-Identifier: MIT
 * names.c - the table of names (names.h): open addressing, at most two thirds full. Called by the ONNX reader
 * and by importers. */
#include "formats/names.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct bs_names_slot {
  const bs_span *name; /* NULL: free */
  uint32_t hash, value;
};

static uint32_t hash_of(uint64_t seed, bs_span name) {
  uint64_t h = seed ^ name.size;
  uint64_t at = 0;
  while (at < name.size) {
    uint64_t word = 0, n = name.size - at < 8 ? name.size - at : 8;
    memcpy(&word, name.data + at, (size_t)n);
    h = (h ^ word) * 0x9e3779b97f4a7c15u;
    h ^= h >> 29;
    at += n;
  }
  h = (h ^ seed) * 0xbf58476d1ce4e5b9u;
  return (uint32_t)(h >> 32);
}

/* The slot of a name, or the free one where it would stand. */
static uint32_t slot_of(const bs_names *names, bs_span name, uint32_t hash) {
  uint32_t i = hash & (names->capacity - 1);
  while (names->slots[i].name != NULL &&
         (names->slots[i].hash != hash || !bs_span_same(*names->slots[i].name, name)))
    i = (i + 1) & (names->capacity - 1);
  return i;
}

static int grow(bs_names *names) {
  bs_names larger = *names;
  if (names->capacity > UINT32_MAX / 4) return 0;
  larger.capacity = names->capacity == 0 ? 16 : names->capacity * 2;
  if (names->capacity == 0 && getrandom(&larger.seed, sizeof larger.seed, GRND_NONBLOCK) < 0)
    larger.seed =
        (uint64_t)(uintptr_t)&larger; /* where the loader put the stack is no secret, but not known either */
  larger.slots = calloc(larger.capacity, sizeof *larger.slots);
  if (larger.slots == NULL) return 0;
  for (uint32_t i = 0; i < names->capacity; i++) {
    const struct bs_names_slot *old = &names->slots[i];
    if (old->name != NULL) larger.slots[slot_of(&larger, *old->name, old->hash)] = *old;
  }
  free(names->slots);
  *names = larger;
  return 1;
}

int bs_names_add(bs_names *names, const bs_span *name, uint32_t value) {
  if (names->count >= names->capacity / 3 * 2 && !grow(names)) return -1;
  uint32_t hash = hash_of(names->seed, *name);
  struct bs_names_slot *slot = &names->slots[slot_of(names, *name, hash)];
  if (slot->name != NULL) return 0;
  *slot = (struct bs_names_slot){name, hash, value};
  names->count++;
  return 1;
}

uint32_t *bs_names_find(const bs_names *names, bs_span name) {
  if (names->capacity == 0) return NULL;
  struct bs_names_slot *slot = &names->slots[slot_of(names, name, hash_of(names->seed, name))];
  return slot->name == NULL ? NULL : &slot->value;
}

void bs_names_free(bs_names *names) {
  free(names->slots);
  memset(names, 0, sizeof *names);
}
