/* SPDX-License-Identifier: MIT
 * symbols.c - see symbols.h. The sanitizers' own start-up symbols are theirs, not the plugin's. */
#include "kit/symbols.h"

#include <elf.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void add(kit_symbols *out, const char *name) {
  const size_t n = strlen(out->text);
  snprintf(out->text + n, sizeof out->text - n, " %s", name);
}

static void read_image(const char *image, kit_symbols *out) {
  const Elf64_Ehdr *h = (const Elf64_Ehdr *)(const void *)image;
  const Elf64_Shdr *sections = (const Elf64_Shdr *)(const void *)(image + h->e_shoff);
  for (int i = 0; i < h->e_shnum; i++) {
    if (sections[i].sh_type != SHT_DYNSYM) continue;
    const Elf64_Sym *s = (const Elf64_Sym *)(const void *)(image + sections[i].sh_offset);
    const char *names = image + sections[sections[i].sh_link].sh_offset;
    for (size_t k = 1; k < sections[i].sh_size / sizeof *s; k++) {
      const char *name = names + s[k].st_name;
      if (s[k].st_shndx == SHN_UNDEF && strncmp(name, "bs_", 3) == 0) {
        out->undefined_ours++;
        add(out, name);
      } else if (s[k].st_shndx != SHN_UNDEF && strncmp(name, "__", 2) != 0) {
        out->exported++;
        add(out, name);
      }
    }
  }
}

typedef struct mapped {
  const char *image;
  size_t bytes;
} mapped;

static int map(const char *path, mapped *out) {
  struct stat st;
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  out->image = MAP_FAILED;
  if (fstat(fd, &st) == 0) {
    out->bytes = (size_t)st.st_size;
    out->image = mmap(NULL, out->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  }
  close(fd);
  return out->image == MAP_FAILED ? -1 : 0;
}

static void unmap(const mapped *m) {
  munmap((void *)(uintptr_t)m->image, m->bytes);
}

int kit_symbols_read(const char *path, kit_symbols *out) {
  mapped m;
  memset(out, 0, sizeof *out);
  if (map(path, &m) != 0) return -1;
  read_image(m.image, out);
  unmap(&m);
  return 0;
}

/* ---- thread-local storage ------------------------------------------------------------------- */

static void read_tls(const char *image, kit_tls *out) {
  const Elf64_Ehdr *h = (const Elf64_Ehdr *)(const void *)image;
  const Elf64_Phdr *segments = (const Elf64_Phdr *)(const void *)(image + h->e_phoff);
  const Elf64_Shdr *sections = (const Elf64_Shdr *)(const void *)(image + h->e_shoff);
  for (int i = 0; i < h->e_phnum; i++)
    if (segments[i].p_type == PT_TLS) out->bytes += segments[i].p_memsz;
  for (int i = 0; i < h->e_shnum; i++) {
    if (sections[i].sh_type != SHT_DYNSYM) continue;
    const Elf64_Sym *s = (const Elf64_Sym *)(const void *)(image + sections[i].sh_offset);
    const char *names = image + sections[sections[i].sh_link].sh_offset;
    for (size_t k = 1; k < sections[i].sh_size / sizeof *s; k++)
      if (s[k].st_shndx == SHN_UNDEF && ELF64_ST_TYPE(s[k].st_info) == STT_TLS && out->needs[0] == '\0')
        snprintf(out->needs, sizeof out->needs, "%s", names + s[k].st_name);
  }
}

int kit_tls_read(const char *path, kit_tls *out) {
  mapped m;
  memset(out, 0, sizeof *out);
  if (map(path, &m) != 0) return -1;
  read_tls(m.image, out);
  unmap(&m);
  return 0;
}

/* ---- names of data -------------------------------------------------------------------------- */

static void find_object(const char *image, uint64_t address, char *out, size_t size, uint64_t *end) {
  const Elf64_Ehdr *h = (const Elf64_Ehdr *)(const void *)image;
  const Elf64_Shdr *sections = (const Elf64_Shdr *)(const void *)(image + h->e_shoff);
  for (int i = 0; i < h->e_shnum; i++) {
    if (sections[i].sh_type != SHT_SYMTAB && sections[i].sh_type != SHT_DYNSYM) continue;
    const Elf64_Sym *s = (const Elf64_Sym *)(const void *)(image + sections[i].sh_offset);
    const char *names = image + sections[sections[i].sh_link].sh_offset;
    for (size_t k = 1; k < sections[i].sh_size / sizeof *s; k++) {
      if (ELF64_ST_TYPE(s[k].st_info) != STT_OBJECT || address < s[k].st_value ||
          address >= s[k].st_value + s[k].st_size)
        continue;
      snprintf(out, size, "%s", names + s[k].st_name);
      *end = s[k].st_value + s[k].st_size;
      return;
    }
  }
}

void kit_symbol_at(const char *path, uint64_t address, char *out_name, size_t size, uint64_t *out_end) {
  mapped m;
  out_name[0] = '\0';
  *out_end = address + 1;
  if (map(path, &m) != 0) return;
  find_object(m.image, address, out_name, size, out_end);
  unmap(&m);
}
