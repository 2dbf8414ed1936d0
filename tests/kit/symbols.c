/* SPDX-License-Identifier: MIT
 * symbols.c - see symbols.h. The sanitizers' own start-up symbols are theirs, not the plugin's. */
#include "tests/kit/symbols.h"

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

int kit_symbols_read(const char *path, kit_symbols *out) {
  struct stat st;
  memset(out, 0, sizeof *out);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  const char *image =
      fstat(fd, &st) == 0 ? mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
  close(fd);
  if (image == MAP_FAILED) return -1;
  read_image(image, out);
  munmap((void *)(uintptr_t)image, (size_t)st.st_size);
  return 0;
}
