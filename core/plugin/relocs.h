/* SPDX-License-Identifier: MIT
 * relocs.h - whether a loader that applies a plugin's relocations writes only where it may. */
#ifndef BS_CORE_PLUGIN_RELOCS_H
#define BS_CORE_PLUGIN_RELOCS_H
#include "core/plugin/layout.h"

typedef struct bs_reloc_table {
  int64_t tag; /* DT_RELA or DT_JMPREL */
  const Elf64_Rela *entries;
  uint64_t n;
} bs_reloc_table;

/* The section that `tag` (DT_RELA or DT_JMPREL) of the checked dynamic table means; NULL: it has none. */
const Elf64_Shdr *bs_relocs_section(const bs_elf_view *view, const Elf64_Dyn *table, uint64_t n, int64_t tag);
/* NULL, or what is wrong with the relocations. */
const char *bs_relocs_check(const bs_elf_view *view, const Elf64_Dyn *table, uint64_t n,
                            const bs_reloc_table *relocs);
#endif
