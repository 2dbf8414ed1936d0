/* SPDX-License-Identifier: MIT
 * llama.c - llama.cpp as a peer of `bsrun model bench MODEL --peer llama` (docs/dev/benchmarks.md has the
 * lines that they exchange). scripts/peers builds it with the library. Prompts are token ids; of a prompt the
 * logits of the last token are made, as bsrun does. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "llama.h"

typedef struct peer {
  struct llama_model *model;
  struct llama_context *context;
  llama_token *ids;
  int32_t n;
  int filled; /* the cache holds the prompt */
} peer;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int fail(const char *why) {
  printf("error %s\n", why);
  return 1;
}

static void quiet(enum ggml_log_level level, const char *text, void *user) {
  (void)user;
  if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

/* Reads the data of a .npy file of i64 [1, n]. They begin after the header; bytes 8 and 9 are its length. */
static llama_token *read_ids(const char *path, int32_t *out_n) {
  unsigned char head[10];
  FILE *f = fopen(path, "rb");
  if (f == NULL || fread(head, 1, sizeof head, f) != sizeof head || fseek(f, 0, SEEK_END) != 0) return NULL;
  const long begin = 10 + head[8] + 256 * head[9], end = ftell(f);
  *out_n = (int32_t)((end - begin) / 8);
  llama_token *ids = malloc((size_t)(*out_n + 1) * sizeof *ids);
  fseek(f, begin, SEEK_SET);
  for (int32_t i = 0; ids != NULL && i < *out_n; i++) {
    int64_t id = 0;
    if (fread(&id, sizeof id, 1, f) != 1) *out_n = i;
    ids[i] = (llama_token)id;
  }
  fclose(f);
  return ids;
}

static int prefill(peer *p) {
  llama_memory_clear(llama_get_memory(p->context), false);
  p->filled = llama_decode(p->context, llama_batch_get_one(p->ids, p->n)) == 0;
  llama_synchronize(p->context);
  return p->filled;
}

static int decode(peer *p) {
  if (!p->filled && !prefill(p)) return 0;
  llama_memory_seq_rm(llama_get_memory(p->context), 0, p->n, -1);
  const int ok = llama_decode(p->context, llama_batch_get_one(p->ids, 1)) == 0;
  llama_synchronize(p->context);
  return ok;
}

static int write_logits(peer *p, const char *folder) {
  char path[4300], head[128];
  const int32_t words = llama_vocab_n_tokens(llama_model_get_vocab(p->model));
  snprintf(path, sizeof path, "%s/logits.npy", folder);
  const float *logits = prefill(p) ? llama_get_logits_ith(p->context, -1) : NULL;
  FILE *f = fopen(path, "wb");
  if (f == NULL || logits == NULL) return 0;
  int size =
      snprintf(head, sizeof head, "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, %d), }", words);
  while ((10 + size + 1) % 64 != 0) head[size++] = ' ';
  head[size++] = '\n';
  const unsigned char magic[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)size, 0};
  fwrite(magic, 1, sizeof magic, f);
  fwrite(head, 1, (size_t)size, f);
  const int ok = fwrite(logits, sizeof *logits, (size_t)words, f) == (size_t)words;
  return fclose(f) == 0 && ok;
}

static int answer(peer *p, char *line) {
  char work[16];
  unsigned long lead, n;
  line[strcspn(line, "\n")] = '\0';
  if (strncmp(line, "outputs ", 8) == 0) {
    if (!write_logits(p, line + 8)) return fail("llama_decode of the prompt failed");
    puts("done");
    return 0;
  }
  if (sscanf(line, "time %15s %lu %lu", work, &lead, &n) != 3) return fail("a line that is not known");
  int (*run)(peer *) = strcmp(work, "decode") == 0 ? decode : prefill;
  int ok = run != decode || p->filled || prefill(p);
  for (unsigned long i = 0; ok && i < lead; i++) ok = run(p);
  const double began = now();
  for (unsigned long i = 0; ok && i < n; i++) ok = run(p);
  if (!ok) return fail("llama_decode failed");
  printf("seconds %.9g\n", (now() - began) / (double)n);
  return 0;
}

static int open_peer(peer *p, int argc, char **argv) {
  int threads = 1, cache = 0;
  for (int i = 2; i + 1 < argc; i += 2) {
    if (strcmp(argv[i], "--threads") == 0) threads = atoi(argv[i + 1]);
    if (strcmp(argv[i], "--cache-tokens") == 0) cache = atoi(argv[i + 1]);
    if (strcmp(argv[i], "--input") == 0 && strchr(argv[i + 1], '=') != NULL)
      p->ids = read_ids(strchr(argv[i + 1], '=') + 1, &p->n);
  }
  if (p->ids == NULL || p->n < 1) return fail("--input NAME=FILE.npy with token ids is needed");
  llama_log_set(quiet, NULL);
  llama_backend_init();
  struct llama_model_params m = llama_model_default_params();
  p->model = llama_model_load_from_file(argv[1], m);
  if (p->model == NULL) return fail("the model does not open");
  struct llama_context_params c = llama_context_default_params();
  c.n_ctx = (uint32_t)(cache > p->n ? cache : p->n + 1);
  c.n_batch = c.n_ubatch = (uint32_t)(p->n > 512 ? p->n : 512);
  c.n_threads = c.n_threads_batch = threads;
  p->context = llama_init_from_model(p->model, c);
  return p->context == NULL ? fail("no context") : 0;
}

int main(int argc, char **argv) {
  char line[4200];
  peer p = {0};
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (argc < 2) return fail("usage: llama MODEL --threads N --cache-tokens N --input NAME=FILE.npy");
  int rc = open_peer(&p, argc, argv);
  if (rc == 0) printf("ready llama.cpp %s\n", LLAMA_PEER_VERSION);
  while (rc == 0 && fgets(line, sizeof line, stdin) != NULL) rc = answer(&p, line);
  if (p.context != NULL) llama_free(p.context);
  if (p.model != NULL) llama_model_free(p.model);
  free(p.ids);
  return rc;
}
