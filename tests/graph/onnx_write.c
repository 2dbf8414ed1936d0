/* SPDX-License-Identifier: MIT
 * onnx_write.c - makes an ONNX file of a text: onnx_write FILE <TEXT. For scripts. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/graph/onnx_text.h"

int main(int argc, char **argv) {
  static char text[1 << 16];
  char why[200] = "";
  unsigned char *bytes = NULL;
  size_t size = 0;
  if (argc != 2) return fprintf(stderr, "usage: onnx_write FILE <TEXT\n"), 2;
  text[fread(text, 1, sizeof text - 1, stdin)] = '\0';
  if (!onnx_text(text, ONNX_TEXT_RAW, &bytes, &size, why, sizeof why))
    return fprintf(stderr, "onnx_write: %s\n", why), 4;
  FILE *f = fopen(argv[1], "wb");
  const int ok = f != NULL && fwrite(bytes, 1, size, f) == size && fclose(f) == 0;
  free(bytes);
  if (!ok) perror(argv[1]);
  return ok ? 0 : 1;
}
