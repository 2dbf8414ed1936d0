/* SPDX-License-Identifier: MIT
 * layout.c - see layout.h. Called by note.c, which has read the tables and knows that they lie in the file.
 */
#include "core/plugin/layout.h"

#include <stddef.h>

#include "core/base/size.h"

enum { PAGE = 4096, MAX_ENTRIES = 4096 };
static const uint64_t MOST = UINT64_C(1) << 40; /* of addresses: far above any plugin, far below overflow */

static int whole(const Elf64_Phdr *load, uint64_t address, uint64_t size) {
  uint64_t end;
  return address >= load->p_vaddr && bs_add_u64(address, size, &end) && end <= load->p_vaddr + load->p_memsz;
}

const Elf64_Phdr *bs_layout_holder(const bs_elf_view *v, uint64_t address, uint64_t size, uint32_t flags) {
  for (uint32_t i = 0; i < v->n_segments; i++) {
    const Elf64_Phdr *p = &v->segments[i];
    if (p->p_type == PT_LOAD && (p->p_flags & flags) == flags && whole(p, address, size)) return p;
  }
  return NULL;
}

static const char *check_load(const Elf64_Phdr *p, uint64_t below) {
  if (p->p_vaddr >= MOST || p->p_memsz >= MOST) return "has a segment beyond any address of a plugin";
  if (p->p_filesz > p->p_memsz) return "has a segment larger in the file than in memory";
  if (p->p_memsz == 0) return "has an empty segment";
  if (p->p_align < PAGE || (p->p_align & (p->p_align - 1)) != 0 || p->p_align > MOST)
    return "has a segment whose alignment is no power of two of a page or more";
  if ((p->p_vaddr - p->p_offset) % p->p_align != 0)
    return "has a segment that does not fit its place in memory";
  if (p->p_vaddr / PAGE * PAGE < below) return "has segments that overlap or are out of order";
  if ((p->p_flags & ~(uint32_t)(PF_R | PF_W | PF_X)) != 0 || (p->p_flags & PF_R) == 0 ||
      (p->p_flags & (PF_W | PF_X)) == (PF_W | PF_X))
    return "has a segment with odd permissions";
  return NULL;
}

/* Checks that each section's segment has the section's permissions: code is executable, data writable. */
static const char *check_sections(const bs_elf_view *v) {
  for (uint32_t i = 0; i < v->n_sections; i++) {
    const Elf64_Shdr *s = &v->sections[i];
    if ((s->sh_flags & SHF_ALLOC) == 0 || s->sh_size == 0 || (s->sh_flags & SHF_TLS) != 0) continue;
    const uint32_t flags = PF_R | (s->sh_flags & SHF_WRITE ? (uint32_t)PF_W : 0u) |
                           (s->sh_flags & SHF_EXECINSTR ? (uint32_t)PF_X : 0u);
    const Elf64_Phdr *p = bs_layout_holder(v, s->sh_addr, s->sh_size, flags);
    if (p == NULL) return "has a section that no segment of its kind holds";
    if (s->sh_type == SHT_NOBITS) continue;
    if (s->sh_offset - p->p_offset != s->sh_addr - p->p_vaddr || s->sh_addr - p->p_vaddr > p->p_filesz ||
        s->sh_size > p->p_filesz - (s->sh_addr - p->p_vaddr))
      return "has a section that its segment does not map";
  }
  return NULL;
}

/* Up to where the loader may change the permissions of a segment's memory: to the end of its last block of
 * p_align (lld lets what becomes read-only end there), but not into another segment. */
static uint64_t reach(const bs_elf_view *v, const Elf64_Phdr *load) {
  const uint64_t most = load->p_vaddr + load->p_memsz;
  uint64_t end = (most + load->p_align - 1) / load->p_align * load->p_align;
  for (uint32_t i = 0; i < v->n_segments; i++) {
    const Elf64_Phdr *p = &v->segments[i];
    const uint64_t begin = p->p_vaddr / PAGE * PAGE;
    if (p->p_type == PT_LOAD && begin >= most && begin < end) end = begin;
  }
  return end;
}

/* Checks that the part which becomes read-only after relocation lies in its segment, and covers no zeros that
 * stay writable. */
static const char *check_relro(const bs_elf_view *v, const Elf64_Phdr *relro) {
  const Elf64_Phdr *p = bs_layout_holder(v, relro->p_vaddr, relro->p_memsz > 0, PF_R | PF_W);
  if (p == NULL || relro->p_memsz > reach(v, p) - relro->p_vaddr)
    return "has a read-only part that no segment holds";
  const uint64_t end = (relro->p_vaddr + relro->p_memsz) / PAGE * PAGE;
  for (uint32_t i = 0; i < v->n_sections; i++) {
    const Elf64_Shdr *s = &v->sections[i];
    const int padding = s->sh_addr + s->sh_size == end; /* of mold and newer lld: zeros up to the last page */
    const int stays = s->sh_type == SHT_NOBITS && (s->sh_flags & SHF_WRITE) != 0 &&
                      (s->sh_flags & SHF_TLS) == 0 && s->sh_size > 0 && !padding;
    if (stays && s->sh_addr < end && s->sh_addr + s->sh_size > relro->p_vaddr)
      return "has a read-only part that covers its data";
  }
  return NULL;
}

const char *bs_layout_segments(const bs_elf_view *v) {
  const char *wrong = NULL;
  uint64_t below = 0;
  uint32_t loads = 0;
  for (uint32_t i = 0; i < v->n_segments && wrong == NULL; i++) {
    const Elf64_Phdr *p = &v->segments[i];
    if (p->p_type == PT_INTERP) wrong = "asks for an interpreter: it is a program";
    if (p->p_type != PT_LOAD) continue;
    wrong = check_load(p, below);
    below = (p->p_vaddr + p->p_memsz + PAGE - 1) / PAGE * PAGE;
    loads++;
  }
  if (wrong == NULL && loads == 0) wrong = "has nothing to load";
  if (wrong == NULL) wrong = check_sections(v);
  for (uint32_t i = 0; i < v->n_segments && wrong == NULL; i++) {
    const Elf64_Phdr *p = &v->segments[i];
    if (p->p_type == PT_GNU_RELRO) wrong = check_relro(v, p);
    if (p->p_type == PT_DYNAMIC) {
      const Elf64_Phdr *load = bs_layout_holder(v, p->p_vaddr, p->p_memsz, PF_R | PF_W);
      if (load == NULL || p->p_filesz != p->p_memsz ||
          p->p_offset - load->p_offset != p->p_vaddr - load->p_vaddr)
        wrong = "has a dynamic table outside its segments";
    }
    if (p->p_type == PT_TLS &&
        (p->p_filesz > p->p_memsz || bs_layout_holder(v, p->p_vaddr, p->p_filesz, PF_R) == NULL))
      wrong = "has thread-local data outside its segments";
  }
  return wrong;
}

/* An entry of the dynamic table that points to a part of the file, and the entries with the part's size and
 * the size of one element. */
typedef struct pointer {
  int64_t tag, size_tag, entry_tag;
  uint64_t entry; /* bytes of one element, 0: any */
  uint32_t flags; /* of its segment */
  uint32_t type;  /* of the section that must be there too, 0: not checked */
} pointer;

static const pointer pointers[] = {
    {DT_STRTAB, DT_STRSZ, 0, 0, PF_R, SHT_STRTAB},
    {DT_SYMTAB, 0, DT_SYMENT, sizeof(Elf64_Sym), PF_R, SHT_DYNSYM},
    {DT_GNU_HASH, 0, 0, 0, PF_R, SHT_GNU_HASH},
    {DT_HASH, 0, 0, 0, PF_R, SHT_HASH},
    {DT_RELA, DT_RELASZ, DT_RELAENT, sizeof(Elf64_Rela), PF_R, SHT_RELA},
    {DT_JMPREL, DT_PLTRELSZ, 0, sizeof(Elf64_Rela), PF_R, SHT_RELA},
    {DT_PLTGOT, 0, 0, 0, PF_R | PF_W, 0},
    {DT_INIT, 0, 0, 0, PF_R | PF_X, SHT_PROGBITS},
    {DT_FINI, 0, 0, 0, PF_R | PF_X, SHT_PROGBITS},
    {DT_INIT_ARRAY, DT_INIT_ARRAYSZ, 0, 8, PF_R | PF_W, SHT_INIT_ARRAY},
    {DT_FINI_ARRAY, DT_FINI_ARRAYSZ, 0, 8, PF_R | PF_W, SHT_FINI_ARRAY},
    {DT_VERSYM, 0, 0, 0, PF_R, SHT_GNU_versym},
    {DT_VERNEED, 0, 0, 0, PF_R, SHT_GNU_verneed},
    {DT_VERDEF, 0, 0, 0, PF_R, SHT_GNU_verdef},
};
#define N_POINTERS (sizeof pointers / sizeof pointers[0])

const Elf64_Dyn *bs_layout_find(const Elf64_Dyn *table, uint64_t n, int64_t tag) {
  for (uint64_t i = 0; i < n && table[i].d_tag != DT_NULL; i++)
    if (table[i].d_tag == tag) return &table[i];
  return NULL;
}

static int has_section(const bs_elf_view *v, const pointer *w, uint64_t address, uint64_t size) {
  for (uint32_t i = 0; i < v->n_sections; i++) {
    const Elf64_Shdr *s = &v->sections[i];
    if (s->sh_type == SHT_PROGBITS && s->sh_entsize != 0) continue; /* .plt is neither init nor fini */
    if (s->sh_type == w->type && s->sh_addr == address && (w->size_tag == 0 || s->sh_size == size)) return 1;
  }
  return 0;
}

static const char *check_pointer(const bs_elf_view *v, const Elf64_Dyn *table, uint64_t n, const pointer *w) {
  const Elf64_Dyn *at = bs_layout_find(table, n, w->tag);
  const Elf64_Dyn *size = w->size_tag != 0 ? bs_layout_find(table, n, w->size_tag) : NULL;
  const Elf64_Dyn *entry = w->entry_tag != 0 ? bs_layout_find(table, n, w->entry_tag) : NULL;
  if (at == NULL)
    return size != NULL && size->d_un.d_val != 0 ? "has a dynamic table with a size of nothing" : NULL;
  const uint64_t bytes = size != NULL ? size->d_un.d_val : 1;
  if (w->size_tag != 0 && size == NULL) return "has a dynamic table that lacks a size";
  if (w->entry_tag != 0 && (entry == NULL || entry->d_un.d_val != w->entry))
    return "has a dynamic table with entries of another size";
  if (size != NULL && w->entry != 0 && bytes % w->entry != 0) return "has a dynamic table with a broken size";
  if (bs_layout_holder(v, at->d_un.d_ptr, bytes, w->flags) == NULL)
    return "has a dynamic table that points outside its segments";
  if (w->type != 0 && !has_section(v, w, at->d_un.d_ptr, bytes))
    return "has a dynamic table that its section table does not know";
  return NULL;
}

/* Names are offsets into the string table. */
static const char *check_names(const Elf64_Dyn *table, uint64_t n) {
  const Elf64_Dyn *size = bs_layout_find(table, n, DT_STRSZ);
  for (uint64_t i = 0; size != NULL && i < n && table[i].d_tag != DT_NULL; i++) {
    const int64_t tag = table[i].d_tag;
    const int name = tag == DT_NEEDED || tag == DT_SONAME || tag == DT_RPATH || tag == DT_RUNPATH ||
                     tag == DT_AUXILIARY || tag == DT_FILTER;
    if (name && table[i].d_un.d_val >= size->d_un.d_val)
      return "has a dynamic table with a name outside its strings";
  }
  return NULL;
}

/* The loader follows the last of two entries of a kind, readers of headers the first: there is only one. */
static const char *check_repeats(const Elf64_Dyn *table, uint64_t n) {
  for (uint64_t i = 0; i < n; i++) {
    const int64_t tag = table[i].d_tag;
    if (tag == DT_NEEDED || tag == DT_AUXILIARY || tag == DT_FILTER) continue;
    if (bs_layout_find(table + i + 1, n - i - 1, tag) != NULL)
      return "has a dynamic table with an entry that it may have once only";
  }
  return NULL;
}

const char *bs_layout_dynamic(const bs_elf_view *v, const Elf64_Dyn *table, uint64_t n) {
  static const int64_t required[] = {DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SYMENT};
  const char *wrong = NULL;
  uint64_t end = 0;
  if (n > MAX_ENTRIES) return "has a dynamic table of an odd size";
  while (end < n && table[end].d_tag != DT_NULL) end++;
  if (end == n) return "has a dynamic table without an end";
  for (uint64_t i = end; i < n; i++) /* zeros follow the end of a linker's table: nothing was cut off */
    if (table[i].d_tag != DT_NULL || table[i].d_un.d_val != 0)
      return "has a dynamic table that ends too early";
  wrong = check_repeats(table, end);
  for (size_t i = 0; i < sizeof required / sizeof required[0] && wrong == NULL; i++)
    if (bs_layout_find(table, n, required[i]) == NULL) wrong = "has a dynamic table that lacks its symbols";
  for (size_t i = 0; i < N_POINTERS && wrong == NULL; i++) wrong = check_pointer(v, table, n, &pointers[i]);
  if (wrong == NULL) wrong = check_names(table, n);
  const Elf64_Dyn *kind = bs_layout_find(table, n, DT_PLTREL),
                  *count = bs_layout_find(table, n, DT_RELACOUNT);
  const Elf64_Dyn *rela = bs_layout_find(table, n, DT_RELASZ), *jump = bs_layout_find(table, n, DT_JMPREL);
  if (wrong == NULL && jump != NULL && (kind == NULL || kind->d_un.d_val != DT_RELA))
    wrong = "has a dynamic table with relocations of another kind";
  if (wrong == NULL && count != NULL &&
      (rela == NULL || count->d_un.d_val > rela->d_un.d_val / sizeof(Elf64_Rela)))
    wrong = "has a dynamic table that counts too many relocations";
  if (wrong == NULL &&
      (bs_layout_find(table, n, DT_TEXTREL) != NULL || bs_layout_find(table, n, DT_REL) != NULL))
    wrong = "has relocations of a kind that plugins do not have";
  /* Every section of a kind that the loader needs has an entry. */
  for (uint32_t i = 0; i < v->n_sections && wrong == NULL; i++)
    for (size_t k = 0; k < N_POINTERS; k++) {
      const pointer *w = &pointers[k];
      if (w->type != v->sections[i].sh_type || w->type == SHT_PROGBITS || w->type == SHT_STRTAB ||
          w->type == SHT_RELA)
        continue;
      if (bs_layout_find(table, n, w->tag) == NULL)
        wrong = "has a dynamic table that lacks an entry for a section";
    }
  return wrong;
}
