/* SPDX-License-Identifier: MIT
 * input.h - gives a fuzzer's bytes to a reader that takes a path: one anonymous memory file, rewritten. */
#ifndef BS_TESTS_FUZZ_INPUT_H
#define BS_TESTS_FUZZ_INPUT_H
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* What libFuzzer and replay.c call. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The path of a file that holds exactly these bytes, until the next call. */
static inline const char *fuzz_path(const uint8_t *data, size_t size) {
  static int fd = -1;
  static char path[64];
  if (fd < 0) {
    fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  }
  if (ftruncate(fd, 0) != 0) abort();
  for (size_t done = 0; done < size;) {
    ssize_t n = pwrite(fd, data + done, size - done, (off_t)done);
    if (n <= 0) abort();
    done += (size_t)n;
  }
  return path;
}

/* Touch every byte, so that a view outside its mapping is found. */
static inline void fuzz_touch(const void *data, uint64_t bytes) {
  static volatile unsigned char sink;
  const unsigned char *p = data;
  for (uint64_t i = 0; i < bytes; i++) sink = (unsigned char)(sink + p[i]);
}
#endif
