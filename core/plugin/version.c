/* SPDX-License-Identifier: MIT
 * version.c - bs_version and bs_build_id: which library this is. The build id is read from the loaded
 * image, so that it names the code that runs and not a file that replaced it. */
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <string.h>

#include "blockshock/blockshock.h"
#include "core/plugin/registry.h"

#ifndef BS_VERSION_STRING
#error "BS_VERSION_STRING is defined by core/CMakeLists.txt"
#endif

enum { ID_MAX_BYTES = 32 };
static char build_id[BS_BUILD_ID_SIZE];
static pthread_once_t build_id_once = PTHREAD_ONCE_INIT;

const char *bs_version(void) {
  return BS_VERSION_STRING;
}

/* An address, and the id of the object that it lies in. */
typedef struct wanted {
  uintptr_t address;
  char *out;
} wanted;

static void take_id(const unsigned char *bytes, uint32_t n, char *out) {
  static const char hex[] = "0123456789abcdef";
  if (n > ID_MAX_BYTES) n = ID_MAX_BYTES;
  for (uint32_t i = 0; i < n; i++) {
    out[2 * i] = hex[bytes[i] >> 4];
    out[2 * i + 1] = hex[bytes[i] & 15];
  }
  out[2 * (size_t)n] = '\0';
}

static void scan_notes(const char *at, size_t size, char *out) {
  while (size >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) h;
    memcpy(&h, at, sizeof h);
    size_t name = sizeof h, desc = name + (((size_t)h.n_namesz + 3) & ~(size_t)3);
    size_t next = desc + (((size_t)h.n_descsz + 3) & ~(size_t)3);
    if (next > size) return;
    if (h.n_type == NT_GNU_BUILD_ID && h.n_namesz == 4 && memcmp(at + name, "GNU", 4) == 0) {
      take_id((const unsigned char *)at + desc, h.n_descsz, out);
      return;
    }
    at += next;
    size -= next;
  }
}

/* The object whose load segments hold the address. */
static int visit(struct dl_phdr_info *info, size_t size, void *data) {
  const wanted *w = data;
  int holds = 0;
  (void)size;
  for (uint32_t i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *p = &info->dlpi_phdr[i];
    uintptr_t start = (uintptr_t)info->dlpi_addr + p->p_vaddr;
    if (p->p_type == PT_LOAD && w->address >= start && w->address - start < p->p_memsz) holds = 1;
  }
  if (!holds) return 0;
  for (uint32_t i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *p = &info->dlpi_phdr[i];
    if (p->p_type == PT_NOTE && p->p_align <= 4)
      scan_notes((const char *)((uintptr_t)info->dlpi_addr + p->p_vaddr), p->p_memsz, w->out);
  }
  return 1;
}

void bs_build_id_of(uintptr_t address, char out[BS_BUILD_ID_SIZE]) {
  wanted w = {address, out};
  out[0] = '\0';
  dl_iterate_phdr(visit, &w);
}

static void read_build_id(void) {
  bs_build_id_of((uintptr_t)&build_id_once, build_id);
}

const char *bs_build_id(void) {
  pthread_once(&build_id_once, read_build_id);
  return build_id;
}
