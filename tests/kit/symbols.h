/* SPDX-License-Identifier: MIT
 * symbols.h - the dynamic symbols of a plugin file: what it exports, and what of ours it would need. */
#ifndef BS_TESTS_KIT_SYMBOLS_H
#define BS_TESTS_KIT_SYMBOLS_H

typedef struct kit_symbols {
  int exported, undefined_ours;
  char text[2048]; /* the names of both, a blank before each */
} kit_symbols;

/* Of a file that bs_elf_read has accepted. 0, or -1 when it cannot be read. */
int kit_symbols_read(const char *path, kit_symbols *out);
#endif
