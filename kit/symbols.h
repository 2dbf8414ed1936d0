/* SPDX-License-Identifier: MIT
 * symbols.h - the dynamic symbols of a plugin file: its exports, and the library symbols that it would
 * need. */
#ifndef BS_KIT_SYMBOLS_H
#define BS_KIT_SYMBOLS_H

#include <stddef.h>
#include <stdint.h>

typedef struct kit_symbols {
  int exported, undefined_ours;
  char text[2048]; /* the names of both, a blank before each */
} kit_symbols;

/* Thread-local storage: bytes of the file's own (PT_TLS), and the first symbol of another's that it needs. */
typedef struct kit_tls {
  uint64_t bytes;
  char needs[128];
} kit_tls;

/* For a file that bs_elf_read has accepted. 0; -1: it cannot be read. */
int kit_symbols_read(const char *path, kit_symbols *out);
int kit_tls_read(const char *path, kit_tls *out);
/* The object at an address of the file: its name and its end; "" if the file has no name for it. */
void kit_symbol_at(const char *path, uint64_t address, char *out_name, size_t size, uint64_t *out_end);
#endif
