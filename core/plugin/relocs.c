/* SPDX-License-Identifier: MIT
 * relocs.c - see relocs.h. Called by note.c after layout.c has vouched for the dynamic table. What a
 * relocation adds cannot be judged, as little as code can; where it writes, the symbol it names and the
 * functions that the loader itself calls can be. Kinds that the loader does not know it refuses itself. */
#include "core/plugin/relocs.h"

#include <stddef.h>

#if defined(__x86_64__)
enum {
  NONE = R_X86_64_NONE,
  RELATIVE = R_X86_64_RELATIVE,
  ADDRESS = R_X86_64_64,
  INDIRECT = R_X86_64_IRELATIVE,
  COPY = R_X86_64_COPY,
  DESCRIPTOR = R_X86_64_TLSDESC
};
static int is_short(uint32_t type) {
  return type == R_X86_64_32 || type == R_X86_64_PC32 || type == R_X86_64_SIZE32;
}
#else
enum {
  NONE = R_AARCH64_NONE,
  RELATIVE = R_AARCH64_RELATIVE,
  ADDRESS = R_AARCH64_ABS64,
  INDIRECT = R_AARCH64_IRELATIVE,
  COPY = R_AARCH64_COPY,
  DESCRIPTOR = R_AARCH64_TLSDESC
};
static int is_short(uint32_t type) {
  return type == R_AARCH64_ABS32 || type == R_AARCH64_PREL32;
}
#endif

static uint64_t value(const Elf64_Dyn *table, uint64_t n, int64_t tag) {
  const Elf64_Dyn *entry = bs_layout_find(table, n, tag);
  return entry != NULL ? entry->d_un.d_val : 0;
}

const Elf64_Shdr *bs_relocs_section(const bs_elf_view *v, const Elf64_Dyn *table, uint64_t n, int64_t tag) {
  const uint64_t size = value(table, n, tag == DT_RELA ? DT_RELASZ : DT_PLTRELSZ);
  const uint64_t address = value(table, n, tag);
  for (uint32_t i = 0; i < v->n_sections; i++) {
    const Elf64_Shdr *s = &v->sections[i];
    if (s->sh_type == SHT_RELA && s->sh_addr == address && s->sh_size == size && size > 0) return s;
  }
  return NULL;
}

static uint64_t count_symbols(const bs_elf_view *v, const Elf64_Dyn *table, uint64_t n) {
  const uint64_t address = value(table, n, DT_SYMTAB);
  for (uint32_t i = 0; i < v->n_sections; i++) {
    const Elf64_Shdr *s = &v->sections[i];
    if (s->sh_type == SHT_DYNSYM && s->sh_addr == address) return s->sh_size / sizeof(Elf64_Sym);
  }
  return 0;
}

static int is_code(const bs_elf_view *v, const Elf64_Rela *r) {
  return bs_layout_holder(v, (uint64_t)r->r_addend, 1, PF_R | PF_X) != NULL;
}

/* The target of relocations. Thousands of them write to the same few segments, so the last segment is tried
 * first. */
typedef struct target {
  const bs_elf_view *view;
  const Elf64_Phdr *dynamic, *last;
  uint64_t symbols;
} target;

static int is_writable(target *to, uint64_t address, uint64_t size) {
  const Elf64_Phdr *p = to->last;
  if (p != NULL && address >= p->p_vaddr && address - p->p_vaddr < p->p_memsz &&
      size <= p->p_memsz - (address - p->p_vaddr))
    return 1;
  p = bs_layout_holder(to->view, address, size, PF_R | PF_W);
  if (p != NULL) to->last = p;
  return p != NULL;
}

static const char *check_one(target *to, const Elf64_Rela *r) {
  const uint32_t type = (uint32_t)ELF64_R_TYPE(r->r_info);
  const uint64_t at = r->r_offset, size = is_short(type) ? 4 : type == DESCRIPTOR ? 16 : 8;
  const Elf64_Phdr *d = to->dynamic;
  if (type == NONE) return NULL;
  if (type == COPY) return "has a relocation of a kind that only programs have";
  if (ELF64_R_SYM(r->r_info) >= to->symbols) return "has a relocation by a symbol outside its symbol table";
  if (!is_writable(to, at, size)) return "has a relocation outside its writable segments";
  if (d != NULL && at < d->p_vaddr + d->p_memsz && at + size > d->p_vaddr)
    return "has a relocation that changes its dynamic table";
  if (type == INDIRECT && !is_code(to->view, r)) return "has a relocation by a function outside its code";
  return NULL;
}

/* The loader calls what these arrays hold: each entry is relocated, by a symbol or to code. Relocations in
 * the packed form (DT_RELR) have their places elsewhere, and their values in the data. */
static const char *check_calls(const bs_elf_view *v, const Elf64_Dyn *table, uint64_t n,
                               const bs_reloc_table *t, int64_t array, int64_t array_size) {
  const uint64_t from = value(table, n, array), size = value(table, n, array_size);
  uint64_t found = 0;
  if (bs_layout_find(table, n, DT_RELR) != NULL) return NULL;
  for (uint64_t i = 0; i < t->n; i++) {
    const Elf64_Rela *r = &t->entries[i];
    const uint32_t type = (uint32_t)ELF64_R_TYPE(r->r_info);
    if (type == NONE || r->r_offset < from || r->r_offset - from >= size) continue;
    if ((r->r_offset - from) % 8 != 0 || (type != ADDRESS && type != RELATIVE) ||
        (type == RELATIVE && !is_code(v, r)))
      return "has an initialiser that is not in its code";
    found++;
  }
  return found == size / 8 ? NULL : "has an initialiser without a relocation";
}

const char *bs_relocs_check(const bs_elf_view *v, const Elf64_Dyn *table, uint64_t n,
                            const bs_reloc_table *t) {
  target to = {v, NULL, NULL, count_symbols(v, table, n)};
  const uint64_t relative = t->tag == DT_RELA ? value(table, n, DT_RELACOUNT) : 0;
  const char *wrong = NULL;
  for (uint32_t i = 0; i < v->n_segments; i++)
    if (v->segments[i].p_type == PT_DYNAMIC) to.dynamic = &v->segments[i];
  /* The loader asserts that as many as DT_RELACOUNT says are relative, and ends the process. */
  for (uint64_t i = 0; i < relative && i < t->n; i++)
    if (ELF64_R_TYPE(t->entries[i].r_info) != RELATIVE)
      return "has a dynamic table that counts too many relative relocations";
  for (uint64_t i = 0; i < t->n && wrong == NULL; i++) wrong = check_one(&to, &t->entries[i]);
  if (wrong == NULL && t->tag == DT_RELA) wrong = check_calls(v, table, n, t, DT_INIT_ARRAY, DT_INIT_ARRAYSZ);
  if (wrong == NULL && t->tag == DT_RELA) wrong = check_calls(v, table, n, t, DT_FINI_ARRAY, DT_FINI_ARRAYSZ);
  return wrong;
}
