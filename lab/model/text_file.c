/* SPDX-License-Identifier: MIT
 * text_file.c - see text_file.h. */
#include "lab/model/text_file.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "formats/map.h"

enum { MAX_BYTES = 64 << 20 };

int32_t bs_text_file_read(const char *path, const char *id, char **out_text, bs_error *err) {
  bs_map map;
  int32_t rc = bs_map_open(path, id, &map, err);
  if (rc != BS_OK) return rc;
  char *text = map.bytes > MAX_BYTES ? NULL : malloc(map.bytes + 1);
  if (map.bytes > MAX_BYTES) {
    rc = bs_error_set(err, BS_INPUT, id, "%.200s has %llu bytes; at most %d are read", path,
                      (unsigned long long)map.bytes, MAX_BYTES);
  } else if (text == NULL) {
    rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for %.200s", path);
  } else {
    rc = bs_map_pread(&map, path, 0, text, map.bytes, err);
    text[map.bytes] = '\0';
    if (rc == BS_OK && strlen(text) != map.bytes)
      rc = bs_error_set(err, BS_INPUT, id, "%.200s holds a zero byte: it is no text", path);
  }
  bs_map_close(&map);
  if (rc == BS_OK) {
    *out_text = text;
  } else {
    free(text);
  }
  return rc;
}

char *bs_text_file_line(char **rest) {
  char *line = *rest;
  if (*line == '\0') return NULL;
  const size_t n = strcspn(line, "\n");
  *rest = line + n + (line[n] == '\n');
  line[n] = '\0';
  if (n > 0 && line[n - 1] == '\r') line[n - 1] = '\0';
  return line;
}
