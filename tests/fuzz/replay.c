/* SPDX-License-Identifier: MIT
 * replay.c - main of a fuzz target built without libFuzzer: gives it each file of the folders named, and each
 * of those files cut at every length up to 4 KiB. Fails when there was no file. */
#include <dirent.h>
#include <string.h>

#include "tests/fuzz/input.h"

enum { MAX_FILE = 1 << 20, CUTS = 4096 };

/* The bytes are copied so that a sanitizer sees a read past the end. */
static void give(const uint8_t *data, size_t size) {
  uint8_t *exact = malloc(size == 0 ? 1 : size);
  if (exact == NULL) abort();
  memcpy(exact, data, size);
  LLVMFuzzerTestOneInput(exact, size);
  free(exact);
}

static int replay_file(const char *path, uint8_t *buffer) {
  FILE *f = fopen(path, "rb");
  if (f == NULL) return 0;
  size_t size = fread(buffer, 1, MAX_FILE, f);
  fclose(f);
  give(buffer, size);
  for (size_t cut = 0; cut < size && cut < CUTS; cut++) give(buffer, cut);
  return 1;
}

int main(int argc, char **argv) {
  int files = 0, failed = 0;
  uint8_t *buffer = malloc(MAX_FILE);
  if (buffer == NULL) return 1;
  for (int i = 1; i < argc; i++) {
    char path[4096];
    DIR *d = opendir(argv[i]);
    if (d == NULL) {
      perror(argv[i]);
      failed = 1;
      continue;
    }
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
      if (e->d_name[0] == '.') continue;
      snprintf(path, sizeof path, "%s/%s", argv[i], e->d_name);
      if (replay_file(path, buffer))
        files++;
      else
        failed = 1;
    }
    closedir(d);
  }
  free(buffer);
  printf("%d files replayed\n", files);
  return failed || files == 0;
}
