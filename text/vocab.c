/* SPDX-License-Identifier: MIT
 * vocab.c - tokens in one block of text, found through a hash table whose seed is secret: no file
 * can make it slow. Called by read.c while a
 * tokenizer is opened, and then only read. */
#include "text/vocab.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "core/base/error.h"

uint64_t bs_tok_mix(uint64_t x) {
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93u;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93u;
  return x ^ x >> 32;
}

static uint64_t hash(uint64_t seed, const char *text, size_t bytes) {
  uint64_t h = seed ^ bytes * 0x9e3779b97f4a7c15u, word;
  for (; bytes >= 8; bytes -= 8, text += 8) {
    memcpy(&word, text, 8);
    h = bs_tok_mix(h ^ word) + 0x9e3779b97f4a7c15u;
  }
  word = 0;
  memcpy(&word, text, bytes);
  return bs_tok_mix(h ^ word);
}

static size_t slot_of(const bs_tok_vocab *v, const char *text, size_t bytes) {
  size_t slot = (size_t)hash(v->seed, text, bytes) & (v->n_slots - 1);
  for (; v->slots[slot] != 0; slot = (slot + 1) & (v->n_slots - 1)) {
    const uint32_t id = v->slots[slot] - 1;
    if (v->bytes[id] == bytes && memcmp(v->texts.data + v->at[id] - 1, text, bytes) == 0) break;
  }
  return slot;
}

static int grow_slots(bs_tok_vocab *v) {
  const size_t n = v->n_slots == 0 ? 1024 : v->n_slots * 2;
  uint32_t *slots = calloc(n, sizeof *slots);
  if (slots == NULL) return 0;
  if (v->seed == 0 && getrandom(&v->seed, sizeof v->seed, 0) != (ssize_t)sizeof v->seed) v->seed = 1;
  free(v->slots);
  v->slots = slots;
  v->n_slots = n;
  for (uint32_t id = 0; id < v->size; id++)
    if (v->at[id] != 0) v->slots[slot_of(v, v->texts.data + v->at[id] - 1, v->bytes[id])] = id + 1;
  return 1;
}

static int grow_ids(bs_tok_vocab *v, uint32_t need) {
  uint32_t room = v->room == 0 ? 1024 : v->room;
  while (room < need) room *= 2;
  size_t *at = realloc(v->at, room * sizeof *at);
  if (at == NULL) return 0;
  v->at = at;
  uint32_t *bytes = realloc(v->bytes, room * sizeof *bytes);
  if (bytes == NULL) return 0;
  v->bytes = bytes;
  memset(at + v->room, 0, (room - v->room) * sizeof *at);
  memset(bytes + v->room, 0, (room - v->room) * sizeof *bytes);
  v->room = room;
  return 1;
}

int32_t bs_tok_vocab_add(bs_tok_vocab *v, const char *text, size_t bytes, int64_t id, bs_error *err) {
  const int shown = bytes < 60 ? (int)bytes : 60;
  if (bytes == 0 || bytes > BS_TOK_MAX_BYTES)
    return bs_error_set(err, BS_INPUT, "BS-TOK-FORMAT", "token %lld has %zu bytes; 1 to %d are read",
                        (long long)id, bytes, BS_TOK_MAX_BYTES);
  if (id < 0 || id >= BS_TOK_MAX_TOKENS)
    return bs_error_set(err, BS_INPUT, "BS-TOK-FORMAT", "token '%.*s' has the id %lld; 0 to %d are read",
                        shown, text, (long long)id, BS_TOK_MAX_TOKENS - 1);
  if (((uint32_t)id >= v->room && !grow_ids(v, (uint32_t)id + 1)) ||
      (((size_t)v->count + 1) * 2 > v->n_slots && !grow_slots(v)))
    return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for a vocabulary");
  const size_t slot = slot_of(v, text, bytes);
  if (v->slots[slot] != 0)
    return bs_error_set(err, BS_INPUT, "BS-TOK-FORMAT", "token '%.*s' is there twice, as %u and as %lld",
                        shown, text, v->slots[slot] - 1, (long long)id);
  if (v->at[id] != 0)
    return bs_error_set(err, BS_INPUT, "BS-TOK-FORMAT", "two tokens have the id %lld: '%.60s' and '%.*s'",
                        (long long)id, v->texts.data + v->at[id] - 1, shown, text);
  const size_t at = v->texts.size;
  bs_text_append(&v->texts, text, bytes);
  bs_text_append(&v->texts, "", 1);
  if (v->texts.failed) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for a vocabulary");
  v->at[id] = at + 1;
  v->bytes[id] = (uint32_t)bytes;
  v->slots[slot] = (uint32_t)id + 1;
  v->count++;
  if ((uint32_t)id >= v->size) v->size = (uint32_t)id + 1;
  if (bytes > v->longest) v->longest = (uint32_t)bytes;
  return BS_OK;
}

uint32_t bs_tok_vocab_find(const bs_tok_vocab *v, const char *text, size_t bytes) {
  if (v->n_slots == 0 || bytes > v->longest) return BS_TOK_NONE;
  const uint32_t found = v->slots[slot_of(v, text, bytes)];
  return found == 0 ? BS_TOK_NONE : found - 1;
}

const char *bs_tok_vocab_text(const bs_tok_vocab *v, int64_t id, size_t *out_bytes) {
  if (id < 0 || id >= (int64_t)v->size || v->at[id] == 0) return NULL;
  if (out_bytes != NULL) *out_bytes = v->bytes[id];
  return v->texts.data + v->at[id] - 1;
}

void bs_tok_vocab_free(bs_tok_vocab *v) {
  bs_text_free(&v->texts);
  free(v->at);
  free(v->bytes);
  free(v->slots);
  memset(v, 0, sizeof *v);
}
