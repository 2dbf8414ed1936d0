/* SPDX-License-Identifier: MIT
 * layout.h - whether a loader can map a plugin file and follow its dynamic table without leaving what it
 * mapped. ld.so trusts both; an overwritten header ends in SIGBUS or SIGSEGV there. */
#ifndef BS_CORE_PLUGIN_LAYOUT_H
#define BS_CORE_PLUGIN_LAYOUT_H
#include <elf.h>
#include <stdint.h>

#include "blockshock/blockshock.h"

typedef struct bs_elf_view {
  uint64_t size; /* of the file */
  const Elf64_Phdr *segments;
  uint32_t n_segments;
  const Elf64_Shdr *sections;
  uint32_t n_sections;
} bs_elf_view;

/* NULL, or what is wrong with the segments. */
BS_API const char *bs_layout_segments(const bs_elf_view *view);
/* NULL, or what is wrong with the n entries of the dynamic table. */
const char *bs_layout_dynamic(const bs_elf_view *view, const Elf64_Dyn *table, uint64_t n);
/* The segment that holds the addresses, with all of `flags`; NULL: none. */
const Elf64_Phdr *bs_layout_holder(const bs_elf_view *view, uint64_t address, uint64_t size, uint32_t flags);
/* The first entry of a kind; NULL: none. */
const Elf64_Dyn *bs_layout_find(const Elf64_Dyn *table, uint64_t n, int64_t tag);
#endif
